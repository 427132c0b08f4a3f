// A turn, again: drag through its records and see the picture as it was then, with the crash and
// the resumption.

import { fill, h } from "../core/dom.js";
import { eventName, when } from "../core/words.js";
import { storyOf } from "./story.js";
import { timeline } from "./timeline.js";

export class Replay {
  constructor(talk, turnId) {
    this.talk = talk;
    this.turnId = turnId;
    this.at = null; // how many of the turn's records are shown; null for all
    this.picture = h("div", { class: "replay-picture" });
    this.words = h("output", { class: "replay-words" });
    this.range = h("input", {
      type: "range",
      class: "replay-range",
      min: 1,
      step: 1,
      "aria-label": "Replay the turn, record by record",
      on: { input: () => this.move() },
    });
    this.node = h("div", { class: "replay" }, this.picture, this.range, this.words);
  }

  get records() {
    return this.talk.records.filter((each) => each.body.turn === this.turnId);
  }

  draw(turn) {
    const count = this.records.length;
    this.range.hidden = count < 2;
    this.range.max = String(Math.max(1, count));
    if (this.at === null) this.range.value = String(count);
    if (this.at === null || this.at >= count) this.show(turn, turn.endedAt ?? Date.now());
    return this.node;
  }

  move() {
    const { records } = this;
    const count = Number(this.range.value);
    this.at = count >= records.length ? null : count;
    const part = records.slice(0, count);
    const last = part.at(-1);
    const turn = storyOf(part).turns.get(this.turnId);
    if (turn) this.show(turn, last.at, last, count);
  }

  show(turn, now, last = null, count = 0) {
    fill(this.picture, timeline(turn, now));
    const about = last && `${count}. ${eventName(last.type)}, ${when(last.at)}`;
    this.words.textContent = about ?? "Drag to replay this turn.";
  }
}
