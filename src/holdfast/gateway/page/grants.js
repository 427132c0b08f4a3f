// Remembered approvals: what runs without asking again, and how to take it back.

import { all, call } from "./api.js";
import { fill, h, say } from "./dom.js";
import { moment, told } from "./words.js";

export class Grants {
  constructor(app) {
    this.app = app;
    this.node = h("div", { class: "view grants" });
    this.heading = h("h1", { tabindex: "-1" }, "What you remembered");
    this.list = h("div", { class: "cards" });
    this.status = h("p", { class: "status", role: "status" });
    fill(this.node, h("header", { class: "view-head" }, this.heading, h("p", { class: "lead" }, "Calls that run without asking again, each for one person in one trust boundary, until its time is over.")), this.status, this.list);
  }

  async refresh() {
    const found = await all("/v1/grants", "grants");
    fill(this.list, found.length ? found.map((grant) => this.card(grant)) : h("div", { class: "empty" }, h("p", null, "Nothing is remembered. Every call that needs consent asks.")));
  }

  card(grant) {
    const mine = this.app.me.scopes.includes("approve");
    return h("article", { class: "grant", data: { grant: grant.id } },
      h("h2", null, h("code", null, grant.tool), ` for ${grant.requester}`),
      h("pre", { class: "display", tabindex: "0" }, grant.covers),
      h("p", { class: "dim" }, `given by ${grant.granted_by || "nobody"} · from ${grant.session} · since ${moment(grant.granted_at)} · until ${moment(grant.expires_at)}`),
      mine && h("button", { type: "button", class: "button no", on: { click: () => this.revoke(grant) } }, "Ask again from now on"));
  }

  async revoke(grant) {
    try {
      await call("DELETE", `/v1/grants/${grant.id}`);
      say(`${grant.tool} asks again.`);
      this.status.textContent = `${grant.tool} asks again from now on.`;
    } catch (error) {
      this.status.textContent = told(error);
    }
    await this.refresh().catch(() => {});  // a server that is away is told on every view
    this.heading.focus();
  }

  enter() { this.refresh().catch(() => {}); this.heading.focus(); }
}
