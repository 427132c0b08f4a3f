// Beside the conversation: each turn as a picture that can be replayed, the details of the session,
// and its reminders.

import { fill, h } from "../core/dom.js";
import { PHASES, TURNS, plural, span, usageWords, when } from "../core/words.js";
import { Replay } from "../story/replay.js";
import { timeline } from "../story/timeline.js";

const TURNS_DRAWN = 30; // pictures; a conversation of years is in the log, not beside it

export class Side {
  constructor(talk) {
    this.talk = talk;
    this.unfolded = new Map(); // turn id -> whether its picture is open, where the reader chose
    this.replays = new Map();
    this.node = h("aside", { class: "side", "aria-label": "The turn and its history" });
    // Where the side has room of its own. Elsewhere it would take the room of the messages.
    this.wide = matchMedia("(min-width: 1000px)");
    this.widened = () => {
      this.place();
      const fold = this.node.querySelector("details");
      if (fold) fold.open = this.wide.matches;
    };
    this.wide.addEventListener("change", this.widened);
  }

  close() {
    this.wide.removeEventListener("change", this.widened);
  }

  // Above the messages where there is one column: Tab goes the way that the eye goes.
  place() {
    const { body } = this.talk;
    if (this.wide.matches) body.append(this.node);
    else body.prepend(this.node);
  }

  get hasJobs() {
    return Boolean(this.talk.facts?.jobs?.length);
  }

  draw() {
    const { talk } = this;
    const held = document.activeElement?.closest?.(".turn-fold > summary")?.dataset.turn;
    const isReplaying = document.activeElement?.classList?.contains("replay-range");
    if (isReplaying) return; // the reader drags; the picture is redrawn by the replay itself
    const { turns, facts } = talk;
    talk.body?.classList.toggle("is-bare", !turns.length && !facts);
    const open = this.node.querySelector("details")?.open ?? this.wide.matches;
    const shown = turns.slice(-TURNS_DRAWN).reverse();
    fill(
      this.node,
      h(
        "details",
        { class: "side-fold", open },
        h("summary", null, "Timeline and details"),
        turns.length ? this.pictures(turns, shown) : null,
        facts && this.details(facts),
      ),
    );
    // Drawn anew every second while something runs: the reader's place by keyboard stays.
    if (!held) return;
    const summaries = [...this.node.querySelectorAll(".turn-fold > summary")];
    summaries.find((each) => each.dataset.turn === held)?.focus({ preventScroll: true });
  }

  pictures(turns, shown) {
    return [
      h("h2", { class: "section" }, "Turns"),
      h(
        "div",
        { class: "turn-folds" },
        shown.map((turn, index) => this.picture(turn, index === 0)),
      ),
      turns.length > shown.length &&
        h("p", { class: "note" }, `and ${turns.length - shown.length} before these`),
    ];
  }

  // The last turn's picture is open until the reader folds it; earlier ones open at a press.
  picture(turn, isLast) {
    const open = this.unfolded.get(turn.id) ?? isLast;
    const asked = turn.items.find((item) => item.kind === "asked");
    const isReport = turn.items.some((item) => item.kind === "report");
    const doubts = doubtsOf(turn);
    const ended = turn.outcome && (TURNS[turn.outcome] ?? turn.outcome);
    const now = turn.waiting ? "waits" : turn.open ? turn.open.label : "open";
    const inDoubt = doubts ? `, ${plural(doubts, "call", "calls")} in doubt` : "";
    const state = `${ended || now}${inDoubt}`;
    const fold = (event) => {
      event.preventDefault();
      this.unfolded.set(turn.id, !open);
      this.draw();
    };
    // A key counts when it goes down, once: this may be drawn anew before it comes up again.
    const key = (event) => {
      if (event.key !== " " && event.key !== "Enter") return;
      if (event.repeat) event.preventDefault();
      else fold(event);
    };
    const tone = doubts ? "failed" : turn.outcome || (turn.waiting ? "waits" : "open");
    const summary = h(
      "summary",
      { data: { turn: turn.id }, on: { click: fold, keydown: key } },
      h("span", { class: "turn-name" }, asked ? asked.text : isReport ? "a job ended" : turn.id),
      h("span", { class: `turn-state o-${tone}` }, state),
      h("time", { class: "dim" }, turn.startedAt ? when(turn.startedAt) : ""),
    );
    return h("details", { class: "turn-fold", open }, summary, open && this.inside(turn));
  }

  inside(turn) {
    const usage = usageWords(turn.usage);
    if (!turn.outcome) return timeline(turn);
    if (!this.replays.has(turn.id)) this.replays.set(turn.id, new Replay(this.talk, turn.id));
    const replay = this.replays.get(turn.id);
    return [replay.draw(turn), usage && h("p", { class: "dim usage" }, usage)];
  }

  details(facts) {
    const fact = (name, value) =>
      value === null || value === undefined
        ? null
        : h("div", { class: "fact" }, h("dt", null, name), h("dd", null, value));
    const { usage } = facts;
    const spent = usageWords({
      input: usage?.input_tokens ?? 0,
      output: usage?.output_tokens ?? 0,
      cost: usage?.cost_microusd ?? 0,
    });
    const verified = facts.sealed
      ? facts.seq
        ? `up to record ${facts.seq}`
        : "no record"
      : `all ${facts.seq} records, when it was last opened`;
    return [
      h("h2", { class: "section" }, "Details"),
      facts.sealed && this.sealed(facts.sealed),
      h(
        "dl",
        { class: "facts" },
        fact("State", PHASES[facts.phase] ?? facts.phase),
        fact("Verified", verified),
        fact("Turns", facts.turns),
        fact("Used", spent),
        facts.queued ? fact("Queued", facts.queued) : null,
        facts.jobs?.length ? fact("Jobs", facts.jobs.map(jobLine)) : null,
        fact("Agent", facts.agent),
        fact("Model", facts.model),
      ),
      facts.reminders?.length ? this.reminders(facts.reminders) : null,
    ];
  }

  sealed({ detail }) {
    const command = h("code", null, `holdfast sessions unseal ${this.talk.session}`);
    return h(
      "div",
      { class: "sealed" },
      h("p", null, h("b", null, "Sealed. "), detail),
      h("p", { class: "dim" }, "You can read it. Nothing is written. To go on: ", command),
    );
  }

  reminders(reminders) {
    const line = (each) => {
      const asks = each.may_prompt ? ", may ask for approval" : "";
      const about = `${each.when}, set by ${each.by}${asks}`;
      const next = h("b", null, each.state === "waiting" ? when(each.next_at) : "can't fire");
      return h("li", null, next, ` ${each.text} `, h("span", { class: "dim" }, about));
    };
    return [
      h("h2", { class: "section" }, "Reminders"),
      h("ul", { class: "reminders" }, reminders.map(line)),
    ];
  }
}

// A turn goes on after a call whose effect is unknown. Its line says so, whatever came after.
function doubtsOf(turn) {
  const isDoubtful = (call) => call.state === "in_doubt" || call.job?.outcome === "in_doubt";
  return [...turn.calls.values()].filter(isDoubtful).length;
}

function jobLine(job) {
  const since = span(Date.now() - new Date(job.submitted_at).getTime());
  return h("div", null, `${job.tool}, for ${since}`);
}
