// The real client of npm, driven step by step: each line of stdin is one run, each line of stdout
// its end as the client's own state machine accepted it. It throws on a stream that breaks a rule.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [packages, url, token, threadId] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const { HttpAgent } = require("@ag-ui/client");
const agent = new HttpAgent({ url, threadId, headers: { Authorization: `Bearer ${token}` } });
console.warn = console.error = (...words) => process.stderr.write(`${words.join(" ")}\n`);

async function run({ say, id, runId, resume, forget }) {
  if (say) agent.addMessage({ id, role: "user", content: say });
  if (forget) agent.pendingInterrupts = []; // as after a reload of the page
  const events = [];
  try {
    const { result, newMessages } = await agent.runAgent(
      { runId, ...(resume ? { resume } : {}) },
      { onEvent: ({ event }) => void events.push(event.type) },
    );
    return { ok: true, result, newMessages, events };
  } catch (error) {
    return { ok: false, error: String(error), events };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const told = await run(JSON.parse(line));
  process.stdout.write(
    `${JSON.stringify({ ...told, interrupts: agent.pendingInterrupts, messages: agent.messages })}\n`,
  );
}
