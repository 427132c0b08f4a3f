// A parsed reply as elements. Every word goes in as text; links show their target; images are named
// and never loaded.

import { h, outsideLink } from "../core/dom.js";
import { highlight } from "./highlight.js";
import { parseMarkdown } from "./markdown.js";

const RICH_CHARS_MAX = 200_000; // a longer reply is shown as plain text

export function richText(text) {
  if (text.length > RICH_CHARS_MAX) return h("p", { class: "plain" }, text);
  return parseMarkdown(text).map(block);
}

function block(node) {
  switch (node.kind) {
    case "heading":
      // The page's own headings come first: a reply's begin at the third level.
      return h(`h${Math.min(6, node.level + 2)}`, null, node.children.map(inline));
    case "paragraph":
      return h("p", null, node.children.map(inline));
    case "code":
      return codeBlock(node);
    case "quote":
      return h("blockquote", null, node.children.map(block));
    case "list":
      return node.isOrdered
        ? h("ol", { start: node.start === 1 ? null : node.start }, node.children.map(item))
        : h("ul", null, node.children.map(item));
    case "table":
      return table(node);
    case "rule":
      return h("hr", null);
    default:
      return null;
  }
}

function codeBlock({ text, language }) {
  const pieces = highlight(text, language).map(({ kind, text: part }) =>
    kind === "plain" ? part : h("span", { class: `c-${kind}` }, part),
  );
  const label = language ? `Code, ${language}` : "Code";
  return h(
    "pre",
    { class: "code-block", tabindex: "0", "aria-label": label },
    h("code", null, pieces),
  );
}

function item(node) {
  const [first, ...rest] = node.children;
  // A single paragraph needs no margin of its own.
  const words = first?.kind === "paragraph" ? first.children.map(inline) : first && block(first);
  const done = node.isDone ? "done: " : "to do: ";
  const box = node.isTask && [
    h("span", { class: "task", "aria-hidden": "true" }, node.isDone ? "☑ " : "☐ "),
    h("span", { class: "unseen" }, done),
  ];
  return h("li", { class: node.isTask ? "has-task" : null }, box, words, rest.map(block));
}

function table({ children, alignments }) {
  const [head, ...rows] = children;
  const cells = (row, tag) =>
    head.children.map((_, at) => {
      const props = { class: `to-${alignments[at] ?? "left"}`, scope: tag === "th" ? "col" : null };
      return h(tag, props, (row.children[at]?.children ?? []).map(inline));
    });
  return h(
    "div",
    { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    h(
      "table",
      null,
      h("thead", null, h("tr", null, cells(head, "th"))),
      h(
        "tbody",
        null,
        rows.map((row) => h("tr", null, cells(row, "td"))),
      ),
    ),
  );
}

function inline(node) {
  switch (node.kind) {
    case "text":
      return node.text;
    case "code":
      return h("code", null, node.text);
    case "strong":
      return h("strong", null, node.children.map(inline));
    case "emphasis":
      return h("em", null, node.children.map(inline));
    case "deleted":
      return h("del", null, node.children.map(inline));
    case "break":
      return h("br", null);
    case "link":
      return outsideLink(node.url, node.text, node.source);
    case "image":
      return h("span", { class: "image" }, `image, not loaded: ${node.text} ${node.url}`);
    default:
      return null;
  }
}
