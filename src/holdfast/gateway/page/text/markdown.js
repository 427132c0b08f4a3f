// Markdown to a tree of plain objects. Pure: no DOM, no HTML, no regular expression that can go
// back over its input, so the time is linear in the text and a hostile reply can't stall the page.
//
// Anything that is not understood stays text. HTML is text. See docs/decisions for why this parser
// is our own.
//
// Block nodes: heading(level), paragraph, code(language, text), quote, list(isOrdered, start),
// item(isTask, isDone), table(alignments), row, cell, rule.
// Inline nodes: text(text), code(text), strong, emphasis, deleted, link(url), image(url, text),
// break. Nodes that hold others have `children`.

const DEPTH_MAX = 12; // quotes and lists inside each other; deeper ones stay text
const INLINE_DEPTH_MAX = 16;
const CELLS_MAX = 64;

export function parseMarkdown(text) {
  return blocks(text.replaceAll("\r\n", "\n").split("\n"), 0);
}

// --- blocks

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([A-Za-z0-9_+#.-]{0,40})[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const MARKER = /^( {0,3})([-*+]|[0-9]{1,9}[.)])(?:([ \t]{1,4})(.*))?$/;
const TASK = /^\[([ xX])\][ \t]+(.*)$/;
const SEPARATOR = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

function blocks(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const next = block(lines, at, depth, found);
    at = next > at ? next : at + 1;
  }
  return found;
}

// Add the block that begins at this line, and return the line after it.
function block(lines, at, depth, found) {
  const line = lines[at];
  if (line.trim() === "") return at + 1;
  const fence = FENCE.exec(line);
  if (fence) return fencedCode(lines, at, fence, found);
  const heading = HEADING.exec(line);
  if (heading) {
    const title = (heading[2] ?? "").replace(/[ \t]+#+[ \t]*$/, "");
    found.push({ kind: "heading", level: heading[1].length, children: parseInline(title) });
    return at + 1;
  }
  if (RULE.test(line)) {
    found.push({ kind: "rule" });
    return at + 1;
  }
  if (depth < DEPTH_MAX && QUOTE.test(line)) return quote(lines, at, depth, found);
  if (depth < DEPTH_MAX && isListStart(line)) return list(lines, at, depth, found);
  if (line.includes("|") && SEPARATOR.test(lines[at + 1] ?? "")) return table(lines, at, found);
  if (line.startsWith("    ")) return indentedCode(lines, at, found);
  return paragraph(lines, at, depth, found);
}

function fencedCode(lines, at, fence, found) {
  const [, mark, language] = fence;
  const text = [];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end].trim();
    if (line.length >= mark.length && line[0] === mark[0] && isOnly(line, mark[0])) break;
    text.push(lines[end]);
  }
  found.push({ kind: "code", language: language.toLowerCase(), text: text.join("\n") });
  return end + 1;
}

function isOnly(line, mark) {
  for (const each of line) if (each !== mark) return false;
  return true;
}

function indentedCode(lines, at, found) {
  let end = at;
  while (end < lines.length && (lines[end].startsWith("    ") || lines[end].trim() === ""))
    end += 1;
  while (lines[end - 1].trim() === "") end -= 1;
  const text = lines.slice(at, end).map((line) => line.slice(4));
  found.push({ kind: "code", language: "", text: text.join("\n") });
  return end;
}

function quote(lines, at, depth, found) {
  const inside = [];
  let end = at;
  for (; end < lines.length; end += 1) {
    const quoted = QUOTE.exec(lines[end]);
    if (!quoted && (lines[end].trim() === "" || startsBlock(lines[end]))) break;
    inside.push(quoted ? quoted[1] : lines[end]);
  }
  found.push({ kind: "quote", children: blocks(inside, depth + 1) });
  return end;
}

function isListStart(line) {
  return MARKER.test(line) && !RULE.test(line);
}

function list(lines, at, depth, found) {
  const first = MARKER.exec(lines[at]);
  const isOrdered = /[0-9]/.test(first[2][0]);
  const mark = first[2].at(-1);
  const node = { kind: "list", isOrdered, start: isOrdered ? parseInt(first[2], 10) : 1 };
  node.children = [];
  let end = at;
  while (end < lines.length) {
    const marker = isListStart(lines[end]) ? MARKER.exec(lines[end]) : null;
    if (!marker || marker[2].at(-1) !== mark || /[0-9]/.test(marker[2][0]) !== isOrdered) break;
    end = item(lines, end, marker, depth, node.children);
    const blank = end;
    while (end < lines.length && lines[end].trim() === "") end += 1;
    if (end >= lines.length || !isListStart(lines[end])) {
      end = blank;
      break;
    }
  }
  found.push(node);
  return end;
}

function item(lines, at, marker, depth, items) {
  const indent = marker[1].length + marker[2].length + (marker[3]?.length ?? 1);
  const task = TASK.exec(marker[4] ?? "");
  const inside = [task ? task[2] : (marker[4] ?? "")];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    if (line.trim() === "") {
      const after = lines[end + 1] ?? "";
      if (after.trim() === "" || indentOf(after) < indent) break;
      inside.push("");
    } else if (indentOf(line) >= indent) inside.push(line.slice(indent));
    else if (startsBlock(line) || lines[end - 1].trim() === "") break;
    else inside.push(line.trimStart());
  }
  const children = blocks(inside, depth + 1);
  const isDone = Boolean(task) && task[1] !== " ";
  items.push({ kind: "item", isTask: Boolean(task), isDone, children });
  return end;
}

function indentOf(line) {
  let count = 0;
  while (line[count] === " ") count += 1;
  return count;
}

function startsBlock(line) {
  return (
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    QUOTE.test(line) ||
    isListStart(line)
  );
}

function table(lines, at, found) {
  const head = cells(lines[at]);
  const alignments = cells(lines[at + 1]).map((each) => {
    const [left, right] = [each.startsWith(":"), each.endsWith(":")];
    return left && right ? "center" : right ? "right" : "left";
  });
  const rows = [row(head)];
  let end = at + 2;
  for (; end < lines.length && lines[end].includes("|") && lines[end].trim(); end += 1) {
    rows.push(row(cells(lines[end])));
  }
  found.push({ kind: "table", alignments, children: rows });
  return end;
}

function row(texts) {
  const children = texts.map((text) => ({ kind: "cell", children: parseInline(text) }));
  return { kind: "row", children };
}

function cells(line) {
  const found = [];
  let text = "";
  const whole = line.trim();
  for (let at = whole[0] === "|" ? 1 : 0; at < whole.length; at += 1) {
    if (whole[at] === "\\" && whole[at + 1] === "|") {
      text += "|";
      at += 1;
    } else if (whole[at] === "|") {
      found.push(text.trim());
      text = "";
    } else text += whole[at];
  }
  if (text.trim() !== "" || !whole.endsWith("|")) found.push(text.trim());
  return found.slice(0, CELLS_MAX);
}

function paragraph(lines, at, depth, found) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !startsBlock(lines[end])) end += 1;
  const text = lines.slice(at, end).map((line) => line.trimStart());
  found.push({ kind: "paragraph", children: parseInline(text.join("\n")) });
  return end;
}

// --- inline

const ESCAPED = "\\`*_{}[]()#+-.!|~<>";
const WEB = /^https?:\/\/[^\s<>"`]+/;

export function parseInline(text) {
  return new Inline(text).parse();
}

// One pass over the text. Opening marks wait on a stack; a closing mark takes the text between. A
// mark without a partner is text. Each mark is pushed and popped once.
class Inline {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.root = [];
    this.open = []; // { mark, children, outer }: children collect inside, outer is around them
    this.plain = "";
    this.missing = new Set(); // texts that do not stand in the rest
  }

  get into() {
    return this.open.length ? this.open.at(-1).children : this.root;
  }

  flush() {
    if (this.plain) this.into.push({ kind: "text", text: this.plain });
    this.plain = "";
  }

  push(node) {
    this.flush();
    this.into.push(node);
  }

  parse() {
    while (this.at < this.text.length) this.step();
    while (this.open.length) this.giveUp();
    this.flush();
    return this.root;
  }

  // The mark that opened last has no partner: it becomes text again, with all that came after it.
  giveUp() {
    this.flush();
    const { mark, children } = this.open.pop();
    const into = this.into;
    into.push({ kind: "text", text: mark });
    for (const each of children) into.push(each);
  }

  step() {
    const { text, at } = this;
    const char = text[at];
    if (char === "\\" && ESCAPED.includes(text[at + 1] ?? " ")) return this.add(text[at + 1], 2);
    if (char === "\n") return this.newline();
    if (char === "`") return this.code();
    if (char === "*" || char === "_" || char === "~") return this.mark(char);
    if (char === "!" && text[at + 1] === "[") return this.link(at + 1, "image");
    if (char === "[") return this.link(at, "link");
    if (char === "<") return this.bracketed();
    if (char === "h" && !/\w/.test(text[at - 1] ?? " ")) return this.bare();
    return this.add(char, 1);
  }

  add(text, length) {
    this.plain += text;
    this.at += length;
  }

  newline() {
    const [last, before] = [this.text[this.at - 1], this.text[this.at - 2]];
    const isHard = this.plain !== "" && (last === "\\" || (last === " " && before === " "));
    if (isHard) this.plain = last === " " ? this.plain.trimEnd() : this.plain.slice(0, -1);
    this.at += 1;
    if (isHard) this.push({ kind: "break" });
    else this.plain += "\n";
  }

  code() {
    let length = 1;
    while (this.text[this.at + length] === "`") length += 1;
    const mark = "`".repeat(length);
    const end = this.closing(mark, this.at + length);
    if (end < 0) return this.add(mark, length);
    let inside = this.text.slice(this.at + length, end).replaceAll("\n", " ");
    if (inside.length > 2 && inside[0] === " " && inside.at(-1) === " ")
      inside = inside.slice(1, -1);
    this.push({ kind: "code", text: inside });
    this.at = end + length;
  }

  // Where this text stands next, or -1. Once there is none, there is none further on either.
  find(text, from) {
    if (this.missing.has(text)) return -1;
    const at = this.text.indexOf(text, from);
    if (at < 0) this.missing.add(text);
    return at;
  }

  // The next run of exactly these backquotes.
  closing(mark, from) {
    if (this.missing.has(mark)) return -1;
    let at = from;
    for (;;) {
      at = this.text.indexOf(mark, at);
      if (at < 0) break;
      let end = at + mark.length;
      while (this.text[end] === "`") end += 1;
      if (end - at === mark.length) return at;
      at = end;
    }
    this.missing.add(mark);
    return -1;
  }

  mark(char) {
    let length = 1;
    while (length < 2 && this.text[this.at + length] === char) length += 1;
    const mark = char.repeat(length);
    const before = this.text[this.at - 1] ?? " ";
    const after = this.text[this.at + length] ?? " ";
    if (char === "~" && length < 2) return this.add(mark, 1);
    const insideWord = char === "_" && /\w/.test(before) && /\w/.test(after);
    const opened = this.open.findLastIndex((each) => each.mark === mark);
    if (opened >= 0 && !/\s/.test(before) && !insideWord) return this.close(opened, mark);
    const isFull = this.open.length >= INLINE_DEPTH_MAX;
    if (/\s/.test(after) || insideWord || isFull) return this.add(mark, length);
    this.flush();
    this.open.push({ mark, children: [] });
    this.at += length;
  }

  close(opened, mark) {
    while (this.open.length - 1 > opened) this.giveUp();
    this.flush();
    const { children } = this.open.pop();
    const kind = mark === "~~" ? "deleted" : mark.length === 2 ? "strong" : "emphasis";
    this.into.push({ kind, children });
    this.at += mark.length;
  }

  // [text](url) or ![text](url). The text of a link is plain: no link or image inside it.
  link(from, kind) {
    const end = this.find("](", from);
    const stop = end < 0 ? -1 : this.find(")", end);
    const label = end < 0 ? "" : this.text.slice(from + 1, end);
    const isLabel = end >= 0 && stop >= 0 && label.length <= 1000 && !/[\n[\]]/.test(label);
    const given = isLabel ? this.text.slice(end + 2, stop).trim() : "";
    const url = given.split(/\s/, 1)[0].replace(/^<|>$/g, "");
    if (!isLabel || url.length > 2000) return this.add(this.text[this.at], 1);
    this.push({ kind, url, text: label, source: this.text.slice(this.at, stop + 1) });
    this.at = stop + 1;
  }

  // <https://...>
  bracketed() {
    const end = this.find(">", this.at);
    const url = end < 0 || end - this.at > 2000 ? "" : this.text.slice(this.at + 1, end);
    if (!WEB.test(url) || WEB.exec(url)[0] !== url) return this.add("<", 1);
    this.push({ kind: "link", url, text: url, source: url });
    this.at = end + 1;
  }

  bare() {
    if (!this.text.startsWith("http", this.at)) return this.add("h", 1);
    const found = WEB.exec(this.text.slice(this.at, this.at + 2000));
    if (!found) return this.add("h", 1);
    const url = found[0].replace(/[.,;:!?)'\]}*_~]+$/, "");
    this.push({ kind: "link", url, text: url, source: url });
    this.at += url.length;
  }
}
