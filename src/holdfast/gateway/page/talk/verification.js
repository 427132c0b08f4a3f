// "History intact", pressed: the server reads every record from its disk and checks it, one after
// the other, in front of the reader.

import { fill, h } from "../core/dom.js";
import { Follow } from "../core/follow.js";
import { eventName, when } from "../core/words.js";

const ROWS_MAX = 200; // the last ones; the count has all
const SEAM = "a segment of the journal begins or ends"; // checked with the record after it

export class Verification {
  constructor(talk) {
    this.talk = talk;
    this.last = 0; // the last record that was checked
    this.words = h("p", { class: "verify-words", role: "status" }, "Reading the journal…");
    this.bar = h("progress", { class: "verify-bar", max: 1, value: 0, "aria-label": "Verified" });
    this.rows = h("ol", { class: "verify-rows", tabindex: "0", "aria-label": "Records" });
    const close = h(
      "button",
      { type: "button", class: "button main", on: { click: () => this.dialog.close() } },
      "Close",
    );
    this.dialog = h(
      "dialog",
      { class: "verify", "aria-labelledby": "verify-title" },
      h("h2", { id: "verify-title" }, "Verify the history"),
      h(
        "p",
        { class: "dim" },
        "Each record carries a keyed code over itself and the record before it. The server reads " +
          "all of them from its disk now and compares.",
      ),
      this.bar,
      this.words,
      this.rows,
      close,
    );
    this.dialog.addEventListener("close", () => {
      this.stream?.close();
      this.dialog.remove();
    });
  }

  open() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    addEventListener("hashchange", () => this.dialog.close(), { once: true });
    const heard = (name, data) => this.heard(name, data);
    this.stream = new Follow(`${this.talk.path}/verify`, heard, (line) => {
      if (line === "away" && !this.isDone) this.words.textContent = "The server does not answer.";
    });
  }

  heard(name, data) {
    if (name === "checked") this.checked(data.records, data.of);
    else if (name === "verdict") this.verdict(data);
  }

  checked(records, of) {
    const last = records.at(-1).seq;
    this.bar.max = Math.max(1, of);
    this.bar.value = last;
    this.words.textContent = `Verified up to record ${last} of ${of}`;
    for (const { seq, type, at, mac } of records) {
      for (let own = this.last + 1; own < seq; own += 1) this.row(own, SEAM);
      const code = h("code", { class: "dim" }, `${mac.slice(0, 12)}…`);
      this.row(seq, `${eventName(type)}, ${when(at)} `, code);
      this.last = seq;
    }
    while (this.rows.childElementCount > ROWS_MAX) this.rows.firstElementChild.remove();
    this.rows.scrollTop = this.rows.scrollHeight;
  }

  row(seq, ...about) {
    this.rows.append(h("li", { value: seq }, h("span", { class: "ok" }, "✓ "), ...about));
  }

  verdict({ holds, records, detail }) {
    this.isDone = true;
    this.stream?.close();
    const words = holds
      ? `All ${records} records are intact.`
      : `The history does not hold after record ${records}: ${detail}`;
    this.bar.classList.toggle("is-bad", !holds);
    fill(this.words, h("b", { class: holds ? "good" : "bad" }, words));
  }
}
