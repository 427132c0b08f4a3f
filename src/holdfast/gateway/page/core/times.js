// Times that go on by themselves: "2 min ago", "in 6 d 23 h". A page may stand open for days, and
// what it says of a prompt's time must stay true.

import { h } from "./dom.js";
import { away, isSoon } from "./words.js";

const TICK_MS = 5000;

export function ago(iso) {
  return h("time", { class: "ago", datetime: iso }, away(iso));
}

// When something ends, in so many words; told apart while there is little time left.
export function until(iso, words) {
  return h("time", { class: `until${isSoon(iso) ? " soon" : ""}`, datetime: iso }, words);
}

function tick() {
  for (const each of document.querySelectorAll("time.ago")) {
    const words = away(each.dateTime);
    if (each.textContent !== words) each.textContent = words;
  }
  for (const each of document.querySelectorAll("time.until"))
    each.classList.toggle("soon", isSoon(each.dateTime));
}

setInterval(tick, TICK_MS);
