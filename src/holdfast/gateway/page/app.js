// The page: who is signed in, which view is shown, and the keys that move between views.

import * as api from "./core/api.js";
import { fill, h, say } from "./core/dom.js";
import { told } from "./core/words.js";
import { Talk } from "./talk/talk.js";
import { Conversations } from "./views/conversations.js";
import { Decisions } from "./views/decisions.js";
import { Frame } from "./views/frame.js";
import { Grants } from "./views/grants.js";
import { Inbox } from "./views/inbox.js";
import { Notifications } from "./views/notifications.js";
import { Servers } from "./views/servers.js";
import { signInForm, waitingRoom } from "./views/sign_in.js";

const POLL_MS = 4000;
const POKE_MS = 120;
const AGAIN_MS = 1500;
const QUIET_POLLS = 4; // while the inbox is live it also tells when to look at the conversations
const SESSION = /^#\/s\/([a-z0-9][a-z0-9._-]{0,63}\/[a-z0-9][a-z0-9._-]{0,63})$/;
const PLACES = {
  "#/talk": "list",
  "#/grants": "grants",
  "#/decisions": "decisions",
  "#/servers": "servers",
};
const TITLES = {
  inbox: "Waiting",
  list: "Conversations",
  grants: "Standing approvals",
  decisions: "Decisions",
  servers: "MCP servers",
};

class App {
  constructor() {
    this.root = document.getElementById("app");
    this.views = {};
    this.sessions = null; // until the first look
    api.onSignedOut((why) => this.signIn(why));
    api.onLine((answers) => this.line(answers));
    const theme = localStorage.getItem("holdfast.theme");
    if (theme) document.documentElement.dataset.theme = theme;
  }

  async start() {
    const code = /^#code=([A-Za-z0-9_-]+)$/.exec(location.hash);
    if (code) {
      history.replaceState(null, "", "#/inbox");
      try {
        api.keep((await api.post("/v1/codes", { code: code[1] })).token);
      } catch (error) {
        if (!api.hasToken()) {
          this.signIn(told(error));
          return;
        }
      }
    }
    if (api.hasToken()) await this.enter();
    else this.signIn("");
  }

  async enter() {
    try {
      this.me = await api.get("/v1/me");
    } catch (error) {
      if (!api.hasToken()) return;
      setTimeout(() => this.enter(), AGAIN_MS);
      fill(this.root, waitingRoom(error));
      return;
    }
    if (!this.me.scopes.some((scope) => scope === "read" || scope === "admin")) {
      api.forget();
      this.signIn("That token may not look at anything here: it lacks the scope read.");
      return;
    }
    this.show();
    await this.poll();
  }

  show() {
    this.frame = new Frame(this);
    this.notifications = new Notifications(this);
    fill(this.root, this.frame.node, this.frame.help);
    this.views.inbox = new Inbox(this);
    this.views.grants = new Grants(this);
    this.views.decisions = new Decisions(this);
    this.views.servers = new Servers(this);
    this.views.list = new Conversations(this);
    addEventListener("hashchange", () => this.route());
    addEventListener("keydown", (event) => this.key(event));
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // places of this page are its views
      this.frame.main.tabIndex = -1;
      this.frame.main.focus();
    });
    document.addEventListener("visibilitychange", () => this.poke());
    this.polls = 0;
    this.polling = setInterval(() => this.pollIfDue(), POLL_MS);
    this.views.inbox.follow();
    this.route(); // once, and at once: a second time would lose typed text
  }

  signIn(why) {
    clearInterval(this.polling);
    this.views.inbox?.close();
    this.talk?.close();
    this.talk = null;
    this.frame = null;
    const entered = (token) => {
      api.keep(token);
      location.hash = "#/inbox";
      location.reload();
    };
    const form = signInForm(why, entered);
    fill(this.root, form.node);
    document.title = "Sign in · Holdfast";
    form.focus();
  }

  signOut() {
    api.forget();
    this.signIn("You are signed out of this tab.");
  }

  // --- views

  route() {
    if (!this.frame) return; // signed out: there is no place to go, and a token may be half typed
    const session = SESSION.exec(location.hash)?.[1];
    const name = session ? "talk" : (PLACES[location.hash] ?? "inbox");
    this.talk?.close();
    this.talk = session ? new Talk(this, session) : null;
    const view = this.talk ?? this.views[name];
    this.title = session ?? TITLES[name];
    this.frame.show(name, view.node);
    this.retitle();
    this.drawSessions();
    view.enter();
  }

  get view() {
    const session = SESSION.exec(location.hash);
    return session ? this.talk : this.views[PLACES[location.hash] ?? "inbox"];
  }

  fresh() {
    const day = new Date().toISOString().slice(0, 10);
    location.hash = `#/s/talk/${day}-${api.newId().slice(0, 5)}`;
  }

  // --- looking

  pollIfDue() {
    this.polls += 1;
    const isQuiet = this.views.inbox.isLive || document.hidden;
    const isDue = !isQuiet || this.polls % QUIET_POLLS === 0;
    // A hidden page looks only for a reader who asked to be notified: it has given its line up.
    if (isDue && (!document.hidden || this.notifications.isOn)) this.poll();
  }

  async poll() {
    try {
      await this.views.inbox.refresh();
      const found = await api.all("/v1/sessions", "sessions");
      const last = (each) => each.updated_at ?? "";
      this.sessions = found.sort(
        (a, b) => last(b).localeCompare(last(a)) || a.session.localeCompare(b.session),
      );
      this.drawSessions();
    } catch {
      /* the request reported it; the next look comes soon */
    }
  }

  // A card takes no answer while the server is away. This page looks until it is back.
  line(answers) {
    if (!this.frame) return;
    this.frame.line(answers);
    if (!answers) {
      clearTimeout(this.looking);
      this.looking = setTimeout(() => this.poll(), AGAIN_MS);
    }
    if (answers === this.answered) return;
    this.answered = answers;
    for (const view of [this.views.inbox, this.talk]) {
      for (const card of view?.cards.values() ?? []) card.lined();
    }
  }

  poke() {
    clearTimeout(this.poking);
    this.poking = setTimeout(() => this.poll(), POKE_MS);
  }

  drawSessions() {
    if (this.sessions === null || !this.frame) return;
    this.frame.drawSessions(this.sessions);
    this.views.list.draw(this.sessions);
  }

  counted(count) {
    this.waitingCount = count;
    this.frame?.counted(count);
    this.retitle();
  }

  named(title) {
    if (this.title === title) return;
    this.title = title;
    this.retitle();
  }

  retitle() {
    const count = this.waitingCount ? `(${this.waitingCount}) ` : "";
    document.title = `${count}${this.title || "Waiting"} · Holdfast`;
  }

  // --- keys

  key(event) {
    if (!this.frame) return;
    const isTyping = event.target.closest("input, textarea, select, dialog");
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping) {
      if (event.key === "Escape" && event.target.matches("textarea, input")) event.target.blur();
      return;
    }
    const go = (hash) => () => {
      location.hash = hash;
    };
    const act = {
      1: go("#/inbox"),
      2: go("#/talk"),
      3: go("#/decisions"),
      4: go("#/grants"),
      5: go("#/servers"),
      j: () => this.step(1),
      k: () => this.step(-1),
      a: () => this.focusedCard()?.focusOption("approve_once"),
      d: () => this.focusedCard()?.focusOption("deny"),
      n: () => this.fresh(),
      "/": () => (document.getElementById("say") ?? document.getElementById("find"))?.focus(),
      t: () => this.theme(),
      "?": () => this.frame.help.showModal(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  // The cards that wait for this reader in the view on the screen.
  get cards() {
    return this.talk
      ? this.talk.waiting
      : this.view === this.views.inbox
        ? this.views.inbox.mine
        : [];
  }

  focusedCard() {
    const { cards } = this;
    const focused = cards.find((card) => card.node.contains(document.activeElement));
    return focused ?? cards.find((card) => card.open) ?? cards[0];
  }

  step(by) {
    const { cards } = this;
    if (!cards.length) return;
    const held = cards.findIndex((card) => card.node.contains(document.activeElement));
    const at = held >= 0 ? held : by > 0 ? -1 : cards.length;
    const next = cards[Math.min(cards.length - 1, Math.max(0, at + by))];
    next.show(true);
    if (!this.talk) this.views.inbox.only(next);
    next.node.scrollIntoView({ block: "nearest" });
    next.focus();
  }

  theme() {
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme || (isDark ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    localStorage.setItem("holdfast.theme", next);
    document.documentElement.dataset.theme = next;
    say(`${next} colours`);
  }
}

new App().start();
