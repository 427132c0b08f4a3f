// The answers to one prompt: two buttons that always stand in the same place, and a menu with the
// other options, each with its words. Enter presses none of them; a click or Space does.

import { serverAnswers } from "../core/api.js";
import { h, say } from "../core/dom.js";
import { OPTIONS } from "../core/words.js";

const ROWS_MAX = 14;
const MENU = ["approve_session", "approve_folder", "approve_everywhere", "edit"]; // fixed order

export class Choices {
  constructor(card) {
    this.card = card;
    const { prompt } = card;
    this.isQuestion = prompt.kind === "question";
    this.isLocked = prompt.risks?.length > 0 && !this.isQuestion;
    this.status = h("p", { class: "status", role: "status" });
    this.place = h("div", { class: "own-place" });
    this.node = h(
      "section",
      { class: "choices", "aria-label": "Your answer" },
      this.isLocked && this.confirmation(),
      this.isQuestion ? this.questionButtons() : this.approvalButtons(),
      this.place,
      this.status,
    );
    this.refresh();
  }

  // --- the buttons

  approvalButtons() {
    const { options } = this.card.prompt;
    const others = [...MENU, ...options].filter(
      (each, at, all) =>
        options.includes(each) &&
        !["approve_once", "deny"].includes(each) &&
        all.indexOf(each) === at,
    );
    const more = others.length ? this.menu(others) : null;
    return [
      h(
        "div",
        { class: "options" },
        options.includes("approve_once") && this.button("approve_once", "main"),
        options.includes("deny") && this.button("deny", "no"),
        this.restLink(),
        this.isLocked && this.fieldLink(),
      ),
      h("div", { class: "option-more" }, this.reasonButton(), more),
    ];
  }

  questionButtons() {
    const own = this.card.prompt.options.filter((each) => !["answer", "deny"].includes(each));
    return [
      this.answerBox(),
      h(
        "div",
        { class: "options" },
        own.map((each) => this.button(each, "plain")),
        this.button("answer", "main"),
        this.button("deny", "no"),
      ),
    ];
  }

  button(option, style) {
    const { prompt } = this.card;
    const isApproval = option.startsWith("approve");
    const name = this.nameOf(option);
    const covers = style === "plain" || this.isQuestion ? "" : (prompt.covers?.[option] ?? "");
    return h(
      "button",
      {
        type: "button",
        class: `option ${style}`,
        data: { option, consents: isApproval && !this.isQuestion ? "yes" : "no" },
        on: { click: () => this.card.press(option), keydown: (event) => this.key(event) },
      },
      h("span", { class: "option-name" }, name),
      covers && h("span", { class: "option-covers" }, covers),
      h("span", { class: "option-covers option-lock" }),
    );
  }

  nameOf(option) {
    if (this.isQuestion && option === "deny") return "Decline to answer";
    if (this.isQuestion && option !== "answer") return option; // the agent's own words
    return OPTIONS[option] ?? option;
  }

  menu(options) {
    const items = options.map((option) => {
      const button = this.button(option, "in-menu");
      return h("li", null, button);
    });
    const isLonger = options.some((option) => option.startsWith("approve"));
    const isEdit = options.includes("edit");
    const orChange = isEdit && h("span", { class: "wide" }, ", or change the call");
    const longer = ["Approve for longer", orChange];
    const summary = h("summary", null, isLonger ? longer : "Change the call");
    const menu = h("details", { class: "menu" }, summary, h("ul", null, items));
    menu.addEventListener("toggle", () => this.opened(menu));
    return menu;
  }

  // The menu lies below the buttons that stay in view. A second click is meant for its name, and
  // not for the option that came to its place.
  opened(menu) {
    if (!menu.open) return;
    this.card.moved();
    menu.scrollIntoView({ block: "nearest" });
  }

  // A bare Enter does not answer.
  key(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    this.tell("Enter presses nothing here. Space does.");
  }

  // --- words that go with an answer

  reasonButton() {
    const open = () => {
      const input = this.reason;
      input.hidden = false;
      this.reasonOpener.hidden = true;
      input.querySelector("input").focus();
    };
    const id = `r-${this.card.prompt.id}`;
    this.reason = h(
      "p",
      { class: "reason", hidden: true },
      h("label", { for: id }, "Why you deny it (the agent reads this)"),
      h("input", { id, type: "text", maxlength: 2000, autocomplete: "off" }),
    );
    this.reasonOpener = h(
      "button",
      { type: "button", class: "link-button", on: { click: open } },
      "Add a reason to Deny",
    );
    return [this.reasonOpener, this.reason];
  }

  get reasonText() {
    return this.reason?.querySelector("input").value.trim() || undefined;
  }

  answerBox() {
    const id = `w-${this.card.prompt.id}`;
    const on = {
      keydown: (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.card.press("answer");
      },
    };
    this.answer = h("textarea", { id, rows: 2, class: "answer-text", on });
    return h(
      "p",
      { class: "own" },
      h("label", { for: id }, "Your answer. The agent reads it. It approves nothing."),
      this.answer,
    );
  }

  confirmation() {
    const { prompt } = this.card;
    const id = `c-${prompt.id}`;
    const on = { input: () => this.refresh(), keydown: (event) => this.key(event) };
    const input = h("input", {
      id,
      class: "confirm",
      type: "text",
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      on,
    });
    const again = this.mayHaveRun ? " to run it again." : " to approve.";
    const ask = ["Type ", h("code", null, prompt.tool), again];
    return h(
      "p",
      { class: "confirmation" },
      h("label", { for: id }, this.warning(), " ", ask),
      input,
    );
  }

  // The buttons stay in view; the reasons and the field may lie outside of it.
  fieldLink() {
    const go = () => {
      const field = this.node.querySelector(".confirm");
      field.scrollIntoView({ block: "center" });
      field.focus({ preventScroll: true });
    };
    this.toField = h(
      "button",
      { type: "button", class: "link-button to-field to-confirm", on: { click: go } },
      "Show the field that unlocks Approve",
    );
    return this.toField;
  }

  // A text that is longer than the screen: Approve waits until all of it was in view.
  restLink() {
    const on = { click: () => this.card.reading.showNext() };
    const props = { type: "button", class: "link-button to-field to-rest" };
    this.toRest = h("button", { ...props, on });
    return this.toRest;
  }

  drawRest() {
    const { reading } = this.card;
    const isDone = reading.isWhole;
    if (isDone && !this.toRest.hidden && this.toRest.textContent) {
      say("All of the text was in view. Approve is unlocked.");
    }
    this.toRest.hidden = isDone;
    const words = `Show the rest of the text (${reading.percent}% seen). It unlocks Approve.`;
    if (!isDone && this.toRest.textContent !== words) this.toRest.textContent = words;
  }

  get mayHaveRun() {
    return this.card.prompt.risks.some((each) => each.kind === "in_doubt_twin");
  }

  warning() {
    return this.mayHaveRun ? "This may have run already. Check first." : "Look twice at this call.";
  }

  // Why a button can't be pressed now, or nothing if it can.
  whyLocked(button) {
    if (!serverAnswers()) return "Offline: no answer can be saved now.";
    if (button.dataset.consents !== "yes") return "";
    if (!this.card.reading.isWhole) return "Read all of the text first.";
    if (this.isLocked && !this.isTyped) return `Type ${this.card.prompt.tool} first.`;
    return "";
  }

  get isTyped() {
    return this.node.querySelector(".confirm")?.value === this.card.prompt.tool;
  }

  // Every button, by what is known now: the line to the server, the text that was in view, the
  // typed name.
  refresh() {
    for (const each of this.node.querySelectorAll(".option")) {
      const why = this.whyLocked(each);
      each.disabled = why !== "";
      const words = each.querySelector(".option-lock");
      if (words.textContent !== why) words.textContent = why;
    }
    for (const each of this.node.querySelectorAll("button:not(.option)")) each.disabled = false;
    if (this.toField) this.toField.hidden = this.isTyped;
    if (this.toRest) this.drawRest();
  }

  lock() {
    for (const each of this.node.querySelectorAll("button")) each.disabled = true;
  }

  // --- other values for the call

  edit() {
    const id = `e-${this.card.prompt.id}`;
    const value = JSON.stringify(this.card.prompt.arguments, null, 2);
    const rows = Math.min(ROWS_MAX, value.split("\n").length + 1);
    const text = h("textarea", { id, class: "code", rows, spellcheck: "false", value });
    const send = () => {
      let given;
      try {
        given = JSON.parse(text.value);
      } catch (error) {
        this.tell(`This is not valid JSON: ${error.message}`, true);
        return;
      }
      this.card.send({ option: "edit", arguments: given });
    };
    const key = (event) => this.key(event);
    const close = () => {
      this.place.replaceChildren();
      this.card.focus();
    };
    this.place.replaceChildren(
      h(
        "div",
        { class: "own" },
        h("label", { for: id }, "Other values, as JSON. You see the new call before it runs."),
        text,
        h(
          "div",
          { class: "row" },
          h(
            "button",
            { type: "button", class: "button main", on: { click: send, keydown: key } },
            "Show me the new call",
          ),
          h("button", { type: "button", class: "button", on: { click: close } }, "Back"),
        ),
      ),
    );
    text.focus();
  }

  tell(text, isBad = false) {
    this.status.textContent = text;
    this.status.classList.toggle("bad", isBad);
  }
}
