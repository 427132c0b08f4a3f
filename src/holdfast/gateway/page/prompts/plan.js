// What exactly would run, as it was journalled: complete, as text, before everything else. A change
// of a file is also drawn as a diff, and the exact text stays one press away.

import { h } from "../core/dom.js";
import { diffIn } from "../text/diff.js";
import { diffView } from "../text/diff_view.js";

// Holdfast's own lines that an approver must not pass over.
const OWN = [
  [/^(! |UNCONFINED)/, "warn"],
  [/^(expect .* to fail\b.*|it may run files that can still change)$/, "caution"],
];
const FILE_TOOLS = new Set(["write_file", "edit_file"]);

export function planOf(prompt) {
  if (prompt.kind === "question") {
    return h(
      "blockquote",
      { class: "question" },
      String(prompt.arguments?.question ?? prompt.display),
    );
  }
  const change = FILE_TOOLS.has(prompt.tool) ? diffIn(prompt.display) : null;
  const exact = display(prompt);
  return h(
    "section",
    { class: "plan", "aria-label": "What exactly would run" },
    h("div", { class: "plan-text" }, change ? [before(change), diffView(change)] : exact),
    change && h("details", { class: "exact-text" }, h("summary", null, "Exact text"), exact),
    risksOf(prompt),
    h(
      "p",
      { class: "digest" },
      "If the call changes, your answer no longer counts. Fingerprint: ",
      h("code", { title: prompt.digest }, `${prompt.digest.slice(0, 16)}…`),
    ),
  );
}

function before(change) {
  return h("pre", { class: "display before", tabindex: "0" }, lines(change.before, []));
}

function display(prompt) {
  const props = { class: "display", tabindex: "0", data: { exact: "" } };
  return h("pre", props, lines(prompt.display, prompt.risks ?? []));
}

// Why this call deserves a second look. Each reason names the marked part of the text above.
function risksOf(prompt) {
  // The marked line and the field to type into say already that it may have run.
  const risks = (prompt.risks ?? []).filter((risk) => risk.kind !== "in_doubt_twin");
  if (!risks.length) return null;
  return h(
    "ul",
    { class: "risks", "aria-label": "Why to look twice" },
    risks.map((risk) => {
      const part = prompt.display.slice(risk.start ?? 0, risk.end ?? 0);
      const isShort = part && part.length <= 80 && !part.includes("\n");
      return h("li", null, isShort && [h("code", null, part), ": "], withCode(risk.text));
    }),
  );
}

// The parts between backticks as code.
function withCode(text) {
  return text.split("`").map((part, at) => (at % 2 ? h("code", null, part) : part));
}

// The very text, character by character; only its weight and colour differ. A line behind a bar
// comes from the call and can pass for nothing else: every line of it has the bar. The other lines
// are Holdfast's own words.
function lines(text, risks) {
  let start = 0;
  return text.split("\n").map((line, at) => {
    const from = start;
    start += line.length + 1;
    const isExact = line.startsWith("| ");
    const kind = isExact ? "exact" : (OWN.find(([form]) => form.test(line))?.[1] ?? "label");
    return [at ? "\n" : null, h("span", { class: kind }, words(line, from, risks))];
  });
}

// Spaces stay what they are; each word is kept together, so that the end of a line is never taken
// for one of them. The parts that a risk names are marked.
function words(line, from, risks) {
  const isRisky = (at) => risks.some((risk) => risk.start <= at && at < risk.end);
  let at = from;
  return line.split(/( +)/).map((part) => {
    const begin = at;
    at += part.length;
    if (part === "") return null;
    if (part.startsWith(" ")) return part;
    const kind = risks.length && isRisky(begin) ? "word risky" : "word";
    return h("span", { class: kind }, part);
  });
}
