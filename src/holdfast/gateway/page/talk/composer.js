// The message box. It knows what waits: while a question waits, the box answers the question; while
// a prompt waits, a message that would replace it needs a second press, and so does Stop turn.

import { newId, post } from "../core/api.js";
import { h } from "../core/dom.js";
import { icon } from "../core/icons.js";
import { inBrief, plural, told } from "../core/words.js";

const HEIGHT_MAX_PX = 160;

export class Composer {
  constructor(talk) {
    this.talk = talk;
    this.app = talk.app;
    this.isSending = false;
    this.confirmed = null; // the text whose second press was asked for
    this.stopping = null; // the prompts that a second press of Stop closes
    this.asMessage = new Set(); // questions that the writer chose not to answer here
    this.wrong = h("p", { class: "status bad", role: "alert" });
    this.about = h("p", { class: "composer-about", role: "status", hidden: true });
    const enter = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    };
    const typed = () => {
      this.grow();
      if (this.confirmed !== this.text.value.trim()) this.draw();
    };
    const on = { keydown: enter, input: typed, focus: () => this.draw() };
    this.text = h("textarea", { id: "say", rows: 1, "aria-label": "Your message", on });
    this.button = h(
      "button",
      { type: "button", class: "button main", on: { click: () => this.send() } },
      icon("send"),
      (this.label = h("span", null, "Send")),
    );
    const stop = { type: "button", class: "button stop", hidden: true };
    const described = { "aria-describedby": "stop-about", on: { click: () => this.pressStop() } };
    this.stop = h("button", { ...stop, ...described }, "Stop turn");
    this.stopAbout = h("p", { id: "stop-about", class: "stop-about", hidden: true });
    this.instead = h(
      "button",
      { type: "button", class: "link-button", hidden: true, on: { click: () => this.skip() } },
      "Send a message instead",
    );
    const row = h("div", { class: "row" }, this.text, this.stop, this.button);
    const below = [this.stopAbout, this.instead];
    this.node = h("div", { class: "composer" }, this.wrong, this.about, row, below);
  }

  // Why nothing can be said here, if nothing can.
  get mute() {
    const { facts } = this.talk;
    if (!this.app.me.scopes.includes("send")) return "Your token lets you read, but not send";
    if (facts?.sealed) return "Sealed: nothing can be sent";
    if (facts?.parent) return "An agent works here for another conversation. Write there.";
    return null;
  }

  get isMute() {
    return this.mute !== null;
  }

  // The question that the box answers: the first that waits for this reader.
  get question() {
    return this.talk.waiting.find(
      (card) => card.prompt.kind === "question" && !this.asMessage.has(card.prompt.id),
    );
  }

  // The approvals of this person's own turns that a message would replace.
  get replaced() {
    if (this.app.me.on_message === "wait") return [];
    return this.talk.turns
      .filter((turn) => turn.requester === this.app.me.person && !turn.outcome)
      .flatMap((turn) => [...turn.calls.values()])
      .filter((call) => call.state === "waiting" && call.asked);
  }

  // Words in the box answer a question, and never a prompt: a prompt that waits keeps the focus.
  get mayTakeFocus() {
    return !this.isMute && (!this.talk.waiting.length || Boolean(this.question));
  }

  skip() {
    this.asMessage.add(this.question?.prompt.id);
    this.draw();
    this.text.focus();
  }

  // The prompts that Stop closes, as one text: another prompt asks for another press.
  get closedByStop() {
    return this.talk.running ? waitingCalls(this.talk.running).map((call) => call.call).join() : "";
  }

  // A turn without a prompt stops at once. A prompt may wait for another person.
  pressStop() {
    const closes = this.closedByStop;
    if (closes && this.stopping !== closes) {
      this.stopping = closes;
      this.confirmed = null;
      this.draw();
      return;
    }
    this.stopping = null;
    this.talk.stop();
  }

  draw() {
    const { mute, question } = this;
    const isAsking = this.confirmed !== null && this.confirmed === this.text.value.trim();
    if (!isAsking) this.confirmed = null;
    this.text.disabled = mute !== null;
    const asks = question ? "Answer the question" : "Say something";
    this.text.placeholder = mute ?? asks;
    this.text.setAttribute("aria-label", question ? "Your answer to the question" : "Your message");
    this.label.textContent = question ? "Answer" : isAsking ? "Send and replace" : "Send";
    this.button.setAttribute("aria-label", this.label.textContent);
    this.button.disabled = this.text.disabled;
    this.instead.hidden = !question || mute !== null;
    const { isGone, running, facts } = this.talk;
    const effect = running ? stopWords(running, this.app.me.person) : "";
    if (isAsking || !this.stopping || this.stopping !== this.closedByStop) this.stopping = null;
    const stops = this.stopping && `${effect} Press again to stop.`;
    const words = isAsking ? this.warning() : (stops ?? (question ? this.asked(question) : ""));
    this.about.hidden = !words || (mute !== null && !stops);
    if (this.about.textContent !== words) this.about.textContent = words;
    this.about.classList.toggle("warn", isAsking || Boolean(stops));
    this.stop.textContent = stops ? "Stop now" : "Stop turn";
    this.stop.hidden = isGone || !running || Boolean(facts?.sealed);
    this.stopAbout.hidden = this.stop.hidden || Boolean(stops);
    if (this.stopAbout.textContent !== effect) this.stopAbout.textContent = effect;
    this.node.classList.toggle("has-prompt", this.talk.waiting.length > 0);
  }

  asked(question) {
    return `You answer: ${inBrief(question.prompt.arguments ?? question.prompt.display)}`;
  }

  warning() {
    const calls = this.replaced;
    const names = calls.map((call) => `${call.tool} ${inBrief(call.arguments)}`.trim());
    const count = plural(calls.length, "prompt waits", "prompts wait");
    return `${count} for an answer: ${names.join("; ")}. Your message replaces ${
      calls.length === 1 ? "it, and it does" : "them, and they do"
    } not run. Press again to send.`;
  }

  async send() {
    const typed = this.text.value;
    const text = typed.trim();
    if (!text || this.isSending || this.isMute) return;
    const { question } = this;
    if (question) {
      await this.answer(question, typed);
      return;
    }
    if (this.replaced.length && this.confirmed !== text) {
      this.confirmed = text;
      this.draw();
      return;
    }
    this.confirmed = null;
    await this.post(typed, text);
  }

  async answer(question, typed) {
    this.isSending = true;
    const isTaken = await question.send({ option: "answer", reason: typed });
    this.isSending = false;
    if (isTaken) this.taken(typed);
    this.draw();
  }

  async post(typed, text) {
    this.isSending = true;
    this.talk.log.pin(); // now: the effects may be drawn before the server's answer
    this.clearError();
    this.key = this.keyText === text ? this.key : newId();
    this.keyText = text;
    try {
      const headers = { "Idempotency-Key": this.key };
      await post(`${this.talk.path}/messages`, { text }, headers);
      this.keyText = null;
      this.taken(typed);
      this.talk.sent();
    } catch (error) {
      this.fail(told(error));
      this.talk.look();
    } finally {
      this.isSending = false;
      if (this.mayTakeFocus) this.text.focus();
      this.draw();
    }
  }

  // Text that was typed meanwhile is the next message.
  taken(typed) {
    const now = this.text.value;
    this.text.value = now.startsWith(typed) ? now.slice(typed.length).trimStart() : now;
    this.grow();
  }

  fail(text) {
    this.wrong.textContent = text;
  }

  clearError() {
    this.wrong.textContent = "";
  }

  use(text) {
    this.text.value = text;
    this.grow();
    this.text.focus();
  }

  grow() {
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(HEIGHT_MAX_PX, this.text.scrollHeight)}px`;
  }
}

// The effect of Stop turn: whose request ends, and whose prompts close with it.
function stopWords(turn, me) {
  const mine = turn.requester === me;
  const whose = mine ? "your request" : `the request of ${turn.requester ?? "an unknown person"}`;
  const asked = waitingCalls(turn);
  const people = new Set(asked.flatMap((call) => call.asked.may_answer));
  people.delete(me);
  const prompts = asked.length === 1 ? "Its prompt closes" : "Its prompts close";
  const which = asked.length === 1 ? "it" : "them";
  const names = [...people].join(" and ");
  const others = names && `, and ${names} can no longer answer ${which}`;
  const closes = asked.length ? ` ${prompts}${others}.` : "";
  return `Stop turn ends ${whose}.${closes} Nothing more runs. Everything said and done stays.`;
}

function waitingCalls(turn) {
  return [...turn.calls.values()].filter((call) => call.state === "waiting" && call.asked);
}
