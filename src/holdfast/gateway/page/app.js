// The page: signing in, the frame around the views, and the keys that move between them.

import * as api from "./api.js";
import { fill, h, icon, say } from "./dom.js";
import { Grants } from "./grants.js";
import { Inbox } from "./inbox.js";
import { Talk } from "./talk.js";
import { ago } from "./ticking.js";
import { PHASES, told, when } from "./words.js";

const POLL_MS = 4000;
const QUIET_POLLS = 4;  // while the inbox has a live line, which also tells when to look at the conversations again, only every so many
const KEYS = [["1", "what waits for you"], ["2", "conversations"], ["3", "what you remembered"], ["j / k", "next or previous prompt"], ["n", "new conversation"], ["/", "write a message"], ["t", "light or dark"], ["?", "this help"], ["Space", "press the focused button; Enter never answers a prompt"]];

class App {
  constructor() {
    this.root = document.getElementById("app");
    this.views = {};
    this.sessions = null;  // until somebody has looked
    api.onSignedOut((why) => this.signIn(why));
    api.onLine((answers) => this.line(answers));
    this.theme(localStorage.getItem("holdfast.theme"));
  }

  async start() {
    const code = /^#code=([A-Za-z0-9_-]+)$/.exec(location.hash);
    if (code) {
      history.replaceState(null, "", "#/inbox");
      try {
        api.keep((await api.post("/v1/codes", { code: code[1] })).token);
      } catch (error) {
        if (!api.hasToken()) { this.signIn(told(error)); return; }
      }
    }
    if (!api.hasToken()) { this.signIn(""); return; }
    await this.enter();
  }

  async enter() {
    try {
      this.me = await api.get("/v1/me");
    } catch (error) {
      if (api.hasToken()) { setTimeout(() => this.enter(), 1500); fill(this.root, h("main", { class: "signin", id: "main" }, brand(), h("h1", null, error.status ? "Nobody is let in now" : "The server does not answer"), h("p", { role: "status" }, told(error)), h("p", { class: "dim" }, error.status ? "This page goes on by itself." : ["If it was stopped: ", h("code", null, "holdfast serve"), " starts it, and this page goes on by itself."]))); }
      return;
    }
    if (!this.me.scopes.some((scope) => scope === "read" || scope === "admin")) {
      api.forget();
      this.signIn("That token may not look at anything here: it lacks the scope read.");
      return;
    }
    this.frame();
    this.views.inbox = new Inbox(this);
    this.views.grants = new Grants(this);
    addEventListener("hashchange", () => this.route());
    addEventListener("keydown", (event) => this.key(event));
    document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); this.main.tabIndex = -1; this.main.focus(); });  // places of this page are its views
    document.addEventListener("visibilitychange", () => this.poke());
    this.polls = 0;
    this.polling = setInterval(() => this.pollIfDue(), POLL_MS);
    this.views.inbox.follow();
    this.route();  // once, and at once: a second time would lose what somebody types meanwhile
    await this.poll();
  }

  signIn(why) {
    clearInterval(this.polling);
    this.views.inbox?.close();
    this.talk?.close();
    this.talk = null;
    const input = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", "aria-describedby": "token-help", placeholder: "hf_…" });
    const wrong = h("p", { class: "status bad", role: "alert" }, why || "");
    const form = h("form", { on: { submit: async (event) => {
      event.preventDefault();
      api.keep(input.value.trim());
      try { await api.get("/v1/me"); location.hash = "#/inbox"; location.reload(); } catch (error) { api.forget(); wrong.textContent = told(error); input.focus(); }
    } } }, h("label", { for: "token" }, "Your token"), input, h("p", { id: "token-help", class: "dim" }, "It stays in this tab. The home's owner makes one with ", h("code", null, "holdfast tokens add NAME --as YOU --scopes read,send,approve")), wrong, h("button", { class: "button main", type: "submit" }, "Sign in"));
    fill(this.root, h("main", { class: "signin", id: "main" }, brand(), h("h1", null, "Who are you?"), h("p", null, "Open the address that ", h("code", null, "holdfast serve"), " printed: it carries a code that works once. Or bring a token."), form));
    document.title = "Sign in · Holdfast";
    input.focus();
  }

  frame() {
    const link = (name, href, glyph, key) => h("a", { class: "tab", href, data: { tab: name }, "aria-keyshortcuts": key }, icon(glyph), h("span", { class: "tab-name" }, { inbox: "Waiting", talk: "Talk", grants: "Remembered" }[name]), name === "inbox" && (this.count = h("span", { class: "count", hidden: true })));
    this.people = h("div", { class: "sessions" });
    this.main = h("main", { id: "main" });
    this.away = h("p", { class: "away-note", role: "alert", hidden: true });
    this.help = this.helpDialog();
    fill(this.root, h("div", { class: "frame" },
      h("header", { class: "bar" }, h("a", { class: "brand", href: "#/inbox" }, mark(), h("span", null, "Holdfast")),
        h("nav", { class: "tabs", "aria-label": "Views" }, link("inbox", "#/inbox", "inbox", "1"), link("talk", "#/talk", "talk", "2"), link("grants", "#/grants", "grant", "3")),
        h("nav", { class: "recent", "aria-label": "Conversations" }, h("div", { class: "recent-head" }, h("h2", { class: "section" }, "Conversations"), h("button", { type: "button", class: "icon-button", "aria-label": "New conversation", on: { click: () => this.fresh() } }, icon("plus"))), this.people),
        h("div", { class: "me" }, h("span", { class: "me-name", title: `scopes: ${this.me.scopes.join(", ")}` }, this.me.person, h("span", { class: "circle" }, this.me.boundary)),
          h("button", { type: "button", class: "icon-button", "aria-label": "Light or dark", on: { click: () => this.theme("next") } }, icon("sun")),
          h("button", { type: "button", class: "icon-button", "aria-label": "Help and keys", on: { click: () => this.help.showModal() } }, icon("help")),
          h("button", { type: "button", class: "icon-button", "aria-label": "Sign out", on: { click: () => { api.forget(); this.signIn("You are signed out of this tab."); } } }, icon("out")))),
      this.main, this.away), this.help);
  }

  // What is on the screen may be old while the server is away: said on every view, with the time it is from.
  line(answers) {
    if (answers) this.heardAt = Date.now();
    if (!this.away || this.away.hidden === answers) return;
    this.away.hidden = answers;
    this.away.textContent = answers ? "" : `The server does not answer. What you see is from ${when(this.heardAt ?? Date.now())}; nothing is lost, and this page keeps trying.`;
    if (answers) say("The server answers again.");
  }

  helpDialog() {
    const dialog = h("dialog", { class: "help", "aria-labelledby": "help-title" });
    return fill(dialog, h("h2", { id: "help-title" }, "Keys"), h("dl", null, KEYS.map(([key, does]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, does)))),
      h("p", { class: "dim" }, "A prompt is answered by a click or by Space on its button, never by Enter, by a word in a message or by silence."),
      h("button", { type: "button", class: "button main", on: { click: () => dialog.close() } }, "Close"));
  }

  route() {
    if (!this.main?.isConnected) return;  // signed out: there is no place to go, and a token may be half typed
    const talk = /^#\/s\/([a-z0-9][a-z0-9._-]{0,63}\/[a-z0-9][a-z0-9._-]{0,63})$/.exec(location.hash);
    const name = talk ? "talk" : { "#/talk": "list", "#/grants": "grants" }[location.hash] || "inbox";
    for (const tab of document.querySelectorAll(".tab")) {
      const on = tab.dataset.tab === (name === "list" ? "talk" : name);
      if (on) tab.setAttribute("aria-current", "page"); else tab.removeAttribute("aria-current");
    }
    this.talk?.close();
    this.talk = null;
    this.main.className = `is-${name}`;
    let view;
    if (talk) view = this.talk = new Talk(this, talk[1]);
    else if (name === "list") view = this.listView();
    else view = this.views[name];
    fill(this.main, view.node);
    this.title = talk ? talk[1] : { inbox: "Waiting", list: "Conversations", grants: "Remembered" }[name];
    this.retitle();
    this.drawSessions();
    view.enter();
  }

  listView() {
    const heading = h("h1", { tabindex: "-1" }, "Conversations");
    const rows = h("div", { class: "rows" });
    const node = h("div", { class: "view" }, h("header", { class: "view-head" }, heading, h("button", { type: "button", class: "button main", on: { click: () => this.fresh() } }, icon("plus"), h("span", null, "New conversation"))), rows);
    this.listed = rows;
    this.drawSessions();
    return { node, enter: () => heading.focus() };
  }

  fresh() {
    const day = new Date().toISOString().slice(0, 10);
    location.hash = `#/s/talk/${day}-${api.newId().slice(0, 5)}`;
  }

  pollIfDue() {
    this.polls += 1;
    if (!document.hidden && (!this.views.inbox.isLive || this.polls % QUIET_POLLS === 0)) this.poll();
  }

  async poll() {
    try {
      await this.views.inbox.refresh();
      const found = await api.all("/v1/sessions", "sessions");
      this.sessions = found.sort((a, b) => (b.updated_at ?? "").localeCompare(a.updated_at ?? "") || a.session.localeCompare(b.session));  // what moved last first
      this.drawSessions();
    } catch { /* told by whoever asked; the next look comes soon */ }
  }

  poke() {
    clearTimeout(this.poking);
    this.poking = setTimeout(() => this.poll(), 120);
  }

  drawSessions() {
    if (this.sessions === null) return;
    const row = (each) => h("a", { class: "session", href: `#/s/${each.session}`, "aria-current": location.hash === `#/s/${each.session}` ? "page" : null },
      h("i", { class: `dot p-${each.phase}`, "aria-hidden": "true" }), h("span", { class: "session-name" }, each.session), each.waiting ? h("span", { class: "count" }, each.waiting) : null,
      h("span", { class: "session-when" }, each.updated_at && ago(each.updated_at)),
      h("span", { class: "session-about" }, each.phase === "idle" ? each.preview || "at rest" : PHASES[each.phase] || each.phase));
    if (this.people) refill(this.people, this.sessions.length ? this.sessions.slice(0, 60).map(row) : h("p", { class: "dim" }, "None yet."));
    if (this.listed?.isConnected || (this.listed && location.hash === "#/talk")) refill(this.listed, this.sessions.length ? this.sessions.map(row) : h("div", { class: "empty" }, h("p", null, "No conversation yet. Begin one; the agent asks before it acts.")));
  }

  counted(count) {
    this.waitingCount = count;
    this.count.hidden = count === 0;
    fill(this.count, String(count), h("span", { class: "unseen" }, count === 1 ? " prompt waits" : " prompts wait"));
    this.retitle();
  }

  retitle() { document.title = `${this.waitingCount ? `(${this.waitingCount}) ` : ""}${this.title || "Waiting"} · Holdfast`; }

  theme(wanted) {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    let now = document.documentElement.dataset.theme;
    if (wanted === "next") { now = (now || (dark ? "dark" : "light")) === "dark" ? "light" : "dark"; localStorage.setItem("holdfast.theme", now); say(`${now} colours`); } else now = wanted;
    if (now === "dark" || now === "light") document.documentElement.dataset.theme = now;
  }

  key(event) {
    if (!this.main.isConnected) return;
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) {
      if (event.key === "Escape" && event.target.matches("textarea, input")) event.target.blur();
      return;
    }
    const act = {
      1: () => { location.hash = "#/inbox"; }, 2: () => { location.hash = "#/talk"; }, 3: () => { location.hash = "#/grants"; },
      j: () => this.views.inbox.node.isConnected && this.views.inbox.step(1), k: () => this.views.inbox.node.isConnected && this.views.inbox.step(-1),
      n: () => this.fresh(), "/": () => document.getElementById("say")?.focus(), t: () => this.theme("next"), "?": () => this.help.showModal(),
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  }
}

// Drawn anew whenever somebody has looked: whoever moves by keyboard stays where they are.
function refill(list, rows) {
  const held = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  fill(list, rows);
  if (held) [...list.children].find((each) => each.getAttribute("href") === held)?.focus({ preventScroll: true });
}

function brand() {
  return h("div", { class: "brand big" }, mark(), h("span", null, "Holdfast"));
}

function mark() {
  return h("img", { class: "mark", src: "/assets/icon.svg", alt: "", width: 28, height: 28 });
}

new App().start();
