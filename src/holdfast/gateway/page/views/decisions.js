// Decisions: who approved or denied which call, when, why, and its result. Filters by person, tool,
// conversation and time; export as CSV and JSON Lines.

import { get, text } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { CALLS, answering, closing, inBrief, moment, told } from "../core/words.js";

// How an answer arrived. A token says nothing about whether a person or a program used it.
const WAYS = {
  script: "with a token or by a script",
  terminal: "in a terminal",
  page: "on the page",
  channels: "in a channel",
};
const FIELDS = [
  ["person", "Person", "alice"],
  ["tool", "Tool", "shell"],
  ["session", "Conversation", "ops/api"],
];
const EXPORTS = [
  ["csv", "CSV", "text/csv"],
  ["jsonl", "JSON Lines", "application/jsonl"],
];

export class Decisions {
  constructor(app) {
    this.app = app;
    this.heading = h("h1", { tabindex: "-1" }, "Decisions");
    this.list = h("div", { class: "decision-list" });
    this.status = h("p", { class: "status", role: "status" });
    const changed = () => this.refresh();
    const field = (name, label, type, placeholder) => {
      const id = `d-${name}`;
      const input = h("input", { id, name, type, placeholder, on: { change: changed } });
      return h("p", { class: "filter" }, h("label", { for: id }, label), input);
    };
    const more = () => this.refresh(this.next);
    this.more = h(
      "button",
      { type: "button", class: "button", hidden: true, on: { click: more } },
      "More",
    );
    this.form = h(
      "form",
      { class: "filters", on: { submit: (event) => event.preventDefault() } },
      FIELDS.map(([name, label, example]) => field(name, label, "text", example)),
      field("since", "From", "date", ""),
      field("until", "To", "date", ""),
    );
    const exports = EXPORTS.map(([format, label, type]) => {
      const click = () => this.download(format, type);
      return h("button", { type: "button", class: "button", on: { click } }, `Export ${label}`);
    });
    const lead = "Who approved or denied which call, when, why, and its result.";
    this.node = h(
      "div",
      { class: "view decisions" },
      h("header", { class: "view-head" }, this.heading, h("p", { class: "lead" }, lead)),
      this.form,
      h("div", { class: "row exports" }, exports),
      this.status,
      this.list,
      this.more,
    );
  }

  enter() {
    this.heading.focus();
    this.refresh();
  }

  get query() {
    const found = new URLSearchParams();
    for (const input of this.form.querySelectorAll("input")) {
      const value = input.value.trim();
      if (!value) continue;
      // A day is meant in the reader's own time zone; "to" includes the whole day.
      const end = input.name === "until" ? "T23:59:59.999" : "T00:00:00";
      found.set(input.name, input.type === "date" ? new Date(value + end).toISOString() : value);
    }
    return found;
  }

  async refresh(after = null) {
    const query = this.query;
    query.set("limit", "100");
    if (after) query.set("after", after);
    const number = (this.looks = (this.looks ?? 0) + 1);
    try {
      const found = await get(`/v1/decisions?${query}`);
      if (number !== this.looks) return;
      const rows = found.decisions.map(decisionRow);
      const isFiltered = [...this.form.querySelectorAll("input")].some((input) => input.value);
      const words = isFiltered
        ? "No decision fits these filters."
        : "No decisions yet. Every answer to a prompt, and every prompt that closed, is kept here.";
      const none = h("div", { class: "empty" }, h("p", null, words));
      if (after) this.list.append(...rows);
      else fill(this.list, rows.length ? rows : none);
      this.next = found.next;
      this.more.hidden = !found.next;
      this.status.textContent = "";
    } catch (error) {
      this.status.textContent = told(error);
    }
  }

  async download(format, type) {
    const query = this.query;
    try {
      const content = await text(`/v1/decisions.${format}?${query}`);
      const address = URL.createObjectURL(new Blob([content], { type }));
      const link = document.createElement("a");
      link.href = address;
      link.download = `decisions.${format}`;
      link.click();
      URL.revokeObjectURL(address);
    } catch (error) {
      this.status.textContent = told(error);
    }
  }
}

function decisionRow(each) {
  const isDenied = each.option === "deny" || each.closed_as !== null;
  const isGood = ["ok", null].includes(each.outcome);
  const tone = isDenied ? "is-denied" : isGood ? "is-approved" : "is-bad";
  const verdict = each.closed_as
    ? closing(each.closed_as).text
    : answering(each.answered_by, each.option).text;
  const running = each.job ? "none yet; it runs in the background" : "none so far";
  const result = each.outcome ? (CALLS[each.outcome] ?? each.outcome) : running;
  const about = h(
    "p",
    { class: "dim" },
    h("code", { class: "tool" }, each.tool),
    ` for ${each.requester ?? "an unknown person"} in `,
    h("a", { href: `#/s/${each.session}` }, each.session),
    ` · ${moment(each.answered_at ?? each.requested_at)}`,
    each.way && ` · ${WAYS[each.way] ?? each.way}`,
  );
  return h(
    "article",
    { class: `decision ${tone}`, data: { approval: each.id } },
    h("h2", null, h("code", null, inBrief(each.arguments ?? each.display) || each.tool)),
    h("p", { class: "verdict" }, verdict, each.reason && [" ", h("q", null, each.reason)]),
    about,
    // The verdict of a call that did not run is all of its result.
    !isDenied && h("p", { class: "result-line" }, `Result: ${result}`),
    !isDenied &&
      each.text &&
      h("details", null, h("summary", null, "Output"), h("pre", { tabindex: "0" }, each.text)),
  );
}
