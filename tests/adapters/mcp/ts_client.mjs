// The two TypeScript clients of MCP, one story each. It prints one JSON object for each step.
// node ts_client.mjs PLACE sdk|client VERSION http|stdio proxy|serve COMMAND... (HOLDFAST_* in the environment)

import { createRequire } from "node:module";

const [place, library, version, transport, story, command, ...args] = process.argv.slice(2);
const load = createRequire(`${place}/package.json`);
const say = (event) => console.log(JSON.stringify(event));
const env = { ...process.env };

function connection(Stdio, Http) {
  if (transport === "stdio") return new Stdio({ command, args, env, stderr: "ignore" });
  const headers = { authorization: `Bearer ${env.HOLDFAST_TOKEN}` };
  return new Http(new URL(`${env.HOLDFAST_URL}/mcp/peer`), { requestInit: { headers } });
}

async function opened() {
  const info = { name: `typescript-${library}`, version: "1" };
  if (library === "sdk") {
    const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
    const { StreamableHTTPClientTransport } = load("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client(info);
    await client.connect(connection(StdioClientTransport, StreamableHTTPClientTransport));
    return [client, (params, options) => client.callTool(params, undefined, options)];
  }
  const { Client, StreamableHTTPClientTransport } = load("@modelcontextprotocol/client");
  const { StdioClientTransport } = load("@modelcontextprotocol/client/stdio");
  const mode = version === "2026-07-28" ? { pin: version } : "legacy";
  const client = new Client(info, { versionNegotiation: { mode } });
  await client.connect(connection(StdioClientTransport, StreamableHTTPClientTransport));
  return [client, (params, options) => client.callTool(params, options)];
}

const [client, call] = await opened();
const told = (result) => ({ isError: !!result.isError, text: result.content[0].text });
say({ tools: (await client.listTools()).tools.map((each) => each.name) });
if (story === "proxy") {
  const { allowed, gated } = JSON.parse(env.STORY);
  const options = { onprogress: ({ message }) => say({ progress: message }), resetTimeoutOnProgress: true };
  say({ allowed: told(await call(allowed, options)) });
  for (const each of gated) say({ gated: told(await call(each, options)) });
} else {
  say({ approvals: (await call({ name: "approvals", arguments: {} })).structuredContent });
  const uris = (await client.listResources()).resources.map((each) => each.uri);
  say({ resources: uris });
  say({ read: (await client.readResource({ uri: "holdfast://approvals" })).contents[0].text });
}
await client.close();
