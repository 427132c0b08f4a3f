// The prompts that wait for the reader, in all sessions. One card is open at a time, so that all of
// it fits a screen. New ones come at the end, so that nothing moves under a hand.

import { all } from "../core/api.js";
import { fill, h, say } from "../core/dom.js";
import { Follow } from "../core/follow.js";
import { answering, closing, plural } from "../core/words.js";
import { PromptCard } from "../prompts/card.js";
import { measureSoon } from "../prompts/reading.js";

// The other tabs of a browser look again by themselves: a conversation needs its line more.
const SEATS = { name: "holdfast.inbox", count: 2 };
const LINES = { live: "live", away: "Offline. Trying again.", connecting: "connecting" };
const GONE =
  "Nobody can answer this any more: its session was sealed, deleted or replaced by a new one.";
const ELSEWHERE =
  "This prompt is over: it was answered elsewhere, replaced, stopped, or nobody answered in time.";

export class Inbox {
  constructor(app) {
    this.app = app;
    this.cards = new Map();
    this.list = h("div", { class: "cards" });
    this.rest = h("div", { class: "cards others" });
    this.known = false;
    this.line = "connecting";
    this.looks = 0; // asked for
    this.looked = 0; // the last one that counts
    this.standing = [];
    this.node = this.frame();
  }

  frame() {
    this.heading = h("h1", { tabindex: "-1" }, "");
    this.live = h("span", { class: "line", role: "status" }, LINES[this.line]);
    const lead = "Approve runs exactly what you see. If nobody answers in time, it is denied.";
    this.lead = h("p", { class: "lead" }, lead);
    const words =
      "When an agent needs your consent, it stops here and waits, for days if need be. Nothing " +
      "runs meanwhile.";
    const talk = h("a", { class: "button", href: "#/talk" }, "Talk to the agent");
    this.empty = h("div", { class: "empty" }, h("p", null, words), h("p", null, talk));
    this.others = h(
      "section",
      { class: "elsewhere", "aria-label": "Waiting for others" },
      h("h2", { class: "section" }, "Waiting for others"),
      this.rest,
    );
    const title = h("div", { class: "view-title" }, this.heading, this.live);
    const head = h("header", { class: "view-head" }, title, this.lead);
    return h("div", { class: "view inbox" }, head, this.empty, this.list, this.others);
  }

  get isLive() {
    return this.line === "live";
  }

  // The cards for this reader, in the order on the screen.
  get mine() {
    return [...this.cards.values()].filter((card) => card.mine);
  }

  get waiting() {
    return this.mine.filter((card) => !card.over);
  }

  // --- the line

  follow() {
    const heard = (name, data) => this.heard(name, data);
    const lined = (line) => this.lined(line);
    this.stream = new Follow("/v1/approvals/events", heard, lined, { seats: SEATS });
  }

  close() {
    this.stream?.close();
  }

  lined(line) {
    this.line = line;
    if (this.isLive) this.looked = this.looks += 1; // every earlier look is older than the line
    this.live.textContent = LINES[line] ?? line;
    this.live.className = `line ${line}`;
    if (this.isLive) return;
    this.standing = [];
    this.app.poke();
  }

  heard(name, data) {
    const over = {
      answered: () => answering(data.answered_by, data.option, this.app.me.person),
      closed: () => closing(data.closed_as),
      gone: () => ({ short: "gone", text: GONE }),
    }[name];
    if (over) this.end(data.id, over());
    else if (name === "requested") this.take([data]);
    else if (name === "standing") this.stand(data);
    else if (name === "gap") this.standing = [];
    if (name === "standing" && data.more) return;
    this.draw();
    this.app.poke();
  }

  end(id, how) {
    const card = this.cards.get(id);
    if (!card || card.over) return;
    card.close(how);
    if (card.over && card.mine) say(how.text); // not while our own answer is on its way
  }

  // All open prompts, in pages. A card that is on none of them is over.
  stand(page) {
    this.standing.push(...page.approvals);
    if (page.more) return;
    this.reconcile(this.standing);
    this.standing = [];
  }

  // Look again while there is no line. A look from before the line is older than the line, and only
  // the later one of two looks counts, whichever comes first: a prompt that an older look does not
  // know yet is not over.
  async refresh() {
    if (this.isLive) return;
    const number = (this.looks += 1);
    const found = await all("/v1/approvals", "approvals");
    if (this.isLive || number < this.looked) return;
    this.looked = number;
    this.reconcile(found);
    this.draw();
  }

  reconcile(found) {
    const standing = new Set(found.map((each) => each.id));
    for (const [id, card] of this.cards) {
      if (!standing.has(id)) card.close({ short: "over", text: ELSEWHERE });
    }
    this.take(found);
  }

  take(found) {
    found.sort((a, b) => (a.requested_at < b.requested_at ? -1 : 1));
    const fresh = found.filter((each) => !this.cards.has(each.id));
    for (const prompt of fresh) {
      const onDone = (card) => this.done(card);
      const onOpen = (card) => this.only(card);
      this.cards.set(prompt.id, new PromptCard(prompt, this.app.me, { onDone, onOpen }));
    }
    const mine = fresh.filter((each) => this.cards.get(each.id).mine);
    if (this.known && mine.length) {
      say(`${plural(mine.length, "prompt waits", "prompts wait")} for you.`, { urgent: true });
      for (const each of mine) this.app.notifications.announce(each);
    }
    this.known = true;
  }

  // --- drawing

  draw() {
    const { mine } = this;
    const others = [...this.cards.values()].filter((card) => !card.mine && !card.over);
    for (const card of mine) if (card.node.parentNode !== this.list) this.list.append(card.node);
    for (const card of others) if (card.node.parentNode !== this.rest) this.rest.append(card.node);
    this.forget((card) => !card.mine && card.over);
    if (!mine.some((card) => card.open)) this.waiting[0]?.show(true);
    const count = this.waiting.length;
    this.waiting.forEach((card, at) => card.placed(at + 1, count));
    const none = this.known ? "Nothing waits for you" : "Looking for prompts";
    const words = `${plural(count, "prompt waits", "prompts wait")} for you`;
    this.heading.textContent = count ? words : none;
    this.empty.hidden = mine.length > 0 || !this.known;
    this.lead.hidden = count === 0;
    this.others.hidden = others.length === 0;
    this.app.counted(count);
    measureSoon();
  }

  forget(isDone) {
    for (const [id, card] of this.cards) {
      if (!isDone(card)) continue;
      card.node.remove();
      this.cards.delete(id);
    }
  }

  // The answered card stays open with its result; the next one opens below it.
  done(card) {
    this.draw();
    this.waiting[0]?.show(true);
    card.node.querySelector(".outcome")?.focus();
    this.app.poke();
  }

  only(open) {
    for (const card of this.cards.values()) {
      if (card !== open && !card.busy) card.show(false);
    }
    open.node.scrollIntoView({ block: "nearest" });
  }

  enter() {
    this.forget((card) => card.over);
    this.draw();
    this.heading.focus();
  }
}
