// One prompt: what exactly would run, for whom, where, why, until when, and what each button does.
//
// A dangerous call needs its tool's name typed first. For half a second after a card opens or moves
// its buttons do nothing, so that no click meant for another place can land on it. After the answer
// the result stands on the same card.

import { get, newId, post } from "../core/api.js";
import { fill, h, say } from "../core/dom.js";
import { ago, until } from "../core/times.js";
import {
  CALLS,
  answering,
  askerWords,
  boundaryText,
  inBrief,
  moment,
  resultWords,
  told,
} from "../core/words.js";
import { Choices } from "./choices.js";
import { planOf } from "./plan.js";
import { Reading } from "./reading.js";

const SETTLE_MS = 500;
const CHANNELS = { http: "over HTTP", local: "on the server's machine" };
const SEEN_BY = "Who may see this conversation";
const RESULT_PAUSES_MS = [200, 400, 800, 1500, 3000, 5000]; // the last one again and again
const RESULT_LOOKS_MAX = 120; // about ten minutes; the conversation shows a later result

export class PromptCard {
  constructor(prompt, me, { onDone = () => {}, onOpen = () => {}, link = true } = {}) {
    this.prompt = prompt;
    this.me = me;
    this.onDone = onDone;
    this.onOpen = onOpen;
    this.link = link;
    this.answerId = newId();
    this.shownAt = 0;
    this.busy = false;
    this.over = null;
    this.ending = null;
    this.result = null;
    const { id, kind } = prompt;
    const props = { class: "prompt", data: { approval: id, kind }, "aria-labelledby": `h-${id}` };
    this.node = h("article", props);
    this.place = h("span", { class: "badge place", hidden: true });
    this.reading = new Reading(() => this.choices?.refresh());
    this.open = false;
    this.draw();
  }

  // Which one this is of those that wait for the reader.
  placed(number, count) {
    const words = count > 1 ? `${number} of ${count}` : "";
    if (this.place.textContent !== words) this.place.textContent = words;
    this.place.hidden = !words;
  }

  // The server went away, or is back.
  lined() {
    if (!this.over && !this.busy) this.choices?.refresh();
  }

  get mine() {
    return this.prompt.may_answer.includes(this.me.person) && this.me.scopes.includes("approve");
  }

  show(open) {
    if (this.open === open) return;
    this.open = open;
    this.shownAt = performance.now();
    this.draw();
  }

  // Something else made it move: a press that is on its way was meant for another place.
  moved() {
    this.shownAt = performance.now();
  }

  toggle() {
    this.show(!this.open);
    if (this.open) this.onOpen(this);
    this.focus();
  }

  focus() {
    this.node.querySelector("h2 button")?.focus();
  }

  // Move the focus to a main button, and nothing else.
  focusOption(option) {
    const button = this.node.querySelector(`.option[data-option=${option}]`);
    const key = this.reading.isWhole ? ".confirm" : ".to-rest";
    (button?.disabled ? this.node.querySelector(key) : button)?.focus();
  }

  draw() {
    const { prompt } = this;
    this.node.classList.toggle("is-open", this.open);
    this.node.classList.toggle("is-dangerous", prompt.risks?.length > 0);
    this.node.classList.toggle("is-over", Boolean(this.over));
    fill(this.node, this.head(), this.open && this.body());
  }

  body() {
    if (this.over) {
      this.reading.forget();
      return this.outcome();
    }
    const plan = planOf(this.prompt);
    if (!this.mine) return [plan, this.facts(), this.others()];
    this.reading.watch(plan.querySelector(".plan-text"));
    this.choices = new Choices(this);
    return [plan, this.facts(), this.choices.node];
  }

  // The command or the change first, then the tool's name.
  head() {
    const { prompt } = this;
    const who = prompt.requester || "an unknown person";
    const isQuestion = prompt.kind === "question";
    const brief = inBrief(prompt.arguments ?? prompt.display) || prompt.tool;
    const asks = isQuestion
      ? ["A question for ", h("b", null, oneOf(prompt.may_answer))]
      : [h("code", { class: "tool" }, prompt.tool), " for ", h("b", null, who), byAgent(prompt)];
    const about = this.over ? this.over.short : [`${prompt.session} · `, ago(prompt.requested_at)];
    const isOthers = !this.over && !prompt.may_answer.includes(this.me.person);
    const isRisky = prompt.risks?.length > 0 && !this.over;
    const toggle = h(
      "button",
      {
        type: "button",
        class: "prompt-head",
        "aria-expanded": String(this.open),
        on: { click: () => this.toggle() },
      },
      h(isQuestion ? "span" : "code", { class: "prompt-peek" }, brief),
      h("span", { class: "prompt-title" }, asks),
      isRisky && h("span", { class: "badge danger" }, "look twice"),
      isOthers && h("span", { class: "badge place" }, `waits for ${oneOf(prompt.may_answer)}`),
      !this.over && this.place,
      h("span", { class: "prompt-about" }, about),
    );
    return h("h2", { id: `h-${prompt.id}` }, toggle);
  }

  facts() {
    const { prompt } = this;
    const link = h("a", { href: `#/s/${prompt.session}` }, prompt.session);
    const fact = (name, ...value) => {
      const props = { class: `fact is-${name.toLowerCase()}` };
      return h("div", props, h("dt", null, name), h("dd", null, ...value));
    };
    const channel = CHANNELS[prompt.channel] ?? `via ${prompt.channel}`;
    const asked = prompt.channel ? `asked ${channel}, ` : "";
    const quoted = prompt.quoted_speakers?.length;
    const ends = prompt.kind === "question" ? "it stays unanswered" : "denied";
    return h(
      "dl",
      { class: "facts" },
      fact(
        "Who",
        askerWords(prompt),
        h("span", { class: "dim" }, ` (${asked}`, ago(prompt.requested_at), ")"),
        quoted
          ? h("span", { class: "dim" }, `, quoting ${prompt.quoted_speakers.join(", ")}`)
          : null,
      ),
      prompt.path?.length ? fact("For", prompt.path.join(" > ")) : null,
      fact(
        "In",
        this.link ? link : prompt.session,
        " ",
        h("span", { class: "boundary", title: SEEN_BY }, boundaryText(prompt)),
      ),
      fact("Why", prompt.reason || "Your settings ask before this runs."),
      fact(
        "Until",
        until(prompt.expires_at, moment(prompt.expires_at)),
        h("span", { class: "dim" }, " (", ago(prompt.expires_at), `, then ${ends})`),
      ),
    );
  }

  others() {
    const { may_answer: people, requester } = this.prompt;
    const isNamed = people.includes(this.me.person);
    const asked = requester === this.me.person ? "You asked, so another person decides. " : "";
    const others = `${asked}Only ${oneOf(people)} may answer this.`;
    const words = isNamed ? "Your token lets you read, but not answer." : others;
    return h("p", { class: "note quiet" }, words);
  }

  // --- answering

  press(option) {
    if (this.busy) return;
    if (option === "edit") {
      this.choices.edit(); // answers nothing
      return;
    }
    if (performance.now() - this.shownAt < SETTLE_MS) {
      this.choices.tell("This card has just appeared. Read it, then press again.");
      return;
    }
    if (option === "answer") this.answerWith(this.choices.answer.value);
    else if (option === "deny") this.send({ option, reason: this.choices.reasonText });
    else this.send({ option });
  }

  answerWith(words) {
    if (words.trim()) return this.send({ option: "answer", reason: words });
    this.choices.tell("Write an answer first.", true);
    this.choices.answer.focus();
    return null;
  }

  async send(body) {
    this.busy = true;
    this.choices?.tell("Saving your answer…");
    this.choices?.lock();
    const path = `/v1/approvals/${this.prompt.id}/answer`;
    const bound = { answer_id: this.answerId, digest: this.prompt.digest };
    try {
      this.settle(body.option, await post(path, { ...body, ...bound }));
      return true;
    } catch (error) {
      this.refused(error);
      return false;
    } finally {
      this.busy = false;
      if (this.ending) this.close(this.ending);
    }
  }

  settle(option, done) {
    const { short, text } = answering(this.me.person, option, this.me.person);
    const isPending = option.startsWith("approve") || option === "edit";
    const words = isPending && option !== "edit" ? resultWords(done.result) : "";
    this.over = { short, text, more: words, good: option !== "deny" };
    say(`${text} ${words}`);
    this.draw();
    this.onDone(this, done);
    if (option.startsWith("approve")) this.awaitResult();
  }

  // Look until the call has its result, and show it here.
  async awaitResult() {
    for (let look = 0; look < RESULT_LOOKS_MAX; look += 1) {
      const pause = RESULT_PAUSES_MS[Math.min(look, RESULT_PAUSES_MS.length - 1)];
      await new Promise((done) => setTimeout(done, pause));
      if (!this.node.isConnected) return;
      const found = await get(`/v1/approvals/${this.prompt.id}/outcome`).catch(() => null);
      if (found?.outcome) {
        this.finished(found);
        return;
      }
      if (found?.job) {
        this.over.more = "It runs in the background. The conversation shows how it goes.";
        this.draw();
        return;
      }
    }
  }

  finished(found) {
    this.result = found;
    this.over.more = "";
    this.over.good = found.outcome === "ok";
    const held = this.node.contains(document.activeElement);
    this.draw();
    if (held) this.node.querySelector(".outcome")?.focus();
    say(`${this.prompt.tool}: ${CALLS[found.outcome] ?? found.outcome}`);
  }

  refused(error) {
    const isOver = [404, 409, 410, 423].includes(error.status);
    if (isOver && !["plan_changed", "dedup_conflict"].includes(error.code)) {
      this.over = { short: "closed", text: told(error), good: false };
      say(this.over.text, { urgent: true });
      this.draw();
      this.onDone(this, null);
      return;
    }
    // The prompt stands, and so does the typed text: it may be right but for a word, or the server
    // was only away.
    this.busy = false;
    this.choices?.refresh();
    this.choices?.tell(told(error), true);
    say(told(error), { urgent: true });
  }

  outcome() {
    const { text, more, good } = this.over;
    const { result } = this;
    const state = result && (CALLS[result.outcome] ?? result.outcome);
    return h(
      "div",
      { class: `outcome ${good ? "good" : ""}`, tabindex: "-1" },
      h("p", null, text, more && ` ${more}`, result && ` Result: ${state}.`),
      result?.text && h("pre", { class: "result", tabindex: "0" }, result.text),
      this.link &&
        h("p", null, h("a", { href: `#/s/${this.prompt.session}` }, "See the conversation")),
    );
  }

  // Ended by somebody else or by itself. While our own answer is on its way, that says how it
  // ended; if it never arrives, this does.
  close(how) {
    if (this.busy) this.ending = how;
    if (this.over || this.busy) return;
    const held = this.node.contains(document.activeElement);
    this.over = { ...how, good: false };
    this.draw();
    if (!held) return;
    (this.node.querySelector(".outcome") || this.node.querySelector("h2 button"))?.focus();
  }
}

function oneOf(people) {
  return people.join(" or ");
}

// The person asked for something; the agent chose this call.
function byAgent({ agent, path }) {
  const name = path?.at(-1) ?? agent;
  return name ? `, by the agent ${name}` : "";
}
