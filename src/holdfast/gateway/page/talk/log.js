// The messages of a conversation. A node that is drawn stays where it is while more is drawn around
// it: a turn, a call with its prompt and its result, and everything that never changes.

import { arrange, fill, h } from "../core/dom.js";
import {
  TURNS,
  inBrief,
  jobWords,
  plural,
  sentence,
  span,
  usageWords,
  when,
} from "../core/words.js";
import { measureSoon } from "../prompts/reading.js";
import { richText } from "../text/rich.js";
import { CallView } from "./call_view.js";

const LONG_CHARS = 6000;
const LONG_LINES = 60;
const MOVED_PX = 4;
const END_PX = 60;
const SEALED_NEXT =
  "Holdfast has stopped writing here. You can read it, and nothing can be sent. The owner of " +
  "this Holdfast can go on from the last good record with:";
const TRY = ["what time is it", "list files", "run: uname -a", "ask me which region to use"];

export class Log {
  constructor(talk) {
    this.talk = talk;
    this.isPinned = true;
    this.read = new WeakSet(); // prompts that were shown from their top
    const props = { class: "log", role: "log", "aria-label": "Conversation", tabindex: "0" };
    this.node = h("div", { ...props, on: { scroll: () => this.scrolled() } });
    this.forget();
  }

  forget() {
    this.sections = new Map();
    this.calls = new Map();
    this.drawn = new WeakMap();
  }

  pin() {
    this.isPinned = true;
  }

  scrolled() {
    const { node } = this;
    if (node.scrollTop === this.placed) return;
    this.isPinned = node.scrollHeight - node.scrollTop - node.clientHeight < END_PX;
    if (node.scrollTop < 200 && this.talk.firstSeq > 1 && !this.isPinned) this.talk.earlier();
  }

  // Draw earlier messages above, and keep the ones on the screen where they are.
  keepPlace(act) {
    const { node } = this;
    const fromEnd = node.scrollHeight - node.scrollTop;
    const isPinned = this.isPinned;
    this.isPinned = false;
    act();
    node.scrollTop = node.scrollHeight - fromEnd;
    this.placed = node.scrollTop;
    this.isPinned = isPinned;
  }

  draw() {
    const { talk } = this;
    this.stood = [...talk.cards.values()]
      .filter((card) => card.node.isConnected)
      .map((card) => [card, card.node.getBoundingClientRect().top]);
    const { turns } = talk;
    this.deleted ??= h(
      "p",
      { class: "note ended" },
      "This session was deleted. Only this tab still shows it. If you send a message, a new " +
        "session of that name begins.",
    );
    arrange(
      this.node,
      talk.firstSeq > 1 && this.earlierButton(),
      turns.length ? turns.map((turn) => this.turn(turn)) : !talk.facts?.sealed && this.blank(),
      talk.story.notes.map((note) => this.item(null, note)),
      talk.isGone && this.deleted,
      this.damage(),
    );
  }

  // The last line of a sealed conversation: the messages above are those that verify.
  damage() {
    const { facts } = this.talk;
    if (!facts?.sealed) return null;
    this.damaged ??= h("p", { class: "note ended" });
    const isShown = this.talk.turns.length > 0;
    const above = isShown ? "The messages above are intact. " : "";
    const words = `${damaged(facts)} ${above}${SEALED_NEXT}`;
    if (this.damaged.dataset.words === words) return this.damaged;
    this.damaged.dataset.words = words;
    const command = h("code", null, `holdfast sessions unseal ${this.talk.session}`);
    return fill(this.damaged, words, " ", command);
  }

  // After everything was drawn: to the end, and cards that moved take no press for a moment.
  settle() {
    if (this.isPinned) this.toEnd();
    for (const [card, top] of this.stood ?? []) {
      if (Math.abs(card.node.getBoundingClientRect().top - top) > MOVED_PX) card.moved();
    }
    measureSoon();
  }

  // The end; but a prompt that is longer than the screen is shown from its top first, so that its
  // reader passes the call before its buttons.
  toEnd() {
    const { node } = this;
    const isNew = (card) => card.node.isConnected && !card.over && !this.read.has(card);
    const card = [...this.talk.cards.values()].find(isNew);
    const call = card?.node.closest(".call");
    node.scrollTop = node.scrollHeight;
    if (!call) return;
    this.read.add(card);
    const above = node.getBoundingClientRect().top + 12 - call.getBoundingClientRect().top;
    if (above <= 0) return;
    node.scrollTop -= above;
    this.placed = node.scrollTop;
    this.isPinned = false;
  }

  earlierButton() {
    const on = { click: () => this.talk.earlier() };
    this.more ??= h("button", { type: "button", class: "button earlier", on });
    const words = this.talk.isLoading ? "Loading earlier messages" : "Show earlier messages";
    if (this.more.textContent !== words) this.more.textContent = words;
    return this.more;
  }

  // Nothing to show: there is nothing, or the server has not answered yet.
  blank() {
    const { talk } = this;
    if (talk.line === "absent") return (this.nothing ??= this.empty());
    this.opening ??= h("p", { class: "loading", role: "status" });
    const opening =
      talk.line === "away"
        ? "This conversation is shown once the server answers."
        : "Opening the conversation";
    const words = talk.hasHeard ? "No messages you can see." : opening;
    if (this.opening.textContent !== words) this.opening.textContent = words;
    return this.opening;
  }

  empty() {
    const chip = (text) =>
      h(
        "li",
        null,
        h(
          "button",
          { type: "button", class: "chip", on: { click: () => this.talk.composer.use(text) } },
          text,
        ),
      );
    return h(
      "div",
      { class: "empty" },
      h("p", null, "Your message is saved before the agent acts on it."),
      h("ul", { class: "tries" }, TRY.map(chip)),
    );
  }

  turn(turn) {
    let section = this.sections.get(turn.id);
    if (!section) {
      section = h("section", { data: { turn: turn.id }, "aria-label": `Turn ${turn.id}` });
      this.sections.set(turn.id, section);
    }
    section.className = `turn${turn.outcome ? "" : " is-open"}`;
    const isThinking = !turn.outcome && !turn.streaming && turn.open?.kind === "thinking";
    return arrange(
      section,
      turn.items.map((item) => this.item(turn, item)),
      isThinking && thinking(),
      this.usage(turn),
    );
  }

  usage(turn) {
    const words = turn.outcome ? usageWords(turn.usage) : null;
    if (!words) return null;
    turn.usageNode ??= h("p", { class: "usage" });
    if (turn.usageNode.textContent !== words) turn.usageNode.textContent = words;
    return turn.usageNode;
  }

  item(turn, item) {
    if (item.kind === "call") return this.call(turn, item);
    if (item.live) return this.words(item);
    if (!this.drawn.has(item)) this.drawn.set(item, this.words(item));
    return this.drawn.get(item);
  }

  call(turn, call) {
    if (!this.calls.has(call.call)) this.calls.set(call.call, new CallView(this.talk, call.call));
    return this.calls.get(call.call).draw(turn, call);
  }

  nameOf(person) {
    return person === this.talk.app.me.person ? "you" : (person ?? "an unknown person");
  }

  words(item) {
    const time = item.at && [" ", h("time", null, when(item.at))];
    const who = (name) => h("p", { class: "who" }, name, time);
    switch (item.kind) {
      case "asked": {
        const isOwn = item.who === this.talk.app.me.person;
        const props = { class: `msg asked${isOwn ? " own" : ""}` };
        const words = folded(h("p", { class: "text" }, item.text), item);
        return h(
          "div",
          props,
          who(item.who || "an unknown person"),
          words,
          item.quotes.map(quoted),
        );
      }
      case "said":
        return said(item, who);
      case "report": {
        const output = item.text && h("pre", { class: "text", tabindex: "0" }, item.text);
        return h("div", { class: "msg report" }, who("a job"), jobEnd(item), output);
      }
      case "ended":
        return h("p", { class: "note ended" }, ending(item, this.nameOf(item.requester)));
      default:
        return h("p", { class: "note" }, item.text);
    }
  }
}

// "sleep 12 finished after 12 s:", or the stored words if the call is not on this page.
function jobEnd({ call, outcome, took, head, text }) {
  if (!call || !outcome) return h("p", null, head);
  const ended = ` ${jobWords(outcome, span(took))}${text ? ":" : "."}`;
  return h("p", null, h("code", null, inBrief(call.arguments) || call.tool), ended);
}

function damaged(facts) {
  return facts.seq
    ? `The history is damaged after record ${facts.seq}.`
    : "The history is damaged from its first record on.";
}

function said(item, who) {
  const beginning = item.missing ? h("p", { class: "note" }, "(the beginning follows)") : null;
  const words = h("div", { class: "text rich" }, beginning, richText(item.text));
  const stopped =
    item.isPartial && h("p", { class: "note" }, "Stopped here. The reply is incomplete.");
  const props = { class: `msg said${item.live ? " is-live" : ""}` };
  const text = item.live ? words : folded(words, item);
  return h("div", props, who(item.who ?? "agent"), text, stopped);
}

function ending(item, requester) {
  const name = TURNS[item.outcome] ?? item.outcome;
  if (item.outcome === "cancelled") return item.by ? `Stopped by ${item.by}.` : "Stopped.";
  if (item.outcome === "superseded") return `Not run: ${requester} sent another message instead.`;
  const ended = item.outcome === "failed" ? "The turn failed" : name;
  const hint = item.hint && h("span", { class: "dim" }, ` ${sentence(item.hint)}`);
  return [sentence(`${ended}: ${item.text}`), hint];
}

function quoted(quote) {
  return h("blockquote", null, h("b", null, quote.speaker), ": ", quote.text);
}

function thinking() {
  const words = h("span", { class: "unseen" }, "thinking");
  return h("p", { class: "thinking" }, h("i"), h("i"), h("i"), words);
}

// Text longer than a few screens stands folded: the rest of the conversation is worth seeing too.
function folded(words, item) {
  const lines = item.text.split("\n").length;
  if (item.text.length <= LONG_CHARS && lines <= LONG_LINES) return words;
  words.classList.add("is-long");
  const unfold = () => {
    words.classList.remove("is-long");
    words.tabIndex = -1;
    words.focus({ preventScroll: true });
    more.remove();
  };
  const more = h(
    "button",
    { type: "button", class: "more", on: { click: unfold } },
    `Show all of it, ${plural(lines, "line", "lines")}`,
  );
  return [words, more];
}
