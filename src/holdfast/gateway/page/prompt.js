// One prompt: what exactly would run, for whom, where, why, until when, and what each button covers.
//
// What runs is shown as it was journalled, complete, as text, before everything else. The buttons come last, so nobody reaches them without passing it. Enter presses none of them:
// a click or Space does. A dangerous one needs its tool's name typed first. For half a second after a card opens its buttons do nothing, so that no click meant for
// what stood there before can land on it.

import { newId, post } from "./api.js";
import { fill, h, say } from "./dom.js";
import { ago, until } from "./ticking.js";
import { OPTIONS, circle, inBrief, moment, told } from "./words.js";

const SETTLE_MS = 500;

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
    this.node = h("article", { class: "prompt", data: { approval: prompt.id, kind: prompt.kind }, "aria-labelledby": `h-${prompt.id}` });
    this.open = false;
    this.draw();
  }

  get mine() { return this.prompt.may_answer.includes(this.me.person) && this.me.scopes.includes("approve"); }

  show(open) {
    if (this.open === open) return;
    this.open = open;
    this.shownAt = performance.now();
    this.draw();
  }

  // Something else made it move: a press that is on its way was meant for what stood here before.
  moved() { this.shownAt = performance.now(); }

  toggle() {
    this.show(!this.open);
    if (this.open) this.onOpen(this);
    this.focus();
  }

  focus() { this.node.querySelector("h2 button, h2")?.focus(); }

  draw() {
    const { prompt } = this;
    this.node.classList.toggle("is-open", this.open);
    this.node.classList.toggle("is-dangerous", prompt.dangerous);
    this.node.classList.toggle("is-over", Boolean(this.over));
    fill(this.node, this.head(), this.open && (this.over ? this.outcome() : [this.plan(), this.facts(), this.mine ? this.choices() : this.others()]));
  }

  title() {
    const { prompt } = this;
    const who = prompt.requester || "nobody known";
    if (prompt.kind === "question") return ["The agent has a question for ", h("b", null, prompt.may_answer.join(" or "))];
    return ["For ", h("b", null, who), this.open && !this.over ? ", the agent wants to run " : ": ", h("code", null, prompt.tool)];
  }

  head() {
    const { prompt } = this;
    const label = h("span", { class: "prompt-title" }, this.title());
    const about = h("span", { class: "prompt-about" }, this.over ? this.over.short : [`${prompt.session} · `, ago(prompt.requested_at)]);
    const toggle = h("button", { type: "button", class: "prompt-head", "aria-expanded": String(this.open), on: { click: () => this.toggle() } },
      label, prompt.dangerous && !this.over && h("span", { class: "badge danger" }, "dangerous"), (!this.open || this.over) && h("code", { class: "prompt-peek" }, inBrief(prompt.arguments ?? prompt.display)), about);
    return h("h2", { id: `h-${prompt.id}` }, toggle);
  }

  facts() {
    const { prompt } = this;
    const where = this.link ? h("a", { href: `#/s/${prompt.session}` }, prompt.session) : prompt.session;
    const fact = (name, ...value) => h("div", { class: "fact" }, h("dt", null, name), h("dd", null, ...value));
    return h("dl", { class: "facts" },
      fact("Who", prompt.requester || "nobody known", h("span", { class: "dim" }, `${prompt.channel ? ` via ${prompt.channel}` : ""}, `, ago(prompt.requested_at)),
        prompt.quoted_speakers?.length ? h("span", { class: "dim" }, `, quoting ${prompt.quoted_speakers.join(", ")}`) : null),
      prompt.path?.length ? fact("For", prompt.path.join(" > ")) : null,
      fact("Where", where, " ", h("span", { class: "circle", title: "the trust boundary this was asked in" }, circle(prompt))),
      fact("Why", prompt.reason || "policy asks before this runs"),
      fact("Until", until(prompt.expires_at, moment(prompt.expires_at)), h("span", { class: "dim" }, " (", ago(prompt.expires_at), ", then denied)")));
  }

  plan() {
    const { prompt } = this;
    if (prompt.kind === "question") {
      return h("blockquote", { class: "question" }, String(prompt.arguments?.question ?? prompt.display));
    }
    return h("section", { class: "plan", "aria-label": "What exactly would run" },
      h("pre", { class: "display", tabindex: "0", data: { exact: "" } }, lines(prompt.display)),
      h("p", { class: "digest" }, "bound to ", h("code", { title: prompt.digest }, `${prompt.digest.slice(0, 16)}…`), " · an answer counts for exactly this, once"));
  }

  others() {
    const names = this.prompt.may_answer.join(" or ");
    const why = this.prompt.may_answer.includes(this.me.person) ? "Your token may look, but not answer." : `Only ${names} may answer this.`;
    return h("p", { class: "note quiet" }, why);
  }

  choices() {
    const { prompt } = this;
    this.status = h("p", { class: "status", role: "status" });
    const locked = prompt.dangerous && prompt.kind !== "question";
    const buttons = prompt.options.map((option) => this.choice(option, locked));
    const parts = [h("div", { class: "options" }, buttons), this.status];
    if (locked) parts.unshift(this.confirmation(buttons));
    return h("section", { class: "choices", "aria-label": "Your answer" }, parts);
  }

  choice(option, locked) {
    const { prompt } = this;
    const approves = option.startsWith("approve");
    const style = approves ? "yes" : option === "deny" ? "no" : "plain";
    const known = Object.hasOwn(OPTIONS, option) && !(prompt.kind === "question" && !["answer", "deny"].includes(option));
    const covers = prompt.covers?.[option] || "";
    const label = prompt.kind === "question" && option === "deny" ? "Decline to answer" : known ? OPTIONS[option] : option;
    return h("button", {
      type: "button", class: `option ${style}${option === "approve_once" ? " main" : ""}`, data: { option, locked: approves && locked ? "yes" : "no" },
      disabled: approves && locked,
      on: { click: () => this.press(option), keydown: (event) => this.key(event) },
    }, h("span", { class: "option-name" }, label), covers && !(prompt.kind === "question" && option !== "answer") && h("span", { class: "option-covers" }, covers));
  }

  // A bare Enter is no answer.
  key(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    this.tell("Enter presses nothing here. Space does.");
  }

  confirmation(buttons) {
    const word = this.prompt.tool;
    const id = `c-${this.prompt.id}`;
    const input = h("input", {
      id, class: "confirm", type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
      on: {
        input: () => this.unlock(buttons),
        keydown: (event) => this.key(event),
      },
    });
    return h("p", { class: "confirmation" }, h("label", { for: id }, "This one could do more than it shows. To approve, type ", h("code", null, word)), input);
  }

  // What needs the tool's name typed has it, or can't be pressed; everything else can.
  unlock(buttons) {
    const typed = this.node.querySelector(".confirm")?.value === this.prompt.tool;
    for (const each of buttons) each.disabled = each.dataset.locked === "yes" && !typed;
  }

  press(option) {
    if (this.busy) return;
    if (performance.now() - this.shownAt < SETTLE_MS) { this.tell("This has only just come here. Press again."); return; }
    if (option === "edit") { this.edit(); return; }
    if (option === "answer") { this.ownWords(); return; }
    this.send({ option });
  }

  edit() {
    const id = `e-${this.prompt.id}`;
    const text = h("textarea", { id, class: "code", rows: 6, spellcheck: "false", value: JSON.stringify(this.prompt.arguments, null, 2) });
    const send = () => {
      let given;
      try { given = JSON.parse(text.value); } catch (error) { this.tell(`That is no JSON: ${error.message}`, true); return; }
      this.send({ option: "edit", arguments: given });
    };
    this.form(text, h("label", { for: id }, "Other arguments, as JSON. Nothing runs yet: the new plan is shown again."), "Ask anew with these", send);
  }

  ownWords() {
    const id = `w-${this.prompt.id}`;
    const text = h("textarea", { id, rows: 3 });
    this.form(text, h("label", { for: id }, "Your answer. It is words for the agent and grants nothing."), "Send the answer", () => {
      if (!text.value.trim()) { this.tell("There are no words yet.", true); return; }
      this.send({ option: "answer", reason: text.value });
    });
  }

  form(text, label, verb, send) {
    this.node.querySelector(".own")?.remove();
    const form = h("div", { class: "own" }, label, text, h("div", { class: "row" },
      h("button", { type: "button", class: "button main", on: { click: send, keydown: (event) => this.key(event) } }, verb),
      h("button", { type: "button", class: "button", on: { click: () => { form.remove(); this.focus(); } } }, "Back")));
    this.node.querySelector(".options").after(form);
    text.focus();
  }

  tell(text, bad = false) {
    if (this.status) { this.status.textContent = text; this.status.classList.toggle("bad", bad); }
  }

  async send(body) {
    this.busy = true;
    this.tell("Recording your answer…");
    for (const each of this.node.querySelectorAll("button.option, .own button")) each.disabled = true;
    try {
      const done = await post(`/v1/approvals/${this.prompt.id}/answer`, { ...body, answer_id: this.answerId, digest: this.prompt.digest });
      this.settle(body.option, done);
    } catch (error) {
      this.refused(error);
    } finally {
      this.busy = false;
      if (this.ending) this.close(this.ending);
    }
  }

  settle(option, done) {
    const verb = option === "deny" ? "Denied" : option === "edit" ? "Asked anew" : option.startsWith("approve") ? "Approved" : "Answered";
    const came = { started: "it went on", handed_on: "recorded; whoever has the tools goes on", deferred: "recorded; it goes on when what still waits is answered" }[done.result] || done.result;
    this.over = { short: `${verb} by you`, text: `${verb} by you: ${came}.`, good: option !== "deny" };
    say(this.over.text);
    this.draw();
    this.onDone(this, done);
  }

  refused(error) {
    if ([404, 409, 410, 423].includes(error.status) && !["plan_changed", "dedup_conflict"].includes(error.code)) {
      this.over = { short: "closed", text: told(error), good: false };
      say(this.over.text, { urgent: true });
      this.draw();
      this.onDone(this, null);
      return;
    }
    // The prompt stands, and so does what was typed: it may be right but for a word, or the server was only away.
    this.unlock(this.node.querySelectorAll("button.option, .own button"));
    this.tell(told(error), true);
    say(told(error), { urgent: true });
  }

  outcome() {
    return h("p", { class: `outcome ${this.over.good ? "good" : ""}`, tabindex: "-1" }, this.over.text, " ", this.link && h("a", { href: `#/s/${this.prompt.session}` }, "See the conversation"));
  }

  // Over, by somebody else or by itself. While our own answer is on its way, that says how it ended; if it never arrives, this does.
  close(how) {
    if (this.busy) this.ending = how;
    if (this.over || this.busy) return;
    const held = this.node.contains(document.activeElement);
    this.over = { ...how, good: false };
    this.draw();
    if (held) (this.node.querySelector(".outcome") || this.node.querySelector("h2 button"))?.focus();  // whoever moves by keyboard stays where they are
  }
}

// The very text, character by character; only its weight differs. What stands behind a bar is what the call brought along, and can pass for nothing else: every line
// of it has the bar. The other lines are Holdfast's own words.
function lines(display) {
  const all = display.split("\n");
  if (!all.some((line) => line.startsWith("| "))) return display;
  return all.map((line, at) => [at ? "\n" : null, h("span", { class: line.startsWith("| ") ? "exact" : /^(! |UNCONFINED)/.test(line) ? "warn" : "label" }, words(line))]);
}

// Spaces stay what they are; each word is kept together, so that the end of a line is never taken for one of them.
function words(line) {
  return line.split(/( +)/).map((part) => (part === "" || part.startsWith(" ") ? part : h("span", { class: "word" }, part)));
}
