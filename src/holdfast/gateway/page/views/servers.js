// MCP servers: each tool with everything that it would bring to a model, shown whole, and the
// difference to what was pinned. Only an admin's token sees this view.

import { get, post } from "../core/api.js";
import { fill, h, say } from "../core/dom.js";
import { told } from "../core/words.js";
import { diffIn } from "../text/diff.js";
import { diffView } from "../text/diff_view.js";

const TRANSPORTS = { stdio: "a program on this machine", http: "a server in the network" };
const STATES = {
  pinned: "pinned: models may use it",
  new: "new: no model sees it",
  changed: "changed since it was pinned: withdrawn",
  removed: "gone from the server: withdrawn",
};

export class Servers {
  constructor(app) {
    this.app = app;
    this.heading = h("h1", { tabindex: "-1" }, "MCP servers");
    this.list = h("div", { class: "cards" });
    this.status = h("p", { class: "status", role: "status" });
    const words = "Models use a server's tool only after a person has read all of it.";
    const lead = h("p", { class: "lead" }, words);
    const head = h("header", { class: "view-head" }, this.heading, lead);
    this.node = h("div", { class: "view servers" }, head, this.status, this.list);
  }

  async refresh() {
    const { servers } = await get("/v1/mcp");
    const none = "No servers. holdfast.toml names them under [mcp.NAME].";
    const empty = h("div", { class: "empty" }, h("p", null, none));
    fill(this.list, servers.length ? servers.map((server) => this.server(server)) : empty);
  }

  server(server) {
    const kind = TRANSPORTS[server.transport] ?? server.transport;
    const line = `${kind}; ${server.problem || "it answers"}`;
    return h(
      "section",
      { class: "server", data: { server: server.server } },
      h("h2", null, h("code", null, server.server)),
      h("p", { class: "dim" }, line),
      server.tools.map((tool) => this.tool(server, tool)),
      (server.refused || []).map((each) =>
        h("p", { class: "dim" }, `${each.name} can't be used: ${each.reason}`),
      ),
    );
  }

  tool(server, tool) {
    const body = h("div", { class: "tool-text" });
    const read = h(
      "button",
      { type: "button", class: "button", on: { click: () => this.read(server, tool, body) } },
      "Read all of it",
    );
    return h(
      "article",
      { class: "grant", data: { tool: tool.name, state: tool.state } },
      h("h3", null, h("code", null, tool.name)),
      h("p", null, STATES[tool.state]),
      tool.state !== "removed" && server.state === "ok" && read,
      tool.state === "pinned" && this.withdrawButton(tool),
      body,
    );
  }

  // The whole text first; the button that decides comes after it.
  async read(server, tool, body) {
    try {
      const { tools } = await get(`/v1/mcp/${server.server}`);
      const shown = tools.find((each) => each.name === tool.name);
      fill(body, shown ? this.whole(shown) : h("p", null, "The server no longer has it."));
    } catch (error) {
      this.status.textContent = told(error);
    }
  }

  whole(shown) {
    const framed = shown.diff && diffIn(`change:\n${bars(shown.diff)}`);
    return [
      shown.warnings.map((each) => h("p", { class: "warning" }, each)),
      h("pre", { class: "display", tabindex: "0" }, shown.text),
      shown.diff && h("h4", null, "The difference to what was pinned"),
      framed ? diffView(framed) : shown.diff && h("pre", { class: "display" }, shown.diff),
      h("p", { class: "dim" }, `Fingerprint ${shown.digest}`),
      shown.state !== "pinned" && this.mayDecide() && this.pinButton(shown),
    ];
  }

  mayDecide() {
    return this.app.me.scopes.includes("approve");
  }

  pinButton(shown) {
    return h(
      "button",
      { type: "button", class: "button main", on: { click: () => this.pin(shown) } },
      `Let models use ${shown.name}, exactly so`,
    );
  }

  withdrawButton(tool) {
    return (
      this.mayDecide() &&
      h(
        "button",
        { type: "button", class: "button no", on: { click: () => this.unpin(tool) } },
        "Withdraw",
      )
    );
  }

  async pin(shown) {
    const tools = [{ name: shown.name, digest: shown.digest }];
    await this.decide("/v1/pins", { tools }, `${shown.name} is pinned.`);
  }

  async unpin(tool) {
    await this.decide("/v1/pins/withdraw", { tools: [tool.name] }, `${tool.name} is withdrawn.`);
  }

  async decide(path, body, words) {
    try {
      await post(path, body);
      say(words);
      this.status.textContent = words;
    } catch (error) {
      this.status.textContent = told(error);
    }
    await this.refresh().catch(() => {}); // a server that is away is reported on every view
    this.heading.focus();
  }

  enter() {
    this.status.textContent = "";
    this.refresh().catch((error) => {
      this.status.textContent = told(error);
    });
    this.heading.focus();
  }
}

function bars(text) {
  return text
    .split("\n")
    .map((line) => `| ${line}`)
    .join("\n");
}
