// Replies, diffs and code: text to trees. Nothing hostile becomes a link or takes long.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";

const page = process.env.HOLDFAST_PAGE;
const { parseMarkdown } = await import(join(page, "text/markdown.js"));
const { safeUrl } = await import(join(page, "text/links.js"));
const { changedPart, diffIn } = await import(join(page, "text/diff.js"));
const { inBrief, jobWords, usageWords, withoutMarks } = await import(join(page, "core/words.js"));
const { highlight } = await import(join(page, "text/highlight.js"));
const corpus = JSON.parse(readFileSync(process.env.HOLDFAST_CORPUS, "utf8"));

const text = (node) =>
  node.text ?? (node.children ?? []).map(text).join(node.kind === "row" ? "|" : "");
const kinds = (source) => parseMarkdown(source).map((node) => node.kind);

test("the blocks of a reply", () => {
  const source = [
    "# Title",
    "words",
    "",
    "- one",
    "  - two",
    "- [x] done",
    "",
    "3. three",
    "",
    "| a | b |",
    "|---|--:|",
    "| 1 | `x|y` |",
    "",
    "> said",
    "",
    "```py",
    "x = 1",
    "```",
    "---",
    "    indented",
  ].join("\n");
  const expected = [
    "heading",
    "paragraph",
    "list",
    "list",
    "table",
    "quote",
    "code",
    "rule",
    "code",
  ];
  assert.deepEqual(kinds(source), expected);
  const [, , list, ordered, table, , code] = parseMarkdown(source);
  assert.equal(list.children[0].children[1].kind, "list");
  assert.deepEqual([list.children[1].isTask, list.children[1].isDone], [true, true]);
  assert.deepEqual([ordered.isOrdered, ordered.start], [true, 3]);
  assert.deepEqual(table.alignments, ["left", "right"]);
  assert.deepEqual([code.language, code.text], ["py", "x = 1"]);
});

test("marks inside a line", () => {
  const [{ children }] = parseMarkdown("a **b _c_** ~~d~~ `e*f` snake_case_name 2 * 3 * 4");
  const found = children.map((node) => node.kind);
  assert.deepEqual(found, ["text", "strong", "text", "deleted", "text", "code", "text"]);
  assert.equal(text({ children }), "a b c d e*f snake_case_name 2 * 3 * 4");
});

test("no word is lost, whatever the marks", () => {
  for (const source of [
    "**open",
    "*a **b* c**",
    "`half",
    "[x](",
    "[x]",
    "~~",
    "a\\*b",
    "![",
    "|a|",
  ]) {
    const letters = (given) => given.replaceAll(/[^a-z]/g, "");
    assert.equal(letters(parseMarkdown(source).map(text).join("")), letters(source), source);
  }
});

test("HTML is text", () => {
  for (const source of corpus) {
    const all = [];
    const walk = (node) => {
      all.push(node);
      (node.children ?? []).forEach(walk);
    };
    parseMarkdown(source).forEach(walk);
    const known =
      "heading paragraph code quote list item table row cell rule text strong emphasis deleted " +
      "link image break";
    for (const node of all) assert.ok(known.split(" ").includes(node.kind), node.kind);
  }
});

test("only addresses that are safe to open are linked", () => {
  const never = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    " javascript:alert(1)",
    "java\nscript:alert(1)",
    "data:text/html,<script>1</script>",
    "vbscript:x",
    "file:///etc/passwd",
    "blob:https://x/y",
    "//evil.example",
    "/v1/grants",
    "#/grants",
    "https://user:pass@evil.example/",
    "https://good.example@evil.example/",
    "",
  ];
  for (const each of never) assert.equal(safeUrl(each), null, each);
  assert.equal(safeUrl("https://a.example/x?y=1"), "https://a.example/x?y=1");
  assert.equal(safeUrl("https://\u0430pple.com/"), "https://xn--pple-43d.com/");
});

const HOSTILE = ["*", "[", "`", "*a ", "**a", "> ", "- ", "_a_", "[a](", "<http://", "![", "~~a"];

test("the time is linear in the text", () => {
  for (const each of [
    ...HOSTILE,
    "`a``b```",
    "a\n",
    "- a\n",
    "|a",
    "https://",
    "# ",
    "\\",
    "1. ",
  ]) {
    // The processor's own time, the best of three: another process may take its share.
    const time = (count) => {
      const source = each.repeat(count);
      const once = () => {
        const start = process.cpuUsage();
        parseMarkdown(source);
        return process.cpuUsage(start).user / 1000;
      };
      return Math.min(once(), once(), once());
    };
    const [small, large] = [time(10_000), time(80_000)];
    // Linear is 8 times, quadratic 64 times.
    assert.ok(large < 24 * Math.max(small, 4), `${JSON.stringify(each)}: ${small} to ${large} ms`);
  }
});

const DISPLAY = [
  "change a file of 14 bytes to 19 bytes, 5 lines",
  "| /work/a.txt",
  "change:",
  "| --- now",
  "| +++ then",
  "| @@ -1,3 +1,4 @@",
  "|  one",
  "| -two",
  "| +TWO",
  "|  three",
  "| +four",
].join("\n");

test("a change is drawn from the display, and its counts are of the lines shown", () => {
  const found = diffIn(DISPLAY);
  assert.deepEqual([found.added, found.removed], [2, 1]);
  assert.deepEqual(
    found.hunks[0].rows.map((row) => [row.kind, row.left?.text, row.right?.text]),
    [
      ["same", "one", "one"],
      ["changed", "two", "TWO"],
      ["same", "three", "three"],
      ["added", undefined, "four"],
    ],
  );
  assert.equal(found.before, "change a file of 14 bytes to 19 bytes, 5 lines\n| /work/a.txt");
});

test("content can't pose as a change", () => {
  assert.equal(diffIn(DISPLAY.replace("change:", "| change:")), null);
  assert.equal(diffIn(`${DISPLAY}\nrun in`), null);
  assert.equal(diffIn(DISPLAY.replace("| +four", "| four")), null);
  assert.equal(diffIn("write a new file\n| change:\n| --- now\n| +++ then"), null);
});

test("the changed part of a line", () => {
  assert.deepEqual(changedPart("let a = 1;", "let a = 22;"), [8, 9, 10]);
  assert.deepEqual(changedPart("aaa", "aa"), [2, 3, 2]);
});

test("coloured code is the same text", () => {
  const sources = ['x = "a" # c', "/* open", "'", '"\\', "fn main() { let x = 0xff; } // done"];
  for (const language of ["py", "js", "rust", "sh", "c", "sql", "unknown"]) {
    for (const source of [...sources, ...corpus]) {
      assert.equal(
        highlight(source, language)
          .map((each) => each.text)
          .join(""),
        source,
      );
    }
  }
});

test("a call in one line, for people", () => {
  assert.equal(inBrief({ command: "ls\n -l", cwd: "." }), "ls -l");
  const values = { service: "api", note: "two words", drain_seconds: 30, tags: ["a"] };
  const expected = 'service=api note="two words" drain_seconds=30 tags=["a"]';
  assert.equal(inBrief(values), expected);
  assert.equal(inBrief(JSON.stringify(values)), expected);
  assert.equal(inBrief({}), "");
  assert.equal(inBrief("not JSON"), "not JSON");
});

test("a cost is never shown as zero", () => {
  const used = (cost) => usageWords({ input: 1200, output: 34, cost });
  assert.equal(used(0), "1,234 tokens");
  assert.equal(used(32), "1,234 tokens · less than $0.0001");
  assert.equal(used(4500), "1,234 tokens · $0.0045");
});

test("a job's end says its time before its doubt", () => {
  assert.equal(jobWords("ok", "12 s"), "finished after 12 s");
  assert.equal(jobWords("in_doubt", "12 s"), "is over after 12 s, and its outcome is in doubt");
});

test("a reply in one line of a list has no marks", () => {
  const reply = "## What I found\n\nThe **api** ran `3` times. See [the book](https://x.org).\n- a_b";
  assert.equal(withoutMarks(reply), "What I found The api ran 3 times. See the book. a_b");
  const table = "Hosts are _full_:\n\n| host | load |\n|------|-----:|\n| api | 0.4 |";
  assert.equal(withoutMarks(table), "Hosts are full: host load api 0.4");
  assert.equal(withoutMarks("run: ls | wc -l"), "run: ls | wc -l");
  for (const each of corpus) assert.ok(withoutMarks(each).length <= each.length);
});
