// Talking to the server: one token, JSON, problems as errors.

const KEY = "holdfast.token";
const PAGES_MAX = 20;
let token = sessionStorage.getItem(KEY);
let whenOut = () => {};
let whenLine = () => {};
let isThere = true; // until a request says otherwise

export function onSignedOut(act) {
  whenOut = act;
}

// Called with every request: whether the server answered it.
export function onLine(act) {
  whenLine = act;
}

// Each request and each live line reports whether the server answered.
export function reportLine(answers) {
  isThere = answers;
  whenLine(answers);
}

export function serverAnswers() {
  return isThere;
}

export function hasToken() {
  return token !== null;
}

export function keep(value) {
  token = value;
  sessionStorage.setItem(KEY, value);
}

export function forget() {
  token = null;
  sessionStorage.removeItem(KEY);
}

export function authorization() {
  return `Bearer ${token}`;
}

export function signedOut() {
  forget();
  whenOut("You are signed out: your token was revoked or has expired.");
}

export class Problem extends Error {
  constructor(status, told) {
    super(told.detail || "Something went wrong.");
    this.status = status;
    this.code = told.code || "unknown";
    this.hint = told.hint || "";
  }
}

const UNREACHABLE = {
  GET: "The server can't be reached. Nothing is lost; this page keeps trying.",
  POST:
    "The server can't be reached. We don't know if this arrived. Send it again when the server " +
    "is back; it will count once.",
};

const OPEN = "/v1/codes"; // the one request that brings a token instead of needing one

async function ask(method, path, body, headers) {
  // After a sign-out, work that was already scheduled sends nothing.
  if (!token && path !== OPEN && !headers.Authorization) {
    throw new Problem(401, { code: "signed_out", detail: "You are signed out of this tab." });
  }
  const sent = {
    method,
    headers: { ...headers },
    cache: "no-store",
    credentials: "omit",
    referrerPolicy: "no-referrer",
  };
  if (token) sent.headers.Authorization = authorization();
  if (body !== undefined) {
    sent.headers["Content-Type"] = "application/json";
    sent.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, sent);
  } catch {
    reportLine(false);
    const detail = UNREACHABLE[method] ?? UNREACHABLE.POST;
    throw new Problem(0, { code: "unreachable", detail });
  }
  reportLine(true);
  return answer;
}

export async function call(method, path, body, headers = {}) {
  const answer = await ask(method, path, body, headers);
  if (answer.status === 204) return null;
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  throw refusal(answer.status, told);
}

function refusal(status, told) {
  if (status === 401 && token) signedOut();
  return new Problem(status, told);
}

export const get = (path) => call("GET", path);
export const post = (path, body, headers) => call("POST", path, body, headers);

// Who a token speaks for, or null for a token that this server does not know.
export async function whoIs(given) {
  const answer = await ask("GET", "/v1/me", undefined, { Authorization: `Bearer ${given}` });
  if (answer.status === 401) return null;
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, told);
  return told;
}

// A file from the server, as text.
export async function text(path) {
  const answer = await ask("GET", path, undefined, {});
  if (answer.ok) return answer.text();
  throw refusal(answer.status, await answer.json().catch(() => ({})));
}

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Every page of a list, up to a bound.
export async function all(path, name) {
  const found = [];
  let after = null;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const more = after ? `&after=${encodeURIComponent(after)}` : "";
    const part = await get(`${path}?limit=200${more}`);
    found.push(...part[name]);
    after = part.next;
    if (!after) break;
  }
  return found;
}
