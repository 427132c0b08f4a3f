// One conversation: its messages, calls and prompts, live; beside it the turn as a picture, and
// whether its history can be believed. This module follows the session; the others draw.

import { get, post } from "../core/api.js";
import { fill, h, say } from "../core/dom.js";
import { Follow } from "../core/follow.js";
import { TURNS, answering, closing, plural, told } from "../core/words.js";
import { PromptCard } from "../prompts/card.js";
import { Story, storyOf } from "../story/story.js";
import { Composer } from "./composer.js";
import { Head } from "./head.js";
import { Log } from "./log.js";
import { promptFromRecord } from "./prompt_record.js";
import { Side } from "./side.js";

const LOOK_SOON_MS = 150;
const PART_RECORDS = 400; // one part of a long conversation: about fifty turns

export class Talk {
  constructor(app, session) {
    this.app = app;
    this.session = session;
    this.path = `/v1/sessions/${session}`;
    this.cards = new Map();
    this.facts = null;
    this.line = "connecting";
    this.begin();
    this.log = new Log(this);
    this.composer = new Composer(this);
    this.side = new Side(this);
    this.head = new Head(this);
    const heading = h("h2", { class: "unseen" }, "Messages");
    const main = h("div", { class: "talk-main" }, heading, this.log.node, this.composer.node);
    this.body = h("div", { class: "talk-body" }, main);
    this.side.place();
    this.node = fill(h("div", { class: "view talk" }), this.head.node, this.body);
    this.draw();
    this.open();
    this.tick = setInterval(() => {
      if (this.turns.some((turn) => turn.open) || this.side.hasJobs) this.side.draw();
    }, 1000);
  }

  begin() {
    this.story = new Story();
    this.records = []; // from `firstSeq` to the last one, without a hole
    this.firstSeq = 1; // earlier records are loaded when the reader asks for them
    this.hasHeard = false;
  }

  get turns() {
    return [...this.story.turns.values()];
  }

  close() {
    this.isClosed = true;
    this.stream?.close();
    clearInterval(this.tick);
    this.side.close();
  }

  // --- reading

  // The last part first, then live from there. A short conversation is one part.
  async open() {
    await this.look();
    const seq = this.facts?.seq ?? 0;
    if (seq > PART_RECORDS) {
      const part = await this.part(seq + 1).catch(() => null);
      if (this.isClosed) return;
      if (part?.length) this.takePart(part);
    }
    if (!this.isClosed) this.follow();
  }

  async part(before) {
    const found = await get(`${this.path}/records?before=${before}&limit=${PART_RECORDS}`);
    return found.records;
  }

  takePart(part) {
    this.records = [...part, ...this.records];
    this.firstSeq = this.records[0]?.seq ?? 1;
    this.story = storyOf(this.records);
    this.log.forget();
    this.hasHeard = true;
    this.draw();
  }

  async earlier() {
    if (this.firstSeq <= 1 || this.isLoading) return;
    this.isLoading = true;
    try {
      const part = await this.part(this.firstSeq);
      if (part.length && !this.isClosed) this.log.keepPlace(() => this.takePart(part));
      else this.firstSeq = 1;
    } catch (error) {
      say(told(error), { urgent: true });
    } finally {
      this.isLoading = false;
      this.draw();
    }
  }

  follow() {
    this.stream?.close();
    const cursor = this.records.length ? String(this.records.at(-1).seq) : null;
    const lined = (line) => {
      this.line = line;
      if (line === "live") this.composer.clearError();
      this.head.draw();
      this.drawSoon();
    };
    const heard = (name, data) => this.heard(name, data);
    this.stream = new Follow(`${this.path}/events`, heard, lined, { cursor });
  }

  async look() {
    const number = (this.looks = (this.looks ?? 0) + 1);
    let { facts } = this;
    try {
      facts = await get(this.path);
    } catch (error) {
      if (error.status === 404) facts = null;
    }
    if (number < (this.looked ?? 0) || this.isClosed) return; // a later look came before it
    this.looked = number;
    this.facts = facts;
    this.head.draw();
    this.composer.draw();
    this.side.draw();
    this.focusBox(!facts?.waiting);
  }

  lookSoon() {
    clearTimeout(this.looking);
    this.looking = setTimeout(() => this.look(), LOOK_SOON_MS);
  }

  heard(name, data) {
    if (name === "record") this.record(data);
    else if (name === "delta") this.story.delta(data);
    else if (name === "standing") this.standing(data.approvals);
    else if (name === "sealed") {
      say("This session is sealed.", { urgent: true });
      this.look();
      this.app.poke();
    } else if (name === "restart") this.anew();
    else if (name === "end" && data.reason === "gone") this.app.poke();
    if (name !== "delta") this.sideDue = true; // pieces come by the frame and change nothing there
    this.drawSoon();
  }

  record(data) {
    this.hasHeard = true;
    this.records.push(data);
    this.story.take(data);
    const { type, body } = data;
    if (type.startsWith("approval_") || type === "turn_ended") this.app.poke();
    if (type === "approval_closed" || type === "approval_answered") this.overtaken(body);
    if (type === "turn_ended") {
      const ended = `The turn ended: ${TURNS[body.outcome] ?? body.outcome}.`;
      say(body.reply ? `Answered: ${body.reply.slice(0, 300)}` : ended);
    }
    this.lookSoon();
  }

  // Another session of the same name.
  anew() {
    this.begin();
    this.cards.clear();
    this.log.forget();
  }

  // It was there, and is deleted.
  get isGone() {
    return this.line === "absent" && this.story.turns.size > 0;
  }

  // --- prompts

  standing(approvals) {
    for (const prompt of approvals) this.card(prompt);
    const words = plural(approvals.length, "prompt still stands", "prompts still stand");
    if (approvals.length) say(`${words} here.`);
  }

  card(prompt) {
    let card = this.cards.get(prompt.id);
    if (!card) {
      const onDone = () => {
        this.app.poke();
        this.drawSoon();
      };
      card = new PromptCard(prompt, this.app.me, { link: false, onDone });
      card.show(true);
      this.cards.set(prompt.id, card);
    }
    return card;
  }

  cardOf(turn, call) {
    if (call.state !== "waiting" || !call.asked) return this.cards.get(call.approval) ?? null;
    return this.card(promptFromRecord(this.session, turn, call));
  }

  overtaken(body) {
    const card = this.cards.get(body.approval);
    if (!card) return;
    const isAnswer = Boolean(body.by);
    card.close(
      isAnswer
        ? answering(body.by, body.option, this.app.me.person)
        : closing(body.closed_as, body.reason),
    );
  }

  // The cards that wait for this reader, in the order on the screen.
  get waiting() {
    const shown = [...this.cards.values()].filter((card) => card.node.isConnected && !card.over);
    return shown.filter((card) => card.mine);
  }

  // --- acting

  // The person who asked may stop a turn, and an admin; a job, each person of its boundary.
  mayStop(turn, isOwn = turn.requester === this.app.me.person) {
    const { scopes } = this.app.me;
    return scopes.includes("admin") || (isOwn && scopes.includes("send"));
  }

  // The turn that this reader can stop: one that runs or is about to, before one that waits.
  get running() {
    const open = this.turns.filter((turn) => !turn.outcome && this.mayStop(turn));
    return open.find((turn) => !turn.waiting) ?? open[0];
  }

  async stop() {
    const turn = this.running;
    if (!turn) return;
    try {
      await post(`${this.path}/cancel`, { turn: turn.id });
      say("Stopped.");
    } catch (error) {
      this.composer.fail(told(error));
    }
  }

  // After a message to a session that was not there.
  sent() {
    if (this.line === "absent") {
      this.anew();
      this.line = "connecting";
      this.follow();
    }
    this.app.poke();
  }

  // --- drawing

  drawSoon() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      if (!this.isClosed) this.draw();
    });
  }

  draw() {
    this.log.draw();
    const { waiting } = this;
    waiting.forEach((card, at) => card.placed(at + 1, waiting.length));
    this.composer.draw();
    this.focusBox(false);
    if (this.sideDue ?? true) {
      this.sideDue = false;
      this.side.draw();
    }
    this.log.settle();
  }

  // The box takes the focus only where nothing waits, or a question that it answers. On a phone its
  // keyboard would cover the messages, so it never does there.
  enter() {
    this.isEntering = !matchMedia("(max-width: 760px)").matches;
    this.head.heading.focus({ preventScroll: true });
    const listed = this.app.sessions?.find((each) => each.session === this.session);
    this.focusBox(this.app.sessions !== null && !listed?.waiting);
  }

  focusBox(isFree) {
    if (!this.isEntering || this.composer.isMute) return;
    if (document.activeElement !== this.head.heading) this.isEntering = false;
    else if ((isFree && this.composer.mayTakeFocus) || this.composer.question) {
      this.isEntering = false;
      this.composer.text.focus({ preventScroll: true });
    }
  }

  get heading() {
    return this.head.heading;
  }
}
