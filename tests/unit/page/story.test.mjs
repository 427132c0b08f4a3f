// The page's fold of a session, against recorded journals and the server's own fold of them.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";

const page = process.env.HOLDFAST_PAGE;
const golden = process.env.HOLDFAST_GOLDEN;
const { Story, storyOf } = await import(join(page, "story/story.js"));
const words = (await import(join(page, "core/state_words.js"))).default;

function journal(name) {
  const lines = readFileSync(join(golden, name), "utf8").trim().split("\n").map(JSON.parse);
  return lines.map((line) => ({ ...line, body: JSON.parse(line.body) }));
}

const journals = readdirSync(golden).filter((name) => /^session_v\d+.*\.jsonl$/.test(name));

test("there are recorded journals to fold", () => assert.ok(journals.length >= 5));

for (const name of journals) {
  test(`${name}: every open prompt of the server's fold waits in the story, after each record`, () => {
    const story = new Story();
    for (const record of journal(name)) {
      story.take(record);
      const calls = [...story.turns.values()].flatMap((turn) => [...turn.calls.values()]);
      const waiting = calls.filter((call) => call.state === "waiting").map((call) => call.approval);
      const open = record.fold.prompts.map((each) => (typeof each === "string" ? each : each.id));
      for (const id of waiting)
        assert.ok(JSON.stringify(open).includes(id), `${record.seq}: ${id}`);
    }
  });

  test(`${name}: every turn that ended has its outcome, and nothing of it still runs`, () => {
    const records = journal(name);
    const story = storyOf(records);
    for (const { type, body } of records) {
      if (type !== "turn_ended") continue;
      const turn = story.turns.get(body.turn);
      if (!turn) continue; // its input joined another turn
      assert.equal(turn.outcome, body.outcome);
      assert.equal(turn.open, null);
      assert.equal(turn.streaming, null);
    }
  });

  test(`${name}: every state of a call has words that the command line shares`, () => {
    const story = new Story();
    for (const record of journal(name)) {
      story.take(record);
      for (const turn of story.turns.values()) {
        for (const call of turn.calls.values()) assert.ok(words.calls[call.state], call.state);
        if (turn.outcome) assert.ok(words.turns[turn.outcome], turn.outcome);
      }
    }
  });

  test(`${name}: the same records give the same story`, () => {
    const plain = (story) => JSON.stringify([...story.turns.values()].map((turn) => turn.items));
    assert.equal(plain(storyOf(journal(name))), plain(storyOf(journal(name))));
  });
}

const started = [
  { seq: 1, at: 1, type: "input_accepted", body: { turn: "t1", input: "i1", text: "hi" } },
  { seq: 2, at: 2, type: "turn_started", body: { turn: "t1", inputs: ["i1"] } },
  { seq: 3, at: 3, type: "model_call_started", body: { turn: "t1", number: 1 } },
];
const piece = (text, offset) => ({ turn: "t1", kind: "text", text, offset });
const said = (story) => story.turns.get("t1").items.filter((item) => item.kind === "said");

test("a reply in pieces keeps its beginning, whatever comes twice", () => {
  const story = storyOf(started);
  for (const each of [
    piece("one ", 0),
    piece("two ", 4),
    piece("one two ", 0),
    piece("three", 8),
  ]) {
    story.delta(each);
  }
  assert.deepEqual(
    said(story).map((item) => [item.text, item.missing]),
    [["one two three", 0]],
  );
});

test("a piece after a gap says that something is missing", () => {
  const story = storyOf(started);
  story.delta(piece("end", 10));
  assert.deepEqual(
    said(story).map((item) => [item.text, item.missing]),
    [["end", 10]],
  );
});

test("the record of a reply replaces its pieces, and late pieces change nothing", () => {
  const story = storyOf(started);
  story.delta(piece("half", 0));
  story.take({ seq: 4, at: 4, type: "model_answered", body: { turn: "t1", text: "half done" } });
  story.delta(piece(" done", 4));
  assert.deepEqual(
    said(story).map((item) => item.text),
    ["half done"],
  );
});

test("a stopped reply keeps its pieces", () => {
  const story = storyOf(started);
  story.delta(piece("as far as", 0));
  story.take({ seq: 4, at: 4, type: "turn_cancelled", body: { turn: "t1", by: "alice" } });
  story.take({ seq: 5, at: 5, type: "turn_ended", body: { turn: "t1", outcome: "cancelled" } });
  assert.deepEqual(
    said(story).map((item) => [item.text, item.isPartial]),
    [["as far as", true]],
  );
});

test("output that comes twice is shown once", () => {
  const story = storyOf(started);
  const calls = [{ call: "c1", tool: "shell", arguments: "{}" }];
  story.take({ seq: 4, at: 4, type: "model_answered", body: { turn: "t1", text: "", calls } });
  const output = (text, offset) => ({ turn: "t1", kind: "output", call: "c1", text, offset });
  for (const each of [output("ab", 0), output("cd", 2), output("cd", 2), output("ef", 4)]) {
    story.delta(each);
  }
  assert.equal(story.turns.get("t1").calls.get("c1").output, "abcdef");
});

test("a job's end says for people which call it was, how it ended, and its output", () => {
  const story = storyOf(journal("session_v1_jobs.jsonl"));
  const reports = [...story.turns.values()]
    .flatMap((turn) => turn.items)
    .filter((item) => item.kind === "report");
  assert.deepEqual(
    reports.map(({ text, outcome, took }) => ({ text, outcome, took })),
    [
      { text: "a metre deep", outcome: "ok", took: reports[0].took },
      { text: "In doubt: it was stopped while it ran.", outcome: "in_doubt", took: reports[1].took },
    ],
  );
  for (const { call, took } of reports) {
    assert.equal(call.tool, "dig");
    assert.ok(took >= 0);
    assert.ok(words.jobs[call.job.outcome]);
  }
});

test("a stopped reply keeps its text before the line that says who stopped it", () => {
  const story = storyOf(journal("session_v1_titles.jsonl"));
  const { items } = [...story.turns.values()].at(-1);
  const kinds = items.slice(-2).map((item) => [item.kind, item.text, Boolean(item.isPartial)]);
  assert.deepEqual(kinds[0], ["said", "First I look", true]);
  assert.equal(kinds[1][0], "ended");
});

test("a row of failures of the model is one note that counts", () => {
  const failed = (seq) => ({
    seq,
    at: seq,
    type: "model_call_failed",
    body: { turn: "t1", number: seq, kind: "server", final: false, retry_at: seq + 1000 },
  });
  const story = storyOf([failed(1), failed(2), failed(3)]);
  const notes = story.turns.get("t1").items.filter((item) => item.kind === "note");
  assert.equal(notes.length, 1);
  assert.match(
    notes[0].text,
    /^The model did not answer, 3 times in a row: its server failed\. The next try is at /,
  );
});

test("a try that has come is no longer announced", () => {
  const body = { turn: "t1", number: 1, kind: "timeout", final: false, retry_at: 1002 };
  const records = [
    { seq: 1, at: 1, type: "model_call_failed", body },
    { seq: 2, at: 1002, type: "model_call_started", body: { turn: "t1", number: 2 } },
  ];
  const { items } = storyOf(records).turns.get("t1");
  assert.deepEqual(
    items.map((item) => item.text),
    ["The model did not answer: it took too long. It was asked again."],
  );
});

test("prompts that wait side by side are one stretch of time", () => {
  const asked = (seq, call, people) => ({
    seq,
    at: seq,
    type: "approval_requested",
    body: { turn: "t1", call, approval: `a-${call}`, may_answer: people, arguments: "{}" },
  });
  const closed = { turn: "t1", call: "c1", approval: "a-c1", closed_as: "expired" };
  const records = [
    asked(1, "c1", ["alice"]),
    asked(2, "c2", ["alice", "bob"]),
    { seq: 3, at: 3, type: "approval_closed", body: closed },
    { seq: 4, at: 4, type: "approval_closed", body: { ...closed, call: "c2", approval: "a-c2" } },
  ];
  const { marks } = storyOf(records).turns.get("t1");
  assert.deepEqual(
    marks.map(({ kind, label, from, to }) => [kind, label, from, to]),
    [["waiting", "2 prompts wait for alice or bob", 1, 4]],
  );
});

test("a row of failures of the model is one mark in the picture", () => {
  const records = [1, 3, 5].flatMap((seq) => [
    { seq, at: seq, type: "model_call_started", body: { turn: "t1", number: seq } },
    {
      seq: seq + 1,
      at: seq + 1,
      type: "model_call_failed",
      body: { turn: "t1", number: seq, kind: "server", final: false, retry_at: seq + 1000 },
    },
  ]);
  const { marks } = storyOf(records).turns.get("t1");
  const labels = marks.map((mark) => mark.label);
  assert.deepEqual(labels, ["thinking", "the model failed 3 times"]);
});

test("a turn that a person stopped has one mark for that", () => {
  const story = storyOf(journal("session_v1_titles.jsonl"));
  const labels = [...story.turns.values()].at(-1).marks.map((mark) => mark.label);
  assert.equal(labels.filter((label) => /^stopped by /.test(label)).length, 1);
  assert.ok(!labels.includes("cancelled"), labels.join("; "));
});
