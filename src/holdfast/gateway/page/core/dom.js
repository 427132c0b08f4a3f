// Elements from words. Text becomes text and nothing else: there is no way from here to markup, and
// the page's policy forbids every other one.

import { safeUrl } from "../text/links.js";

const SVG = "http://www.w3.org/2000/svg";

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

function put(node, children) {
  node.append(...nodes(children));
  return node;
}

function dress(node, props) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    } else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "value") node.value = value;
    else if (name === "href" && !String(value).startsWith("#")) {
      throw new Error("only places of this page are linked here; see outsideLink");
    } else node.setAttribute(name, value === true ? "" : String(value));
  }
  return node;
}

export function h(tag, props, ...children) {
  return put(dress(document.createElement(tag), props), children);
}

export function s(tag, props, ...children) {
  return put(dress(document.createElementNS(SVG, tag), props), children);
}

// A link to another site: its target stands beside its words, and the other site is told nothing
// about this page. An address that may not be opened stays text.
export function outsideLink(url, words, source) {
  const href = safeUrl(url);
  if (href === null) return document.createTextNode(source);
  const link = document.createElement("a");
  link.setAttribute("href", href);
  link.setAttribute("rel", "noreferrer noopener nofollow external");
  link.setAttribute("referrerpolicy", "no-referrer");
  link.setAttribute("target", "_blank");
  link.className = "outside";
  const target =
    words === url || words === href ? null : h("span", { class: "target" }, ` ${href}`);
  return put(link, [words || href, target]);
}

export function fill(node, ...children) {
  node.replaceChildren();
  return put(node, children);
}

// The same, but a child that is there already stays where it is: a button that is taken out and put
// back loses its focus, and the press that is on its way.
export function arrange(node, ...children) {
  const wanted = nodes(children);
  const kept = new Set(wanted);
  for (const each of [...node.childNodes]) if (!kept.has(each)) each.remove();
  let next = node.firstChild;
  for (const each of wanted) {
    if (each === next) next = next.nextSibling;
    else node.insertBefore(each, next);
  }
  return node;
}

const SEEN_MS = 4000;
let fading = null;

// For screen readers: the events, once, in their order. `seen` shows the words for a moment too,
// where nothing else on the screen tells the reader the effect of a press.
export function say(text, { urgent = false, seen = false } = {}) {
  const node = document.getElementById(urgent ? "urgent" : "said");
  node.textContent = "";
  if (seen) show(text);
  requestAnimationFrame(() => {
    node.textContent = text;
  });
}

// In a place of its own: what is only said meanwhile covers nothing.
function show(text) {
  const toast = document.getElementById("toast");
  clearTimeout(fading);
  toast.textContent = text;
  toast.hidden = false;
  fading = setTimeout(() => {
    toast.hidden = true;
  }, SEEN_MS);
}
