// The turn as a picture: time flows down, stretches are bars, moments are dots, a crash is a break in the line.
// Lengths grow with the logarithm of time, so that an hour of waiting and a millisecond of thinking fit one picture.

import { h, s } from "./dom.js";
import { span, when } from "./words.js";

const LEFT = 20;
const WORDS = 46;
const WIDTH = 320;

function height(mark, now) {
  if (mark.point) return 30;
  const ms = Math.max(1, (mark.to ?? now) - mark.from);
  return Math.min(96, 30 + 11 * Math.log10(ms));
}

export function timeline(turn, now = Date.now()) {
  const marks = turn.marks;
  let y = 18;
  const shapes = [];
  const words = [];
  marks.forEach((mark, index) => {
    const tall = height(mark, now);
    const next = y + tall;
    const last = index === marks.length - 1;
    if (mark.point) {
      if (mark.kind === "crashed") {
        shapes.push(s("rect", { class: "t-gap", x: LEFT - 4, y: y - 7, width: 8, height: 14 }));
        for (const shift of [-4, 4]) shapes.push(s("path", { class: "t-crash", d: `M${LEFT - 11} ${y + shift} l5.5 -4 l5.5 6 l5.5 -6 l5.500 4` }));
      } else if (mark.kind === "doubt") {
        shapes.push(s("circle", { class: "t-dot t-failed", cx: LEFT, cy: y, r: 8 }));
        shapes.push(s("text", { class: "t-ask", x: LEFT, y: y + 4, "text-anchor": "middle" }, "?"));
      } else {
        shapes.push(s("circle", { class: `t-dot t-${mark.kind}`, cx: LEFT, cy: y, r: mark.kind === "asked" || mark.kind === "answered" ? 7 : 5 }));
      }
      if (!last) shapes.unshift(s("line", { class: "t-spine", x1: LEFT, y1: y, x2: LEFT, y2: next }));
      words.push(s("text", { class: "t-word", x: WORDS, y: y + 4 }, short(mark.label)));
      words.push(s("text", { class: "t-when", x: WIDTH - 4, y: y + 4, "text-anchor": "end" }, when(mark.from)));
    } else {
      shapes.push(s("rect", { class: `t-bar t-${mark.kind}${mark.to === null ? " t-live" : ""}`, x: LEFT - 6, y: y - 6, width: 12, height: tall - 8, rx: 6 }));
      if (!last) shapes.unshift(s("line", { class: "t-spine", x1: LEFT, y1: y, x2: LEFT, y2: next }));
      const middle = y - 6 + (tall - 8) / 2;
      words.push(s("text", { class: "t-word", x: WORDS, y: middle + 4 }, short(mark.label)));
      words.push(s("text", { class: "t-when", x: WIDTH - 4, y: middle + 4, "text-anchor": "end" }, mark.to === null ? `${span(now - mark.from)} so far` : span(mark.to - mark.from)));
    }
    y = next;
  });
  const told = marks.map((mark) => `${mark.label}${mark.point ? "" : `, ${span((mark.to ?? now) - mark.from)}`}`);
  return h("figure", { class: "timeline" },
    s("svg", { viewBox: `0 0 ${WIDTH} ${Math.max(36, y)}`, role: "img", "aria-label": `The turn in time: ${told.join("; ")}` }, shapes, words),
    h("figcaption", { class: "legend", "aria-hidden": "true" },
      ["asked", "thinking", "waiting", "ran", "answered"].map((kind) => h("span", { class: "key" }, h("i", { class: `swatch k-${kind}` }), kind)),
      marks.some((mark) => mark.kind === "crashed") && h("span", { class: "key" }, h("i", { class: "swatch k-crashed" }), "crashed, resumed")));
}

function short(text) { return text.length > 30 ? `${text.slice(0, 29)}…` : text; }
