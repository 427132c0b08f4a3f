// Times and names in plain words.

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export function span(ms) {
  if (ms < 950) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.round(ms / 1000);
  for (const [size, unit] of UNITS) {
    if (seconds >= size) {
      const whole = Math.floor(seconds / size);
      const rest = UNITS.find(([other]) => other < size);
      const more = rest ? Math.floor((seconds % size) / rest[0]) : 0;
      return more && size > 1 ? `${whole} ${unit} ${more} ${rest[1]}` : `${whole} ${unit}`;
    }
  }
  return "now";
}

// "in 6 d 23 h", "2 min ago"
export function away(iso, now = Date.now()) {
  const ms = new Date(iso).getTime() - now;
  if (Math.abs(ms) < 1000) return "now";
  return ms > 0 ? `in ${span(ms)}` : `${span(-ms)} ago`;
}

export function when(at) {
  const date = new Date(at);
  const today = new Date().toDateString() === date.toDateString();
  return date.toLocaleString([], today ? { hour: "2-digit", minute: "2-digit" } : { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
}

export function moment(iso) {
  return new Date(iso).toLocaleString([], { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
}

const SOON_MS = 60 * 60 * 1000;

// Whether somebody who looks now and comes back after lunch would come too late.
export function isSoon(iso, now = Date.now()) { return new Date(iso).getTime() - now < SOON_MS; }

export const PHASES = {
  idle: "at rest", queued: "queued", ready: "about to think", calling_model: "thinking", deciding: "weighing", running: "working",
  parked: "waits for a person", cancelling: "stopping", sealed: "sealed",
};

export const OPTIONS = {
  approve_once: "Approve once",
  approve_session: "Approve for this session",
  approve_folder: "Approve in this folder",
  approve_everywhere: "Approve everywhere",
  edit: "Edit the arguments…",
  deny: "Deny",
  answer: "Answer in your own words…",
};

// How a prompt ended that nobody answered, in a word and in a sentence.
const CLOSED = {
  expired: "Nobody answered in time, so it was denied. Nothing ran.",
  superseded: "A later message took its place. Nothing ran.",
  cancelled: "It was cancelled. Nothing ran.",
  voided: "What would have run is not what was shown any more, so it was not run.",
};

export function closing(as, reason) { return { short: as, text: CLOSED[as] ?? `Closed: ${reason || as}.` }; }

// How one ended that somebody answered.
export function answering(by, option) { const words = String(option).replaceAll("_", " "); return { short: `${by}: ${words}`, text: `${by} answered: ${words}.` }; }

export function circle(prompt) {
  return prompt.boundary || prompt.audience || "unknown";
}

// The most telling line of a call, to know it again by. What is approved is only ever what the open prompt shows.
export function inBrief(given) {
  let known = given;
  if (typeof given === "string") { try { known = JSON.parse(given); } catch { /* shown as the text it is */ } }
  const told = known && typeof known === "object" ? known.command ?? known.question ?? known.path ?? known.task ?? known.text ?? JSON.stringify(known) : known;
  return String(told === "{}" ? "" : told).replace(/\s+/g, " ").slice(0, 160);
}

export function plural(count, one, many) {
  return `${count} ${count === 1 ? one : many}`;
}

// The server's words are parts of a sentence; here they stand alone. A name at their beginning stays as it is.
function sentence(text) {
  const whole = /[.!?`]$/.test(text) ? text : `${text}.`;
  return /^[a-z]+[ ,.]/.test(whole) ? whole[0].toUpperCase() + whole.slice(1) : whole;
}

// What went wrong, and the next step.
export function told(error) { return [error.message, error.hint].filter(Boolean).map(sentence).join(" "); }
