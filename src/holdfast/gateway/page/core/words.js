// Times and names in plain words. The words for states come from one file, which the command line
// uses too.

import STATES from "./state_words.js";

export const { phases: PHASES, calls: CALLS, options: OPTIONS } = STATES;
export const { turns: TURNS } = STATES;

const UNITS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

export function span(ms) {
  if (ms < 950) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.round(ms / 1000);
  for (const [size, unit] of UNITS) {
    if (seconds < size) continue;
    const whole = Math.floor(seconds / size);
    const rest = UNITS.find(([other]) => other < size);
    const more = rest ? Math.floor((seconds % size) / rest[0]) : 0;
    return more && size > 1 ? `${whole} ${unit} ${more} ${rest[1]}` : `${whole} ${unit}`;
  }
  return "now";
}

// How long ago, in one unit: nobody counts the seconds of an hour.
function coarse(ms) {
  return span(ms).split(" ").slice(0, 2).join(" ");
}

// "in 6 d 23 h", "2 min ago"
export function away(iso, now = Date.now()) {
  const ms = new Date(iso).getTime() - now;
  if (Math.abs(ms) < 1000) return "now";
  return ms > 0 ? `in ${span(ms)}` : `${coarse(-ms)} ago`;
}

export function when(at) {
  const date = new Date(at);
  const clock = { hour: "2-digit", minute: "2-digit" };
  const isToday = new Date().toDateString() === date.toDateString();
  return date.toLocaleString([], isToday ? clock : { month: "short", day: "numeric", ...clock });
}

export function moment(iso) {
  const parts = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };
  return new Date(iso).toLocaleString([], parts);
}

export const BRIEF_CHARS = 160;

const SOON_MS = 60 * 60 * 1000;

// Whether a person who looks now and comes back after lunch would come too late.
export function isSoon(iso, now = Date.now()) {
  return new Date(iso).getTime() - now < SOON_MS;
}

// How a prompt ended that nobody answered.
export function closing(as, reason) {
  return { short: as, text: STATES.closed[as] ?? `Closed: ${reason || as}.` };
}

// How a prompt ended that a person answered.
export function answering(by, option, me = null) {
  const words = STATES.answered[option] ?? `chose ${String(option).replaceAll("_", " ")}`;
  const who = by === me ? "You" : by;
  return { short: `${by} ${words}`, text: `${who} ${words}.` };
}

// Who asked for the call, and who wrote it.
export function askerWords({ kind, requester, agent, path, edited_by: editor }) {
  const names = {
    requester: requester || "an unknown person",
    agent: path?.at(-1) ?? agent ?? "of this session",
    editor,
  };
  const template = STATES.askers[editor ? "edited" : kind] ?? STATES.askers.approval;
  return template.replace(/{(\w+)}/g, (_, name) => names[name]);
}

// How a job ended: "finished after 12 s"
export function jobWords(outcome, took) {
  return (STATES.jobs[outcome] ?? `${outcome}{after}`).replace("{after}", ` after ${took}`);
}

// The name of a record: its stored name in words.
export function eventName(type) {
  return type === "session_born" ? "session created" : type.replaceAll("_", " ");
}

export function resultWords(result) {
  return STATES.results[result] ?? result;
}

export function boundaryText(prompt) {
  return prompt.boundary || prompt.audience || "unknown";
}

// The most telling line of a call. A person approves only what the open prompt shows.
export function inBrief(given) {
  let known = given;
  if (typeof given === "string") {
    try {
      known = JSON.parse(given);
    } catch {
      /* shown as the text it is */
    }
  }
  const isObject = known && typeof known === "object";
  const keys = ["command", "question", "path", "task", "text"];
  const key = isObject ? keys.find((each) => Object.hasOwn(known, each)) : null;
  const told = isObject ? (key ? known[key] : valuesInBrief(known)) : known;
  return String(told).replace(/\s+/g, " ").slice(0, BRIEF_CHARS);
}

// "service=api region=eu-1"
function valuesInBrief(known) {
  const brief = ([name, value]) => {
    const isPlain = typeof value === "string" && /^[^\s"'={}[\]]+$/.test(value);
    return `${name}=${isPlain ? value : JSON.stringify(value)}`;
  };
  return Object.entries(known).map(brief).join(" ");
}

const TABLE = /\|[ :]*-[-:| ]*\|/;

// Replies in one line of a list: their words, without the marks of Markdown.
export function withoutMarks(text) {
  // Bars are marks only in a table, which has a row of dashes.
  const words = TABLE.test(text) ? text.replace(TABLE, " ").replaceAll("|", " ") : text;
  return words
    .replace(/!?\[([^\]\n]*)\]\([^)\n]*\)/g, "$1")
    .replace(/(^|\s)(?:#{1,6}|>|[-*+]|\d+\.)(?=\s)/g, "$1")
    .replace(/\*\*|__|~~|`/g, "")
    .replace(/(^|\s)_([^_\n]+)_(?=\W|$)/g, "$1$2")
    .replace(/\s+/g, " ")
    .trim();
}

export function plural(count, one, many) {
  return `${count} ${count === 1 ? one : many}`;
}

// "1,234 tokens · $0.0021"; a model without known prices has no cost.
export function usageWords({ input, output, cost }) {
  const count = input + output;
  if (!count) return null;
  const tokens = `${count.toLocaleString()} tokens`;
  if (!cost) return tokens;
  if (cost < 100) return `${tokens} · less than $0.0001`;
  return `${tokens} · $${(cost / 1e6).toFixed(cost < 10_000 ? 4 : 2)}`;
}

// The server's words are parts of a sentence; here they stand alone. A name at their beginning
// stays as it is.
export function sentence(text) {
  const whole = /[.!?`]$/.test(text) ? text : `${text}.`;
  return /^[a-z]+[ ,.]/.test(whole) ? whole[0].toUpperCase() + whole.slice(1) : whole;
}

// The error, and the next step.
export function told(error) {
  return [error.message, error.hint].filter(Boolean).map(sentence).join(" ");
}
