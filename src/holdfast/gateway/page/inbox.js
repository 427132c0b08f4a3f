// What waits for me, in all sessions. One card is open at a time, so that all of it fits a screen; new ones come at the end, so that nothing moves under a hand.

import { all } from "./api.js";
import { fill, h, say } from "./dom.js";
import { Follow } from "./follow.js";
import { PromptCard } from "./prompt.js";
import { answering, closing, plural } from "./words.js";

const SEATS = { name: "holdfast.inbox", count: 2 };  // the other tabs of a browser look again by themselves: a conversation needs its line more
const LINES = { live: "live", away: "looking every few seconds", connecting: "connecting" };

export class Inbox {
  constructor(app) {
    this.app = app;
    this.cards = new Map();
    this.node = h("div", { class: "view inbox" });
    this.list = h("div", { class: "cards" });
    this.rest = h("div", { class: "cards others" });
    this.known = false;
    this.line = "connecting";
    this.looks = 0;   // asked for
    this.looked = 0;  // the last one that counts
    this.standing = [];
    this.frame();
  }

  get isLive() { return this.line === "live"; }

  follow() {
    this.stream = new Follow("/v1/approvals/events", (name, data) => this.heard(name, data), (line) => this.lined(line), { seats: SEATS });
  }

  close() { this.stream?.close(); }

  lined(line) {
    this.line = line;
    if (this.isLive) this.looked = this.looks += 1;  // whatever was asked for before is older than what the line tells
    this.live.textContent = LINES[line] || line;
    this.live.className = `line ${line}`;
    if (!this.isLive) { this.standing = []; this.app.poke(); }
  }

  heard(name, data) {
    const over = {
      answered: () => answering(data.answered_by, data.option),
      closed: () => closing(data.closed_as),
      gone: () => ({ short: "gone", text: "Nobody can answer this any more: its session was sealed, deleted or begun anew." }),
    }[name];
    if (over) this.end(data.id, over());
    else if (name === "requested") this.take([data]);
    else if (name === "standing") this.stand(data);
    else if (name === "gap") this.standing = [];
    if (name !== "standing" || !data.more) { this.draw(); this.app.poke(); }
  }

  end(id, how) {
    const card = this.cards.get(id);
    if (!card || card.over) return;
    card.close(how);
    if (card.over && card.mine) say(how.text);  // not while our own answer is on its way, which says it
  }

  // Everything that stands, in pages; what is on none of them is over.
  stand(page) {
    this.standing.push(...page.approvals);
    if (page.more) return;
    this.reconcile(this.standing);
    this.standing = [];
  }

  // Look again, while there is no line. What was asked for before the line came is older than what it tells, and of two looks only the later one counts, whichever comes first:
  // a prompt that an older one does not know yet is not over.
  async refresh() {
    if (this.isLive) return;
    const number = this.looks += 1;
    const found = await all("/v1/approvals", "approvals");
    if (this.isLive || number < this.looked) return;
    this.looked = number;
    this.reconcile(found);
    this.draw();
  }

  reconcile(found) {
    const standing = new Set(found.map((each) => each.id));
    for (const [id, card] of this.cards) {
      if (!standing.has(id)) card.close({ short: "over", text: "This prompt is over: it was answered elsewhere, replaced, cancelled, or its time ran out." });
    }
    this.take(found);
  }

  take(found) {
    found.sort((a, b) => (a.requested_at < b.requested_at ? -1 : 1));
    const fresh = found.filter((each) => !this.cards.has(each.id));
    for (const prompt of fresh) this.cards.set(prompt.id, new PromptCard(prompt, this.app.me, { onDone: (card) => this.done(card), onOpen: (card) => this.only(card) }));
    const mine = fresh.filter((each) => this.cards.get(each.id).mine);
    if (this.known && mine.length) say(`${plural(mine.length, "prompt waits", "prompts wait")} for you.`, { urgent: true });
    this.known = true;
  }

  get waiting() { return [...this.cards.values()].filter((card) => card.mine && !card.over); }

  draw() {
    const mine = [...this.cards.values()].filter((card) => card.mine);
    const others = [...this.cards.values()].filter((card) => !card.mine && !card.over);
    for (const card of mine) if (card.node.parentNode !== this.list) this.list.append(card.node);
    for (const card of others) if (card.node.parentNode !== this.rest) this.rest.append(card.node);
    for (const [id, card] of this.cards) if (!card.mine && card.over) { card.node.remove(); this.cards.delete(id); }
    if (!mine.some((card) => card.open)) this.waiting[0]?.show(true);
    const count = this.waiting.length;
    this.heading.textContent = count ? `${plural(count, "prompt waits", "prompts wait")} for you` : this.known ? "Nothing waits for you" : "What waits for you";
    this.empty.hidden = mine.length > 0 || !this.known;
    this.lead.hidden = count === 0;
    this.others.hidden = others.length === 0;
    this.app.counted(count);
  }

  frame() {
    this.heading = h("h1", { tabindex: "-1" }, "");
    this.live = h("span", { class: "line", role: "status" }, LINES[this.line]);
    this.lead = h("p", { class: "lead" }, "What you approve runs exactly as shown, once, under the authority it was asked with. Silence denies.");
    this.empty = h("div", { class: "empty" }, h("p", null, "When an agent needs your consent, it stops here and waits, for days if need be. Nothing runs meanwhile."),
      h("p", null, h("a", { class: "button", href: "#/talk" }, "Talk to the agent")));
    this.others = h("section", { class: "elsewhere", "aria-label": "Waiting for others" }, h("h2", { class: "section" }, "Waiting for others"), this.rest);
    fill(this.node, h("header", { class: "view-head" }, h("div", { class: "view-title" }, this.heading, this.live), this.lead), this.empty, this.list, this.others);
  }

  done(card) {
    this.draw();
    const next = this.waiting[0];
    if (next) next.show(true);
    card.node.querySelector(".outcome")?.focus();
    this.app.poke();
  }

  only(open) {
    for (const card of this.cards.values()) if (card !== open && !card.busy) card.show(false);
    open.node.scrollIntoView({ block: "nearest" });
  }

  // Keyboard: the card after or before the open one.
  step(by) {
    const cards = [...this.cards.values()].filter((card) => card.mine);
    if (!cards.length) return;
    const at = cards.findIndex((card) => card.open);
    const next = cards[Math.min(cards.length - 1, Math.max(0, at + by))];
    next.show(true);
    this.only(next);
    next.focus();
  }

  enter() {
    for (const [id, card] of this.cards) if (card.over) { card.node.remove(); this.cards.delete(id); }
    this.draw();
    this.heading.focus();
  }
}
