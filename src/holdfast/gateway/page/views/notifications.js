// Browser notifications for "something waits for you": only after the reader asked for them, and
// only while the page is not on the screen. They name the tool and the conversation, never content.

import { say } from "../core/dom.js";

const KEY = "holdfast.notify";

export class Notifications {
  constructor(app) {
    this.app = app;
    this.isOn = this.isPossible && localStorage.getItem(KEY) === "on";
    this.draw();
  }

  get isPossible() {
    return "Notification" in window && Notification.permission !== "denied";
  }

  async toggle() {
    if (!this.isPossible) {
      say("This browser does not allow notifications here.", { urgent: true, seen: true });
      return;
    }
    if (!this.isOn && (await Notification.requestPermission()) !== "granted") {
      say("Notifications stay off: this browser was told not to show them.", { seen: true });
      return;
    }
    this.isOn = !this.isOn;
    localStorage.setItem(KEY, this.isOn ? "on" : "off");
    const on = "Notifications are on. You hear of a prompt while this page is in the background.";
    say(this.isOn ? on : "Notifications are off.", { seen: true });
    this.draw();
  }

  draw() {
    const { bell } = this.app.frame;
    bell.setAttribute("aria-pressed", String(this.isOn));
    bell.title = this.isOn ? "Notifications are on" : "Notify me when something waits for me";
  }

  // A prompt that waits for this reader has come.
  announce(prompt) {
    if (!this.isOn || !document.hidden || Notification.permission !== "granted") return;
    const what = prompt.kind === "question" ? "A question" : prompt.tool;
    const body = `${what} in ${prompt.session}`;
    const notice = new Notification("Something waits for you", { body, tag: prompt.id });
    notice.addEventListener("click", () => {
      window.focus();
      location.hash = "#/inbox";
      notice.close();
    });
  }
}
