// Signing in with a token, and the page while the server lets nobody in.

import { whoIs } from "../core/api.js";
import { h } from "../core/dom.js";
import { told } from "../core/words.js";
import { brand } from "./brand.js";

const UNKNOWN = "This server does not know that token. Did you copy all of it?";

export function signInForm(why, entered) {
  const input = h("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    "aria-describedby": "token-help",
    placeholder: "hf_…",
  });
  const wrong = h("p", { class: "status bad", role: "alert" }, why || "");
  const submit = async (event) => {
    event.preventDefault();
    const token = input.value.trim();
    try {
      if (await whoIs(token)) {
        entered(token);
        return;
      }
      wrong.textContent = UNKNOWN;
    } catch (error) {
      wrong.textContent = told(error);
    }
    input.focus();
  };
  const command = "holdfast tokens add NAME --as YOU --scopes read,send,approve".split(" ");
  const words = command.map((word) => [h("span", { class: "word" }, word), " "]);
  const form = h(
    "form",
    { on: { submit } },
    h("label", { for: "token" }, "Your token"),
    input,
    h(
      "p",
      { id: "token-help", class: "dim" },
      "It stays in this tab. The owner of this Holdfast makes one with ",
      h("code", { class: "command" }, words),
    ),
    wrong,
    h("button", { class: "button main", type: "submit" }, "Sign in"),
  );
  const lead = h(
    "p",
    null,
    "Open the address that ",
    h("code", null, "holdfast serve"),
    " printed: it carries a code that works once. Or paste a token.",
  );
  const props = { class: "signin", id: "main" };
  const node = h("main", props, brand(), h("h1", null, "Sign in"), lead, form);
  return { node, focus: () => input.focus() };
}

export function waitingRoom(error) {
  const isThere = Boolean(error.status);
  const title = isThere ? "The server lets nobody in now" : "The server does not answer";
  const next = isThere
    ? "This page goes on by itself."
    : [
        "If it was stopped: ",
        h("code", null, "holdfast serve"),
        " starts it, and this page goes on by itself.",
      ];
  return h(
    "main",
    { class: "signin", id: "main" },
    brand(),
    h("h1", null, title),
    h("p", { role: "status" }, told(error)),
    h("p", { class: "dim" }, next),
  );
}
