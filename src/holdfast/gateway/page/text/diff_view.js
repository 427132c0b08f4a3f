// A change of a file, in colours: side by side where there is room, one below the other elsewhere.
// The counts are of the lines that are shown.

import { h } from "../core/dom.js";
import { plural } from "../core/words.js";
import { changedPart } from "./diff.js";

export function diffView({ hunks, added, removed }) {
  const counts = [
    h("span", { class: "count-added" }, `+${plural(added, "line", "lines")}`),
    " ",
    h("span", { class: "count-removed" }, `-${plural(removed, "line", "lines")}`),
  ];
  const counted = (count) => plural(count, "line", "lines");
  const words = `${counted(added)} added, ${counted(removed)} removed`;
  return h(
    "div",
    { class: "diff", role: "group", "aria-label": `The change: ${words}` },
    h("p", { class: "diff-counts" }, counts),
    hunks.map(({ head, rows }) => [
      h("p", { class: "diff-head", title: head }, fromLine(head)),
      h("div", { class: "diff-rows", tabindex: "0" }, rows.map(line)),
    ]),
  );
}

// "@@ -12,6 +14,7 @@": the exact text has it. People read where the part begins.
function fromLine(head) {
  const found = /\+([0-9]+)/.exec(head);
  return found ? `from line ${found[1]}` : head;
}

function line({ kind, left, right }) {
  const [leftText, rightText] = kind === "changed" ? marked(left.text, right.text) : [];
  const isGone = kind === "removed" || kind === "changed";
  const isNew = kind === "added" || kind === "changed";
  return h(
    "div",
    { class: `diff-row is-${kind}` },
    side("left", left, leftText, isGone ? "-" : " "),
    side("right", right, rightText, isNew ? "+" : " "),
  );
}

function side(name, given, words, sign) {
  if (!given) return h("div", { class: `diff-side ${name} is-blank`, "aria-hidden": "true" });
  return h(
    "div",
    { class: `diff-side ${name}` },
    h("span", { class: "diff-number" }, given.number ?? ""),
    h("span", { class: "diff-sign" }, sign),
    h("span", { class: "diff-text" }, words ?? given.text),
  );
}

function marked(left, right) {
  const [start, leftEnd, rightEnd] = changedPart(left, right);
  const parts = (text, end) => [
    text.slice(0, start),
    h("mark", null, text.slice(start, end)),
    text.slice(end),
  ];
  return [parts(left, leftEnd), parts(right, rightEnd)];
}
