// One conversation in a list: its title, its state, and how long ago it moved.

import { fill, h } from "../core/dom.js";
import { ago } from "../core/times.js";
import { PHASES, withoutMarks } from "../core/words.js";

export function sessionRow(each) {
  const place = `#/s/${each.session}`;
  const isHere = location.hash === place;
  const state = PHASES[each.phase] ?? each.phase;
  const title = each.title || each.session;
  // The number of prompts says already that it waits.
  const busy = each.waiting ? "" : state;
  const about = each.phase === "idle" ? withoutMarks(each.preview ?? "") || "at rest" : busy;
  const isNamed = title !== each.session;
  return h(
    "a",
    { class: "session", href: place, "aria-current": isHere ? "page" : null },
    h("i", { class: `dot p-${each.phase}`, "aria-hidden": "true" }),
    h("span", { class: "session-name", title: each.session }, title),
    each.waiting
      ? h("span", { class: "count" }, each.waiting, h("span", { class: "unseen" }, " waiting"))
      : null,
    h(
      "span",
      { class: "session-foot" },
      h(
        "span",
        { class: "session-about" },
        isNamed && h("span", { class: "session-id" }, each.session),
        isNamed && about && " · ",
        about,
      ),
      h("span", { class: "session-when" }, each.updated_at && ago(each.updated_at)),
    ),
  );
}

// Drawn anew with every look: the reader's place by keyboard stays.
export function refill(list, rows) {
  const active = document.activeElement;
  const held = list.contains(active) ? active.getAttribute("href") : null;
  fill(list, rows);
  if (!held) return;
  const same = [...list.children].find((each) => each.getAttribute("href") === held);
  same?.focus({ preventScroll: true });
}
