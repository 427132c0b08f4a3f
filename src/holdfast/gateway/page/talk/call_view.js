// One call in the conversation: the command or the change first, its state, its prompt while it
// waits, and its result on the same card.

import { get, post } from "../core/api.js";
import { arrange, h, say } from "../core/dom.js";
import { BRIEF_CHARS, CALLS, inBrief, span, told } from "../core/words.js";

const TONES = {
  ok: "good",
  running: "live",
  waiting: "wait",
  approved: "good",
  error: "bad",
  denied: "bad",
  in_doubt: "bad",
  voided: "bad",
  expired: "bad",
  timed_out: "bad",
  unattended: "bad",
};
// How a prompt ended without a run. The state says all of it, so there is no result to show.
const NOT_RUN = new Set(["denied", "superseded", "cancelled", "expired"]);
const SHORT_LINES = 12; // a result of so many lines is open at once
const SHORT_CHARS = 1200;
const JOB_LOOK_MS = 2000;

export class CallView {
  constructor(talk, id) {
    this.talk = talk;
    this.node = h("div", { data: { call: id } });
    this.text = h("pre", { tabindex: "0" });
    this.label = h("summary", null, "Result");
    this.output = h("details", { class: "output" }, this.label, this.text);
    this.jobLine = h("p", { class: "job-line" });
  }

  draw(turn, call) {
    const card = this.talk.cardOf(turn, call);
    const isAsking = call.state === "waiting" && call.asked;
    const shown = this.showOutput(call);
    const { outcome, state, tone } = stateOf(call);
    this.node.className = `call ${tone}`;
    const delegate =
      call.delegate &&
      h(
        "p",
        { class: "dim" },
        "handed to ",
        h("a", { href: `#/s/${call.delegate}` }, call.delegate),
      );
    return arrange(
      this.node,
      !isAsking && this.head(call, outcome, state, tone),
      !isAsking && this.whole(call),
      delegate,
      this.job(turn, call),
      shown && this.output,
      isAsking && card?.node,
    );
  }

  head(call, outcome, state, tone) {
    const took = call.job ? null : tookOf(call, outcome);
    const by = deciderWords(call);
    const why = call.why ? `: “${call.why}”` : "";
    const brief = inBrief(call.arguments);
    return h(
      "div",
      { class: "call-head" },
      brief && h("code", { class: "args" }, brief),
      h("code", { class: "tool" }, call.tool),
      h("span", { class: `chip-state ${tone}` }, `${state}${took ? ` in ${took}` : ""}${by}${why}`),
    );
  }

  // Every value of a call whose line above is cut, or leaves values out.
  whole(call) {
    const brief = inBrief(call.arguments);
    const full = valuesOf(call.arguments);
    if (full === brief && full.length < BRIEF_CHARS) return null;
    if (!this.values) {
      this.values = h("pre", { tabindex: "0" });
      this.call = h("details", { class: "whole" }, h("summary", null, "Whole call"), this.values);
    }
    if (this.values.textContent !== full) this.values.textContent = full;
    return this.call;
  }

  showOutput(call) {
    if (call.asked && NOT_RUN.has(call.state)) return false;
    // A job's first result is for the model: it says how to ask for the job's state.
    const shown = call.job ? call.job.text : call.result || call.output;
    if (!shown) return false;
    const isLive = !call.job && !call.result;
    this.label.textContent = isLive ? "Output so far" : "Result";
    if (this.text.textContent !== shown) {
      this.text.textContent = shown;
      if (isLive) this.followOutput();
      else this.openResult(call, shown);
    }
    return true;
  }

  // The output of a running call is open, at its end, until the reader closes it.
  followOutput() {
    if (!this.wasLive) this.output.open = true;
    this.wasLive = true;
    this.text.scrollTop = this.text.scrollHeight;
  }

  openResult(call, shown) {
    if (this.wasOpened || !call.result || !(call.asked || this.wasLive)) return;
    this.wasOpened = true;
    this.output.open = shown.length <= SHORT_CHARS && shown.split("\n").length <= SHORT_LINES;
  }

  // A job that runs: how long, its last line of output, and a way to end it.
  job(turn, call) {
    if (!call.job || call.job.outcome || call.state !== "ok") {
      this.unwatch();
      return null;
    }
    if (!this.watching) {
      this.watching = setInterval(() => this.lookAtJob(call.job.id), JOB_LOOK_MS);
      setTimeout(() => this.lookAtJob(call.job.id)); // after this drawing
    }
    const last = this.lastOutput ?? "";
    const since = h(
      "span",
      { class: "elapsed" },
      `running for ${span(Date.now() - call.job.startedAt)}`,
    );
    this.cancel ??= h(
      "button",
      { type: "button", class: "button small", on: { click: () => this.stopJob(call) } },
      "Cancel the job",
    );
    const mayStop = this.talk.mayStop(turn, turn.boundary === this.talk.app.me.boundary);
    const isStopping = Boolean(call.job.cancelledBy);
    return arrange(
      this.jobLine,
      since,
      last && h("code", { class: "last-output" }, last.slice(0, 160)),
      isStopping ? h("span", { class: "dim" }, "stopping") : mayStop && this.cancel,
    );
  }

  // A job writes into a file of its own, so no pieces of its output come over the line.
  async lookAtJob(id) {
    if (this.talk.isClosed || !this.node.isConnected) {
      this.unwatch();
      return;
    }
    if (document.hidden) return;
    const found = await get(`/v1/jobs/${id}`).catch(() => null);
    this.lastOutput = found?.last_output ?? this.lastOutput;
    this.talk.drawSoon();
  }

  unwatch() {
    clearInterval(this.watching);
    this.watching = null;
  }

  async stopJob(call) {
    try {
      await post(`/v1/jobs/${call.job.id}/cancel`);
      say("The job was asked to stop.", { seen: true });
    } catch (error) {
      this.talk.composer.fail(told(error));
    }
  }
}

// The one value that was given, where the line above shows it; else every value, as JSON.
function valuesOf(given) {
  let known;
  try {
    known = JSON.parse(given);
  } catch {
    return given;
  }
  const usual = { cwd: ".", timeout_seconds: null, background: false, network: false };
  const told = Object.entries(known ?? {}).filter(([name, value]) => usual[name] !== value);
  if (!told.length) return "";
  const [[name, value]] = told;
  const isLine = told.length === 1 && ["command", "path", "question"].includes(name);
  return isLine ? String(value) : JSON.stringify(known, null, 2);
}

function stateOf(call) {
  const goesOn = Boolean(call.job) && call.state === "ok"; // the call's own result: the job began
  const outcome = goesOn ? (call.job.outcome ?? "running") : call.state;
  const isBackground = goesOn && !call.job.outcome;
  const state = isBackground ? "runs in the background" : (CALLS[outcome] ?? outcome);
  return { outcome, state, tone: TONES[outcome] ?? "" };
}

// ", approved by alice"; ", as a standing approval allows"; nothing where policy allowed the call.
function deciderWords({ by, option }) {
  if (!by || by === "policy") return "";
  if (by.startsWith("g-")) return ", as a standing approval allows";
  if (option === "deny") return ` by ${by}`;
  const did = { edit: "changed", answer: "answered" }[option] ?? "approved";
  return `, ${did} by ${by}`;
}

function tookOf(call, outcome) {
  if (!call.startedAt || !call.endedAt || outcome === "in_doubt") return null;
  return span(call.endedAt - call.startedAt);
}
