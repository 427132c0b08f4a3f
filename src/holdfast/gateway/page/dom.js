// Elements from words. Text becomes text and nothing else: there is no way from here to markup, and the page's policy forbids every other one.

const SVG = "http://www.w3.org/2000/svg";

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

function put(node, children) {
  node.append(...nodes(children));
  return node;
}

function dress(node, props) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "value") node.value = value;
    else if (name === "href" && !String(value).startsWith("#")) throw new Error("only places of this page are linked");
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  return node;
}

export function h(tag, props, ...children) {
  return put(dress(document.createElement(tag), props), children);
}

export function s(tag, props, ...children) {
  return put(dress(document.createElementNS(SVG, tag), props), children);
}

export function fill(node, ...children) {
  node.replaceChildren();
  return put(node, children);
}

// The same, but what stands there already and still should is left where it is: a button that is taken out and put back loses its focus, and the press that is on its way.
export function arrange(node, ...children) {
  const wanted = nodes(children);
  const kept = new Set(wanted);
  for (const each of [...node.childNodes]) if (!kept.has(each)) each.remove();
  let next = node.firstChild;
  for (const each of wanted) { if (each === next) next = next.nextSibling; else node.insertBefore(each, next); }
  return node;
}

// For screen readers: what happened, once, in the order it happened.
export function say(text, { urgent = false } = {}) {
  const node = document.getElementById(urgent ? "urgent" : "said");
  node.textContent = "";
  requestAnimationFrame(() => { node.textContent = text; });
}

const PATHS = {
  inbox: "M3 12l2.4-6.3A2 2 0 0 1 7.3 4.4h5.4a2 2 0 0 1 1.9 1.3L17 12v3a1.6 1.6 0 0 1-1.6 1.6H4.6A1.6 1.6 0 0 1 3 15zM3 12h4l1 2h4l1-2h4",
  talk: "M4 4h12a1.5 1.5 0 0 1 1.5 1.5v7A1.5 1.5 0 0 1 16 14H9l-4 3v-3H4a1.5 1.5 0 0 1-1.5-1.5v-7A1.5 1.5 0 0 1 4 4z",
  grant: "M12.5 3.5a4 4 0 1 1-3.6 5.7L3 15v2.5h3V15.500h2V13.500h2l.7-1.6",
  sun: "M10 6.500a3.500 3.500 0 1 1 0 7 3.500 3.500 0 0 1 0-7zM10 1.500v2M10 16.500v2M1.500 10h2M16.500 10h2M4 4l1.400 1.400M14.600 14.600L16 16M16 4l-1.400 1.400M5.400 14.600L4 16",
  help: "M10 2a8 8 0 1 1 0 16 8 8 0 0 1 0-16zM7.800 7.700a2.300 2.300 0 1 1 3.300 2.100c-.8.400-1.100.9-1.100 1.700M10 14.200v.1",
  shield: "M10 2l6.500 2.300v5c0 4-2.700 7-6.500 8.700C6.200 16.300 3.500 13.300 3.500 9.300v-5zM7 10l2.200 2.200L13.200 8",
  broken: "M10 2l6.500 2.300v5c0 4-2.700 7-6.500 8.700C6.200 16.300 3.500 13.300 3.500 9.300v-5zM10 6v4.500M10 13.200v.1",
  plus: "M10 4v12M4 10h12",
  back: "M12 4l-6 6 6 6",
  out: "M8 3H4.500v14H8M12 6.500L15.500 10 12 13.500M15.500 10H8",
  send: "M3 10l14-6-5 13-3-5.500z",
};

export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true", focusable: "false" }, s("path", { d: PATHS[name] }));
}
