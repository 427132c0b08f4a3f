// The name and the mark.

import { h } from "../core/dom.js";

export function mark() {
  return h("img", { class: "mark", src: "/assets/icon.svg", alt: "", width: 28, height: 28 });
}

export function brand() {
  return h("div", { class: "brand big" }, mark(), h("span", null, "Holdfast"));
}
