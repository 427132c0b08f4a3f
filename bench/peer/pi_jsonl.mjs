// The session manager of a public coding agent, which gateways keep their sessions with too: one file of JSON Lines a session.
// As work.py has it: import, work; what BENCH_WORK holds are its sizes.

const [, , asked, folder] = process.argv;
const place = `${process.env.BENCH_NODE_MODULES}/@mariozechner/pi-coding-agent/dist/core/session-manager.js`;

const began = performance.now();
const { SessionManager } = await import(place);
if (asked === "import") {
  console.log(JSON.stringify({ import: (performance.now() - began) * 1000 }));
  process.exit(0);
}

const { lengths, appends, loads, sessions, tasks, seconds, text } = JSON.parse(process.env.BENCH_WORK);

function message(number) {
  const timestamp = 1_700_000_000_000 + number;
  if (number % 2 === 0) return { role: "user", content: text, timestamp };
  const usage = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0 };
  return { role: "assistant", content: [{ type: "text", text }], api: "none", provider: "none", model: "instant", usage, stopReason: "stop", timestamp };
}

function filled(length) {
  const session = SessionManager.create(folder, `${folder}/sessions`);
  for (let number = 0; number < length; number++) session.appendMessage(message(number));
  return session;
}

function medianUs(times, work) {
  const found = [];
  for (let time = 0; time < times; time++) {
    const started = performance.now();
    work();
    found.push((performance.now() - started) * 1000);
  }
  return found.sort((a, b) => a - b)[Math.floor(times / 2)];
}

async function many() {
  const all = Array.from({ length: sessions }, () => filled(2));
  const started = performance.now();
  let done = 0;
  async function task(first) {
    do {
      for (let number = first; number < sessions; number += tasks) {
        all[number].appendMessage(message(0));
        done += 1;
        await null;
      }
    } while (performance.now() - started < seconds * 1000);
  }
  await Promise.all(Array.from({ length: tasks }, (_, first) => task(first)));
  return done / ((performance.now() - started) / 1000);
}

const found = { append: {}, turn: {} };
for (const length of lengths) {
  const session = filled(length);
  found.append[length] = medianUs(appends, () => session.appendMessage(message(0)));
  if (length === 1000) {
    const file = session.getSessionFile();
    found.load = medianUs(loads, () => SessionManager.open(file).buildSessionContext().messages);
  }
}
for (const length of [10, 1000]) found.turn[length] = "not offered";
for (const each of ["pause", "list", "parked_bytes"]) found[each] = "not offered";
found.many = await many();
found.durability = "JSON Lines written without a sync: what was said survives kill -9, not a power cut; nothing is written before a model's first answer";
console.log(JSON.stringify(found));
