// The head of a conversation: its title and a way to give another one, whether its history holds,
// and the line to the server.

import { post } from "../core/api.js";
import { fill, h, say } from "../core/dom.js";
import { icon } from "../core/icons.js";
import { told } from "../core/words.js";
import { Verification } from "./verification.js";

export class Head {
  constructor(talk) {
    this.talk = talk;
    this.heading = h("h1", { tabindex: "-1" }, talk.session);
    this.name = h("span", { class: "talk-id" });
    this.badge = h("button", {
      type: "button",
      class: "integrity",
      hidden: true,
      on: { click: () => new Verification(talk).open() },
    });
    this.live = h("span", { class: "line", role: "status" });
    const back = { class: "icon-button back", href: "#/talk", "aria-label": "All conversations" };
    const rename = { type: "button", class: "icon-button rename", "aria-label": "Rename" };
    const click = () => this.rename();
    this.pen = h("button", { ...rename, hidden: true, on: { click } }, icon("edit"));
    this.title = h("div", { class: "talk-title" }, this.heading, this.name);
    this.node = h(
      "header",
      { class: "view-head talk-head" },
      h("a", back, icon("back")),
      this.title,
      this.pen,
      this.badge,
      this.live,
    );
  }

  // Anybody who may send here, and who may read the title, may give another one.
  get mayRename() {
    const { facts, app, isGone } = this.talk;
    return Boolean(facts?.title) && !facts.sealed && !isGone && app.me.scopes.includes("send");
  }

  rename() {
    const { talk } = this;
    const close = () => {
      form.replaceWith(this.title);
      this.isRenaming = false;
      this.pen.hidden = !this.mayRename;
      this.pen.focus();
    };
    const save = async (event) => {
      event.preventDefault();
      try {
        const { title } = await post(`${talk.path}/title`, { title: text.value });
        if (talk.facts) talk.facts.title = title;
        close();
        talk.look();
        talk.app.poke();
        this.draw();
        say(`The title is ${title}.`);
      } catch (error) {
        wrong.textContent = told(error);
      }
    };
    const key = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      close();
    };
    const about = { class: "title-input", maxlength: 80, "aria-label": "Title" };
    const text = h("input", { ...about, value: talk.facts.title });
    const wrong = h("p", { class: "status bad", role: "alert" });
    const cancel = { type: "button", class: "button small", on: { click: close } };
    const form = h(
      "form",
      { class: "title-form", on: { submit: save, keydown: key } },
      h("h1", { class: "unseen" }, "Rename this conversation"),
      text,
      h("button", { class: "button small main" }, "Save"),
      h("button", cancel, "Cancel"),
      wrong,
    );
    this.title.replaceWith(form);
    this.isRenaming = true;
    this.pen.hidden = true;
    text.select();
    text.focus();
  }

  draw() {
    const { talk } = this;
    if (!this.isRenaming) this.pen.hidden = !this.mayRename;
    const title = talk.facts?.title || talk.session;
    if (this.heading.textContent !== title) this.heading.textContent = title;
    this.name.textContent = title === talk.session ? "" : talk.session;
    if (talk.app.talk === talk) talk.app.named(title);
    const words = {
      live: "live",
      away: "reconnecting",
      connecting: "connecting",
      absent: talk.isGone ? "deleted" : "new",
    };
    this.live.textContent = words[talk.line] ?? talk.line;
    this.live.className = `line ${talk.line}`;
    this.drawBadge();
  }

  drawBadge() {
    const { facts } = this.talk;
    const sealed = facts?.sealed;
    const intact = h("span", null, h("span", { class: "wide" }, "history "), "intact");
    const damaged = h("span", null, "sealed", h("span", { class: "wide" }, ": history damaged"));
    const words = sealed ? damaged : intact;
    fill(this.badge, facts ? [icon(sealed ? "broken" : "shield"), words] : null);
    this.badge.className = `integrity ${sealed ? "bad" : "good"}`;
    this.badge.title = "Check every record now, in front of you";
    this.badge.hidden = !facts || this.talk.isGone;
  }
}
