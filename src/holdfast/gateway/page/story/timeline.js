// The turn as a picture: time flows down, stretches are bars, moments are dots, a crash is a
// break in the line.
// Lengths grow with the logarithm of time, so that an hour of waiting and a millisecond of
// thinking fit one picture.

import { h, s } from "../core/dom.js";
import { span, when } from "../core/words.js";

const LEFT = 20;
const WORDS = 46;
const WIDTH = 320;
const LEGEND = [
  ["asked", "a message"],
  ["thinking", "the model thinks"],
  ["waiting", "a person must answer"],
  ["answered-prompt", "a person answered"],
  ["denied", "denied, stopped or replaced"],
  ["refused", "an answer was refused"],
  ["ran", "a tool runs"],
  ["doubt", "in doubt: it may have run"],
  ["failed", "failed"],
  ["crashed", "the process died"],
  ["resumed", "resumed"],
  ["answered", "the reply"],
];

function height(mark, now) {
  if (mark.point) return 30;
  const ms = Math.max(1, (mark.to ?? now) - mark.from);
  return Math.min(96, 30 + 11 * Math.log10(ms));
}

export function timeline(turn, now = Date.now()) {
  const spines = [];
  const shapes = [];
  const words = [];
  let y = 18;
  turn.marks.forEach((mark, index) => {
    const tall = height(mark, now);
    if (index < turn.marks.length - 1)
      spines.push(s("line", { class: "t-spine", x1: LEFT, y1: y, x2: LEFT, y2: y + tall - 6 }));
    shapes.push(mark.point ? point(mark, y) : bar(mark, y, tall));
    words.push(said(mark, mark.point ? y : y - 6 + (tall - 8) / 2, now));
    y += tall;
  });
  const told = turn.marks.map(
    (mark) => `${mark.label}${mark.point ? "" : `, ${span((mark.to ?? now) - mark.from)}`}`,
  );
  return h(
    "figure",
    { class: "timeline" },
    s(
      "svg",
      {
        viewBox: `0 0 ${WIDTH} ${Math.max(36, y)}`,
        role: "img",
        "aria-label": `The turn in time: ${told.join("; ")}`,
      },
      spines,
      shapes,
      words,
    ),
    legend(turn.marks),
  );
}

// The signs of this picture, and how to read it.
function legend(marks) {
  const kinds = new Set(marks.map((mark) => mark.kind));
  const keys = LEGEND.filter(([kind]) => kinds.has(kind));
  return h(
    "figcaption",
    { class: "legend" },
    h("p", null, "Time runs down. A longer bar took longer; long times are shortened."),
    keys.map(([kind, words]) =>
      h("span", { class: "key" }, h("i", { class: `swatch k-${kind}` }), words),
    ),
  );
}

function point(mark, y) {
  if (mark.kind === "crashed") {
    const zigzag = (shift) =>
      s("path", {
        class: "t-crash",
        d: `M${LEFT - 11} ${y + shift} l5.5 -4 l5.5 6 l5.5 -6 l5.5 4`,
      });
    return [
      s("rect", { class: "t-gap", x: LEFT - 4, y: y - 7, width: 8, height: 14 }),
      zigzag(-4),
      zigzag(4),
    ];
  }
  if (mark.kind === "doubt") {
    return [
      s("circle", { class: "t-dot t-failed", cx: LEFT, cy: y, r: 8 }),
      s("text", { class: "t-ask", x: LEFT, y: y + 4, "text-anchor": "middle" }, "?"),
    ];
  }
  return s("circle", {
    class: `t-dot t-${mark.kind}`,
    cx: LEFT,
    cy: y,
    r: mark.kind === "asked" || mark.kind === "answered" ? 7 : 5,
  });
}

function bar(mark, y, tall) {
  return s("rect", {
    class: `t-bar t-${mark.kind}${mark.to === null ? " t-live" : ""}`,
    x: LEFT - 6,
    y: y - 6,
    width: 12,
    height: tall - 8,
    rx: 6,
  });
}

function said(mark, y, now) {
  const long = mark.to === null ? `${span(now - mark.from)} so far` : span(mark.to - mark.from);
  return [
    s("text", { class: "t-word", x: WORDS, y: y + 4 }, short(mark.label)),
    s(
      "text",
      { class: "t-when", x: WIDTH - 4, y: y + 4, "text-anchor": "end" },
      mark.point ? when(mark.from) : long,
    ),
  ];
}

function short(text) {
  return text.length > 30 ? `${text.slice(0, 29)}…` : text;
}
