// Standing approvals: calls that run without asking, each with the words of the prompt that gave
// it, its giver and its end. The requester and the giver may revoke.

import { all, call } from "../core/api.js";
import { fill, h, say } from "../core/dom.js";
import { moment, told } from "../core/words.js";

export class Grants {
  constructor(app) {
    this.app = app;
    this.heading = h("h1", { tabindex: "-1" }, "Standing approvals");
    this.list = h("div", { class: "cards" });
    this.status = h("p", { class: "status", role: "status" });
    const words = "These run without asking, until the date shown. Each one is called a grant.";
    const lead = h("p", { class: "lead" }, words);
    const head = h("header", { class: "view-head" }, this.heading, lead);
    this.node = h("div", { class: "view grants" }, head, this.status, this.list);
  }

  async refresh() {
    const found = await all("/v1/grants", "grants");
    const none = "No standing approvals. Every call that needs consent asks.";
    const empty = h("div", { class: "empty" }, h("p", null, none));
    fill(this.list, found.length ? found.map((grant) => this.card(grant)) : empty);
  }

  card(grant) {
    const mayRevoke = this.app.me.scopes.includes("approve");
    // Where it was given says nothing about where it holds: the words above do.
    const given = `Given by ${grant.granted_by || "an unknown person"} in `;
    const times = ` on ${moment(grant.granted_at)} · ends ${moment(grant.expires_at)}`;
    const place = h("a", { href: `#/s/${grant.session}` }, grant.session);
    return h(
      "article",
      { class: "grant", data: { grant: grant.id } },
      h("h2", null, h("code", null, grant.tool), ` for ${grant.requester}`),
      h("pre", { class: "display", tabindex: "0" }, grant.covers),
      h("p", { class: "dim" }, given, place, times),
      mayRevoke &&
        h(
          "button",
          { type: "button", class: "button no", on: { click: () => this.revoke(grant) } },
          "Revoke",
        ),
    );
  }

  async revoke(grant) {
    try {
      await call("DELETE", `/v1/grants/${grant.id}`);
      say(`${grant.tool} asks again.`);
      this.status.textContent = `Revoked: ${grant.tool} asks again from now on.`;
    } catch (error) {
      this.status.textContent = told(error);
    }
    await this.refresh().catch(() => {}); // a server that is away is reported on every view
    this.heading.focus();
  }

  enter() {
    this.status.textContent = "";
    this.refresh().catch(() => {});
    this.heading.focus();
  }
}
