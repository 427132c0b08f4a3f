// All conversations: a filter by words of the title and by state, and a search in what was said.

import { get } from "../core/api.js";
import { fill, h, say } from "../core/dom.js";
import { icon } from "../core/icons.js";
import { plural, told, when, withoutMarks } from "../core/words.js";
import { refill, sessionRow } from "./session_row.js";

const SEARCH_AFTER_MS = 250;
const FILTERS = [
  ["all", "All", () => true],
  ["waiting", "Waiting", (each) => each.waiting > 0],
  ["working", "Working", (each) => !["idle", "parked", "sealed"].includes(each.phase)],
  ["sealed", "Sealed", (each) => each.phase === "sealed"],
];

export class Conversations {
  constructor(app) {
    this.app = app;
    this.filter = "all";
    this.sessions = null;
    this.heading = h("h1", { tabindex: "-1" }, "Conversations");
    this.rows = h("div", { class: "rows" });
    this.hits = h("div", { class: "hits" });
    this.status = h("p", { class: "status", role: "status" });
    this.rowsHead = h("h2", { class: "section", hidden: true });
    this.hitsHead = h("h2", { class: "section", hidden: true });
    const find = { id: "find", type: "search", placeholder: "Search titles and messages" };
    const on = { input: () => this.typed() };
    this.find = h("input", { ...find, "aria-label": "Search conversations", on });
    this.buttons = FILTERS.map(([name, words]) => this.filterButton(name, words));
    const fresh = { type: "button", class: "button main", on: { click: () => app.fresh() } };
    this.node = h(
      "div",
      { class: "view" },
      h(
        "header",
        { class: "view-head is-row" },
        this.heading,
        h("button", fresh, icon("plus"), h("span", null, "New conversation")),
      ),
      h(
        "div",
        { class: "filters" },
        this.find,
        h("div", { class: "filter-buttons", role: "group", "aria-label": "State" }, this.buttons),
      ),
      this.status,
      this.rowsHead,
      this.rows,
      this.hitsHead,
      this.hits,
    );
  }

  filterButton(name, words) {
    const click = () => {
      this.filter = name;
      this.redraw();
    };
    const props = { type: "button", class: "chip", data: { filter: name }, on: { click } };
    return h("button", { ...props, "aria-pressed": String(name === this.filter) }, words);
  }

  enter() {
    this.heading.focus();
  }

  draw(sessions) {
    this.sessions = sessions;
    this.redraw();
  }

  redraw() {
    if (this.sessions === null || !this.node.isConnected) return;
    for (const each of this.buttons) {
      each.setAttribute("aria-pressed", String(each.dataset.filter === this.filter));
    }
    const words = this.find.value.trim().toLowerCase();
    const fits = FILTERS.find(([name]) => name === this.filter)[2];
    const named = (each) => `${each.title ?? ""} ${each.session} ${each.preview}`.toLowerCase();
    const found = this.sessions.filter((each) => fits(each) && named(each).includes(words));
    const none = this.sessions.length
      ? "No conversation fits."
      : "No conversation yet. Begin one; the agent asks before it acts.";
    const empty = h("div", { class: "empty" }, h("p", null, none));
    this.rowsHead.hidden = !words;
    const count = plural(found.length, "conversation", "conversations");
    this.rowsHead.textContent = `${count} by title, name or last message`;
    refill(this.rows, found.length ? found.map(sessionRow) : empty);
  }

  typed() {
    this.redraw();
    clearTimeout(this.searching);
    this.searching = setTimeout(() => this.search(), SEARCH_AFTER_MS);
  }

  async search() {
    const words = this.find.value.trim();
    fill(this.hits);
    this.hitsHead.hidden = true;
    this.status.textContent = "";
    if (words.length < 2) return;
    try {
      const { hits } = await get(`/v1/search?q=${encodeURIComponent(words)}&limit=30`);
      if (words !== this.find.value.trim()) return; // an older search came late
      this.hitsHead.hidden = false;
      this.hitsHead.textContent = `${plural(hits.length, "message", "messages")} with these words`;
      say(`${this.rowsHead.textContent}; ${this.hitsHead.textContent}.`);
      const titles = new Map(this.sessions?.map((each) => [each.session, each.title]));
      const row = (hit) => hitRow(hit, titles.get(hit.session) || hit.session);
      fill(this.hits, hits.map(row));
    } catch (error) {
      this.status.textContent = told(error);
    }
  }
}

function hitRow(hit, title) {
  return h(
    "a",
    { class: "session hit", href: `#/s/${hit.session}` },
    h("i", { class: "dot", "aria-hidden": "true" }),
    h("span", { class: "session-name", title: hit.session }, title),
    h(
      "span",
      { class: "session-foot" },
      h("span", { class: "session-about" }, `${hit.who ?? "agent"}: ${withoutMarks(hit.snippet)}`),
      h("span", { class: "session-when" }, when(hit.at)),
    ),
  );
}
