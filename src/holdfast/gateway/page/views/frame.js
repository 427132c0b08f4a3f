// The frame around the views: navigation, conversations, the reader, the help, and the note while
// the server is away.

import { arrange, fill, h, say } from "../core/dom.js";
import { icon } from "../core/icons.js";
import { when } from "../core/words.js";
import { mark } from "./brand.js";
import { refill, sessionRow } from "./session_row.js";

const RECENT_MAX = 60;
const TABS = [
  ["inbox", "#/inbox", "inbox", "1", "Waiting"],
  ["talk", "#/talk", "talk", "2", "Talk"],
  ["decisions", "#/decisions", "decisions", "3", "Decisions"],
  ["grants", "#/grants", "grant", "4", "Standing approvals", "Grants"],
  ["servers", "#/servers", "shield", "5", "Servers"],
];
const FOR_ADMINS = "servers";
const KEYS = [
  ["j / k", "next or previous card"],
  ["a / d", "move to Approve or Deny of the card"],
  ["Space", "press the focused button; Enter never answers a prompt"],
  ["n", "new conversation"],
  ["/", "write a message or search"],
  ["t", "light or dark"],
  ["?", "this help"],
];

export class Frame {
  constructor(app) {
    this.app = app;
    this.people = h("div", { class: "sessions" });
    this.main = h("main", { id: "main" });
    this.away = h("p", { class: "away-note", role: "alert", hidden: true });
    this.count = h("span", { class: "count", hidden: true });
    const tabs = TABS.filter(([name]) => name !== FOR_ADMINS || app.me.scopes.includes("admin"));
    this.help = helpDialog(tabs);
    this.brand = h(
      "a",
      { class: "brand", href: "#/inbox" },
      mark(),
      h("span", null, "Holdfast"),
    );
    this.views = h(
      "nav",
      { class: "tabs", "aria-label": "Views" },
      tabs.map((each) => this.tab(each)),
    );
    this.rest = [this.recent(), this.reader()];
    this.bar = h("header", { class: "bar" });
    this.node = h("div", { class: "frame" });
    const narrow = matchMedia("(max-width: 760px)");
    narrow.addEventListener("change", () => this.place(narrow.matches));
    this.place(narrow.matches);
  }

  // On a phone the views stand at the lower edge, so Tab reaches them last.
  place(isNarrow) {
    arrange(this.bar, this.brand, isNarrow ? null : this.views, this.rest);
    arrange(this.node, this.bar, this.main, this.away, isNarrow ? this.views : null);
  }

  // `short` is the name where five tabs share the width of a phone.
  tab([name, href, glyph, key, words, short]) {
    const names = [h("span", { class: "wide" }, words), h("span", { class: "narrow" }, short)];
    return h(
      "a",
      { class: "tab", href, data: { tab: name }, "aria-keyshortcuts": key },
      icon(glyph),
      h("span", { class: "tab-name" }, short ? names : words),
      name === "inbox" && this.count,
    );
  }

  recent() {
    const plus = { type: "button", class: "icon-button", "aria-label": "New conversation" };
    return h(
      "nav",
      { class: "recent", "aria-label": "Conversations" },
      h(
        "div",
        { class: "recent-head" },
        h("h2", { class: "section" }, "Conversations"),
        h("button", { ...plus, on: { click: () => this.app.fresh() } }, icon("plus")),
      ),
      this.people,
    );
  }

  reader() {
    const { me } = this.app;
    const button = (label, glyph, click) =>
      h(
        "button",
        { type: "button", class: "icon-button", "aria-label": label, on: { click } },
        icon(glyph),
      );
    const bell = button("Notifications", "bell", () => this.app.notifications.toggle());
    bell.classList.add("bell");
    bell.setAttribute("aria-pressed", "false");
    this.bell = bell;
    const may = `Your token may ${me.scopes.join(", ")}, in ${me.boundary}`;
    const name = { class: "me-name", title: may };
    const isPersonal = me.boundary === `personal:${me.person}`; // says the name again
    return h(
      "div",
      { class: "me" },
      h("span", name, me.person, !isPersonal && h("span", { class: "boundary" }, me.boundary)),
      bell,
      button("Light or dark", "sun", () => this.app.theme()),
      button("Help and keys", "help", () => this.help.showModal()),
      button("Sign out", "out", () => this.app.signOut()),
    );
  }

  show(name, node) {
    for (const tab of this.node.querySelectorAll(".tab")) {
      const isOn = tab.dataset.tab === (name === "list" ? "talk" : name);
      if (isOn) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
    this.main.className = `is-${name}`;
    fill(this.main, node);
  }

  drawSessions(sessions) {
    const none = h("p", { class: "dim" }, "No conversations yet.");
    const rows = sessions.slice(0, RECENT_MAX).map(sessionRow);
    refill(this.people, rows.length ? rows : none);
  }

  counted(count) {
    this.count.hidden = count === 0;
    const words = count === 1 ? " prompt waits" : " prompts wait";
    fill(this.count, String(count), h("span", { class: "unseen" }, words));
  }

  // The screen may be old while the server is away: every view says so, with its time.
  line(answers) {
    if (answers) this.heardAt = Date.now();
    if (this.away.hidden === answers) return;
    this.away.hidden = answers;
    const at = when(this.heardAt ?? Date.now());
    const words =
      `The server does not answer. What you see is from ${at}; nothing is lost, and this page ` +
      "keeps trying.";
    this.away.textContent = answers ? "" : words;
    if (answers) say("The server answers again.");
  }
}

function helpDialog(tabs) {
  const names = tabs.map(([, , , , name]) => name.toLowerCase());
  const toTabs = [`1 to ${tabs.length}`, names.join(", ")];
  const dialog = h("dialog", { class: "help", "aria-labelledby": "help-title" });
  const row = ([key, does]) =>
    h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, does));
  return fill(
    dialog,
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", null, [toTabs, ...KEYS].map(row)),
    h(
      "p",
      { class: "dim" },
      "You answer a prompt with a click, or with Space on its button. Enter, a word in a message " +
        "and silence never approve anything.",
    ),
    h(
      "button",
      { type: "button", class: "button main", on: { click: () => dialog.close() } },
      "Close",
    ),
  );
}
