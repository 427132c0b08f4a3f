// One conversation: what was said, what was called, what waits, live; beside it the turn as a picture, and whether its history can be believed.

import { get, newId, post } from "./api.js";
import { arrange, fill, h, icon, say } from "./dom.js";
import { Follow } from "./follow.js";
import { PromptCard } from "./prompt.js";
import { Story } from "./story.js";
import { timeline } from "./timeline.js";
import { PHASES, answering, closing, inBrief, plural, span, told, when } from "./words.js";

const STATES = {
  proposed: "weighed", allowed: "allowed", waiting: "waits for an answer", approved: "approved", edited: "edited", running: "running", ok: "ran", error: "failed",
  denied: "denied", unattended: "denied: nobody could be asked", superseded: "replaced", cancelled: "cancelled", voided: "voided", timed_out: "ran out of time",
  in_doubt: "in doubt", expired: "expired",
};
const LONG_CHARS = 6000;
const LONG_LINES = 60;
const MOVED_PX = 4;
const TURNS_DRAWN = 30;  // pictures; a conversation of years is in the log, not beside it
const TRY = ["what time is it", "list files", "run: uname -a", "ask me which region to use"];

export class Talk {
  constructor(app, session) {
    this.app = app;
    this.session = session;
    this.story = new Story();
    this.cards = new Map();
    this.forget();
    this.facts = null;
    this.line = "connecting";
    this.pinned = true;
    this.unfolded = new Map();  // turn id -> whether its picture is open, where somebody said so
    this.wide = matchMedia("(min-width: 1000px)");  // where the side has room of its own; elsewhere it would take the words' room, until somebody asks for it
    this.widened = () => { const fold = this.side.querySelector("details"); if (fold) fold.open = this.wide.matches; };
    this.wide.addEventListener("change", this.widened);
    this.node = h("div", { class: "view talk" });
    this.frame();
    this.follow();
    this.look();
    this.tick = setInterval(() => { if ([...this.story.turns.values()].some((turn) => turn.open)) this.drawSide(); }, 1000);
  }

  close() { this.stream?.close(); clearInterval(this.tick); this.wide.removeEventListener("change", this.widened); }

  // What is drawn stays where it is while more is drawn around it: a turn, a call with its prompt and what came of it, and whatever never changes.
  forget() { this.sections = new Map(); this.places = new Map(); this.drawn = new WeakMap(); }

  follow() {
    this.stream?.close();
    this.stream = new Follow(`/v1/sessions/${this.session}/events`, (name, data) => this.heard(name, data), (line) => { this.line = line; this.drawLine(); this.drawSoon(); });
  }

  async look() {
    const number = this.looks = (this.looks ?? 0) + 1;
    let facts = this.facts;
    try {
      facts = await get(`/v1/sessions/${this.session}`);
    } catch (error) {
      if (error.status === 404) facts = null;
    }
    if (number < (this.looked ?? 0)) return;  // one that was asked for later has come before it
    this.looked = number;
    this.facts = facts;
    this.drawLine();
    this.drawComposer();
    this.drawSide();
  }

  heard(name, data) {
    if (name === "record") {
      this.hasHeard = true;
      this.story.take(data);
      if (data.type === "approval_requested" || data.type === "approval_closed" || data.type === "approval_answered") this.app.poke();
      if (data.type === "approval_closed" || data.type === "approval_answered") this.overtaken(data.body);
      if (data.type === "turn_ended") say(data.body.reply ? `Answered: ${data.body.reply.slice(0, 300)}` : `The turn ended: ${data.body.outcome}`);
      this.lookSoon();
    } else if (name === "delta") this.story.delta(data);
    else if (name === "standing") this.standing(data.approvals);
    else if (name === "sealed") { say("This session is sealed.", { urgent: true }); this.look(); this.app.poke(); }
    else if (name === "restart") this.anew();
    else if (name === "end" && data.reason === "gone") this.app.poke();
    if (name !== "delta") this.sideDue = true;  // pieces come by the frame, and change nothing there but a time that ticks by itself
    this.drawSoon();
  }

  // Another session, of the same name.
  anew() { this.hasHeard = false; this.story = new Story(); this.cards.clear(); this.forget(); }

  // It was there, and is not any more.
  get isGone() { return this.line === "absent" && this.story.turns.size > 0; }

  lookSoon() {
    clearTimeout(this.looking);
    this.looking = setTimeout(() => this.look(), 150);
  }

  drawSoon() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => { this.drawing = false; this.draw(); });
  }

  standing(approvals) {
    for (const prompt of approvals) this.card(prompt);
    if (approvals.length) say(`${plural(approvals.length, "prompt still stands", "prompts still stand")} here.`);
  }

  card(prompt) {
    let card = this.cards.get(prompt.id);
    if (!card) {
      card = new PromptCard(prompt, this.app.me, { link: false, onDone: () => this.app.poke() });
      card.show(true);
      this.cards.set(prompt.id, card);
    }
    return card;
  }

  overtaken(body) {
    const card = this.cards.get(body.approval);
    if (card) card.close(body.by ? answering(body.by, body.option) : closing(body.closed_as, body.reason));
  }

  // The journalled prompt, as the list of prompts would say it.
  promptOf(turn, call) {
    const asked = call.asked;
    let given = asked.arguments;
    try { given = JSON.parse(asked.arguments); } catch { /* shown as the text it is */ }
    return {
      id: asked.approval, session: this.session, turn: turn.id, tool: asked.tool, arguments: given, display: asked.display, digest: asked.digest,
      options: asked.options.map((each) => each.option), covers: Object.fromEntries(asked.options.map((each) => [each.option, each.covers])),
      may_answer: asked.may_answer, requester: turn.requester, channel: turn.channel, quoted_speakers: turn.quoted, boundary: turn.circle, requested_at: new Date(asked.at).toISOString(),
      expires_at: new Date(asked.expires_at).toISOString(), kind: asked.kind || "approval", reason: asked.reason || "", dangerous: Boolean(asked.dangerous),
    };
  }

  frame() {
    this.heading = h("h1", { tabindex: "-1" }, this.session);
    this.badge = h("span", { class: "integrity" });
    this.live = h("span", { class: "line", role: "status" });
    this.log = h("div", { class: "log", role: "log", "aria-label": "Conversation", tabindex: "0" });
    this.log.addEventListener("scroll", () => { if (this.log.scrollTop !== this.placed) this.pinned = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60; });
    this.read = new WeakSet();  // prompts that were shown from their top
    this.text = h("textarea", {
      id: "say", rows: 1, placeholder: "Say something", "aria-label": "Your message",
      on: { keydown: (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.send(); } }, input: () => this.grow() },
    });
    this.button = h("button", { type: "button", class: "button main", "aria-label": "Send", on: { click: () => this.send() } }, icon("send"), h("span", null, "Send"));
    this.stop = h("button", { type: "button", class: "button", hidden: true, "aria-label": "Stop this turn", on: { click: () => this.cancel() } }, "Stop");
    this.wrong = h("p", { class: "status bad", role: "alert" });
    this.side = h("aside", { class: "side", "aria-label": "The turn and its history" });
    this.composer = h("div", { class: "composer" }, this.wrong, h("div", { class: "row" }, this.text, this.stop, this.button));
    this.body = h("div", { class: "talk-body" }, h("div", { class: "talk-main" }, this.log, this.composer), this.side);
    fill(this.node,
      h("header", { class: "view-head talk-head" }, h("a", { class: "icon-button back", href: "#/talk", "aria-label": "All conversations" }, icon("back")), this.heading, this.badge, this.live),
      this.body);
    this.draw();
  }

  grow() { this.text.style.height = "auto"; this.text.style.height = `${Math.min(160, this.text.scrollHeight)}px`; }

  draw() {
    const turns = [...this.story.turns.values()];
    const stood = this.standings();
    arrange(this.log, turns.length ? turns.map((turn) => this.turn(turn)) : this.blank(), this.story.notes.map((note) => this.item(null, note)), this.isGone && (this.deleted ??= h("p", { class: "note ended" }, "This session was deleted. What you see is left in this tab alone; a message begins a new one of that name.")));
    this.stop.hidden = this.isGone || !this.running() || !this.app.me.scopes.some((scope) => scope === "send" || scope === "admin");
    this.drawComposer();
    if (this.sideDue ?? true) { this.sideDue = false; this.drawSide(); }
    if (this.pinned) this.toEnd();
    for (const [card, top] of stood) if (Math.abs(card.node.getBoundingClientRect().top - top) > MOVED_PX) card.moved();
  }

  // The end; but a prompt that is longer than the screen is shown from its top first: nobody should come to its buttons without having passed what would run.
  toEnd() {
    const { log } = this;
    const card = [...this.cards.values()].find((each) => each.node.isConnected && !each.over && !this.read.has(each));
    const call = card?.node.closest(".call");
    log.scrollTop = log.scrollHeight;
    if (!call) return;
    this.read.add(card);
    const above = log.getBoundingClientRect().top + 12 - call.getBoundingClientRect().top;
    if (above <= 0) return;
    log.scrollTop -= above;
    this.placed = log.scrollTop;
    this.pinned = false;
  }

  // Why nothing can be said here, if nothing can.
  get mute() {
    if (!this.app.me.scopes.includes("send")) return "Your token may look, but say nothing";
    if (this.facts?.sealed) return "Sealed: nothing can be said here until its owner decides";
    if (this.facts?.parent) return "An agent's own session: talk to the one that it works for";
    return null;
  }

  drawComposer() {
    const { mute } = this;
    this.text.disabled = mute !== null;
    this.text.placeholder = mute ?? "Say something";
    this.button.disabled = this.text.disabled;
    if (this.facts?.sealed) this.stop.hidden = true;
  }

  standings() { return [...this.cards.values()].filter((card) => card.node.isConnected).map((card) => [card, card.node.getBoundingClientRect().top]); }

  // The turn that can be stopped: one that runs or is about to, before one that waits for somebody.
  running() {
    const open = [...this.story.turns.values()].filter((turn) => !turn.outcome);
    return open.find((turn) => !turn.waiting) ?? open[0];
  }

  // Nothing to show: because there is nothing, or because nobody has said yet what there is.
  blank() {
    if (this.line === "absent") return this.nothing ??= this.empty();
    this.opening ??= h("p", { class: "loading", role: "status" });
    const words = this.hasHeard ? "Nothing that you may read was said here." : this.line === "away" ? "This conversation is shown once the server answers." : "Opening the conversation";
    if (this.opening.textContent !== words) this.opening.textContent = words;
    return this.opening;
  }

  empty() {
    return h("div", { class: "empty" }, h("p", null, "A new conversation. What you say is kept before anything is done about it."),
      h("ul", { class: "tries" }, TRY.map((text) => h("li", null, h("button", { type: "button", class: "chip", on: { click: () => { this.text.value = text; this.grow(); this.text.focus(); } } }, text)))));
  }

  turn(turn) {
    let section = this.sections.get(turn.id);
    if (!section) this.sections.set(turn.id, section = h("section", { data: { turn: turn.id }, "aria-label": `Turn ${turn.id}` }));
    section.className = `turn${turn.outcome ? "" : " is-open"}`;
    return arrange(section, turn.items.map((item) => this.item(turn, item)),
      !turn.outcome && !turn.streaming && turn.open?.kind === "thinking" && h("p", { class: "thinking" }, h("i"), h("i"), h("i"), h("span", { class: "unseen" }, "thinking")));
  }

  item(turn, item) {
    if (item.kind === "call") return this.call(turn, item);
    if (item.live) return this.words(item);
    if (!this.drawn.has(item)) this.drawn.set(item, this.words(item));
    return this.drawn.get(item);
  }

  words(item) {
    switch (item.kind) {
      case "asked": return h("div", { class: `msg asked${item.who === this.app.me.person ? " own" : ""}` }, h("p", { class: "who" }, item.who || "nobody known", " ", h("time", null, when(item.at))), text(item),
        item.quotes.map((quote) => h("blockquote", null, h("b", null, quote.speaker), ": ", quote.text)));
      case "said": return h("div", { class: `msg said${item.live ? " is-live" : ""}` }, h("p", { class: "who" }, "agent", item.at ? [" ", h("time", null, when(item.at))] : null), text(item));
      case "report": return h("div", { class: "msg report" }, h("p", { class: "who" }, "a job ", h("time", null, when(item.at))), h("pre", { class: "text", tabindex: "0" }, item.text));
      case "ended": return h("p", { class: "note ended" }, `${item.outcome}: ${item.text}`, item.hint && h("span", { class: "dim" }, ` ${item.hint}`));
      default: return h("p", { class: "note" }, item.text);
    }
  }

  call(turn, call) {
    const goesOn = Boolean(call.job) && call.state === "ok";  // a job: the call's own result says only that it began
    const outcome = goesOn ? call.job.outcome ?? "running" : call.state;
    const state = goesOn && !call.job.outcome ? "goes on in the background" : STATES[outcome] || outcome;
    const tone = { ok: "good", running: "live", waiting: "wait", approved: "good", error: "bad", denied: "bad", in_doubt: "bad", voided: "bad", expired: "bad", timed_out: "bad", unattended: "bad" }[outcome] || "";
    const endedAt = goesOn ? call.job.endedAt : call.endedAt;
    const took = call.startedAt && endedAt && outcome !== "in_doubt" ? ` in ${span(endedAt - call.startedAt)}` : "";
    const by = call.by && call.by !== "policy" ? ` · ${call.by}` : "";
    const shown = call.result ?? call.output;
    const key = call.call;
    const asks = call.state === "waiting" && call.asked;  // the prompt below says it all, and exactly
    const head = h("div", { class: "call-head" }, h("code", { class: "tool" }, call.tool), !asks && h("code", { class: "args", title: call.arguments }, inBrief(call.arguments)), h("span", { class: `chip-state ${tone}` }, `${state}${took}${by}`));
    const place = this.place(key);
    if (shown && place.text.textContent !== shown) place.text.textContent = shown;
    const waits = asks ? this.card(this.promptOf(turn, call)) : call.approval ? this.cards.get(call.approval) : null;
    const below = call.delegate && h("p", { class: "dim" }, "handed to ", h("a", { href: `#/s/${call.delegate}` }, call.delegate));
    place.node.className = `call ${tone}`;
    return arrange(place.node, head, below, shown && place.out, waits && (call.state === "waiting") && waits.node);
  }

  place(key) {
    if (!this.places.has(key)) {
      const text = h("pre", { tabindex: "0" });
      this.places.set(key, { node: h("div", { data: { call: key } }), text, out: h("details", { class: "output" }, h("summary", null, "What came of it"), text) });
    }
    return this.places.get(key);
  }

  drawLine() {
    const words = { live: "live", away: "reconnecting", connecting: "connecting", absent: this.isGone ? "deleted" : "new" };
    this.live.textContent = words[this.line] || this.line;
    this.live.className = `line ${this.line}`;
    const sealed = this.facts?.sealed;
    fill(this.badge, this.facts ? [icon(sealed ? "broken" : "shield"), sealed ? `sealed: ${sealed.code}` : h("span", null, h("span", { class: "wide" }, "history "), "intact")] : null);
    this.badge.className = `integrity ${sealed ? "bad" : this.facts ? "good" : ""}`;
    this.badge.hidden = !this.facts;
  }

  // The picture of one turn. The last one is open until somebody folds it; earlier ones open at a press.
  picture(turn, last) {
    const open = this.unfolded.get(turn.id) ?? last;
    const asked = turn.items.find((item) => item.kind === "asked");
    const reported = turn.items.some((item) => item.kind === "report");
    const state = turn.outcome || (turn.waiting ? "waits" : turn.open ? turn.open.label : "open");
    const fold = (event) => { event.preventDefault(); this.unfolded.set(turn.id, !open); this.drawSide(); };
    // A key counts when it goes down, once: this may be drawn anew before it comes up again.
    const key = (event) => { if (event.key === " " || event.key === "Enter") { if (event.repeat) event.preventDefault(); else fold(event); } };
    const summary = h("summary", { data: { turn: turn.id }, on: { click: fold, keydown: key } },
      h("span", { class: "turn-name" }, asked ? asked.text : reported ? "a job ended" : turn.id), h("span", { class: `turn-state o-${turn.outcome || (turn.waiting ? "waits" : "open")}` }, state), h("time", { class: "dim" }, turn.startedAt ? when(turn.startedAt) : ""));
    return h("details", { class: "turn-fold", open }, summary, open && timeline(turn));
  }

  drawSide() {
    const held = document.activeElement?.closest?.(".turn-fold > summary")?.dataset.turn;
    const turns = [...this.story.turns.values()];
    const facts = this.facts;
    this.body.classList.toggle("is-bare", !turns.length && !facts);
    const open = this.side.querySelector("details")?.open ?? this.wide.matches;
    const fact = (name, value) => (value === null || value === undefined ? null : h("div", { class: "fact" }, h("dt", null, name), h("dd", null, value)));
    fill(this.side, h("details", { class: "side-fold", open }, h("summary", null, "Timeline and integrity"),
      turns.length ? [h("h2", { class: "section" }, "Turns, the last one first"),
        h("div", { class: "turn-folds" }, turns.slice(-TURNS_DRAWN).reverse().map((turn, index) => this.picture(turn, index === 0))),
        turns.length > TURNS_DRAWN && h("p", { class: "note" }, `and ${turns.length - TURNS_DRAWN} before these`)] : null,
      facts && [h("h2", { class: "section" }, "Its history"),
        facts.sealed && h("div", { class: "sealed" }, h("p", null, h("b", null, "Sealed. "), facts.sealed.detail), h("p", { class: "dim" }, `Reading works; nothing is written until its owner decides: holdfast sessions unseal ${this.session}`)),
        h("dl", { class: "facts" },
          fact("State", PHASES[facts.phase] || facts.phase),
          fact("Verified", facts.sealed ? (facts.seq ? `up to record ${facts.seq}` : "nothing of it") : `all ${facts.seq} records, when last opened`),
          fact("Turns", facts.turns), facts.queued ? fact("Queued", facts.queued) : null, (facts.jobs || []).length ? fact("Jobs", h("span", null, facts.jobs.map((job) => `${job.tool} ${job.id.slice(0, 8)}`).join(", "))) : null, fact("Agent", facts.agent), fact("Model", facts.model), fact("Life", h("code", null, facts.instance.slice(0, 12)))),
        facts.reminders?.length ? [h("h2", { class: "section" }, "Reminders"), h("ul", { class: "reminders" }, facts.reminders.map((each) => h("li", null,
          h("b", null, each.state === "waiting" ? when(each.next_at) : "can't fire"), ` ${each.text} `, h("span", { class: "dim" }, `${each.when}, set by ${each.by}${each.may_prompt ? ", may ask" : ""}`))))] : null]));
    // Drawn anew every second while something runs: whoever moves by keyboard stays where they are.
    if (held) [...this.side.querySelectorAll(".turn-fold > summary")].find((each) => each.dataset.turn === held)?.focus({ preventScroll: true });
    if (this.pinned) this.toEnd();  // last: what stands beside the log says how wide it is
  }

  async send() {
    const typed = this.text.value;
    const text = typed.trim();
    if (!text || this.sending) return;
    this.sending = true;
    this.pinned = true;  // now, and not when the server has said that it was taken: what comes of it may be drawn before that
    this.wrong.textContent = "";
    this.key = this.keyText === text ? this.key : newId();
    this.keyText = text;
    try {
      await post(`/v1/sessions/${this.session}/messages`, { text }, { "Idempotency-Key": this.key });
      // What was typed meanwhile is the next message.
      this.text.value = this.text.value.startsWith(typed) ? this.text.value.slice(typed.length).trimStart() : this.text.value;
      this.keyText = null;
      this.grow();
      if (this.line === "absent") { this.anew(); this.line = "connecting"; this.follow(); }
      this.app.poke();
    } catch (error) {
      this.wrong.textContent = told(error);
      this.look();
    } finally {
      this.sending = false;
      this.text.focus();
    }
  }

  async cancel() {
    const turn = this.running();
    if (!turn) return;
    try { await post(`/v1/sessions/${this.session}/cancel`, { turn: turn.id }); say("Cancelled."); } catch (error) { this.wrong.textContent = told(error); }
  }

  enter() { (this.text.disabled ? this.heading : this.text).focus(); }
}

// What is longer than a few screens stands folded: the rest of the conversation is worth seeing too.
function text(item) {
  const words = h("p", { class: "text" }, item.text);
  if (item.live || (item.text.length <= LONG_CHARS && item.text.split("\n").length <= LONG_LINES)) return words;
  words.classList.add("is-long");
  const more = h("button", { type: "button", class: "more", on: { click: () => { words.classList.remove("is-long"); words.tabIndex = -1; words.focus({ preventScroll: true }); more.remove(); } } }, `Show all of it, ${plural(item.text.split("\n").length, "line", "lines")}`);
  return [words, more];
}
