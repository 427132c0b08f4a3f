// A unified diff from a prompt's display, as rows for the screen. Pure.
//
// Only lines behind a bar belong to the call; the line before them is Holdfast's own. A diff is
// recognised by Holdfast's line "change:" and its two file lines, so content can't pose as one.

const LABEL = "change:";
const HUNK = /^@@ -([0-9]+)(?:,[0-9]+)? \+([0-9]+)(?:,[0-9]+)? @@/;

// Return { before, hunks, added, removed } or null. `before` is the display up to the diff.
export function diffIn(display) {
  const lines = display.split("\n");
  const at = lines.indexOf(LABEL);
  if (at < 0) return null;
  const bars = lines.slice(at + 1);
  if (bars.length < 3 || !bars.every((line) => line.startsWith("| "))) return null;
  const body = bars.map((line) => line.slice(2));
  if (!body[0].startsWith("--- ") || !body[1].startsWith("+++ ")) return null;
  const hunks = [];
  let [added, removed] = [0, 0];
  for (const line of body.slice(2)) {
    const hunk = HUNK.exec(line);
    if (hunk) hunks.push({ head: line, rows: [], left: Number(hunk[1]), right: Number(hunk[2]) });
    else if (!hunks.length || !" +-\\".includes(line[0] ?? "x")) return null;
    else hunks.at(-1).rows.push(line);
    if (!hunk && line[0] === "+") added += 1;
    if (!hunk && line[0] === "-") removed += 1;
  }
  const paired = hunks.map((hunk) => ({ head: hunk.head, rows: pairs(hunk) }));
  return { before: lines.slice(0, at).join("\n"), hunks: paired, added, removed };
}

// Rows of two sides: { left: { number, text } | null, right: ... , kind }. Removed lines stand
// beside the added lines that follow them.
function pairs({ rows, left, right }) {
  const found = [];
  let removed = [];
  const flush = () => {
    for (const each of removed) found.push({ kind: "removed", left: each, right: null });
    removed = [];
  };
  let [leftAt, rightAt] = [left, right];
  for (const row of rows) {
    const text = row.slice(1);
    if (row[0] === "-") removed.push({ number: leftAt++, text });
    else if (row[0] === "+") {
      const before = removed.shift() ?? null;
      const kind = before ? "changed" : "added";
      found.push({ kind, left: before, right: { number: rightAt++, text } });
    } else {
      flush();
      if (row[0] === "\\") found.push({ kind: "note", left: { text }, right: { text } });
      else {
        const same = { left: { number: leftAt++, text }, right: { number: rightAt++, text } };
        found.push({ kind: "same", ...same });
      }
    }
  }
  flush();
  return found;
}

// The part that differs between two lines: [start, end of the left, end of the right].
export function changedPart(left, right) {
  let start = 0;
  const most = Math.min(left.length, right.length);
  while (start < most && left[start] === right[start]) start += 1;
  let back = 0;
  while (back < most - start && left.at(-1 - back) === right.at(-1 - back)) back += 1;
  return [start, left.length - back, right.length - back];
}
