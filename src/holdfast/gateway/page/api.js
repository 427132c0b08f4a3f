// Talking to the server: one token, JSON, problems as errors.

const KEY = "holdfast.token";
let token = sessionStorage.getItem(KEY);
let whenOut = () => {};
let whenLine = () => {};

export function onSignedOut(act) { whenOut = act; }
// Told with every request whether the server answered it.
export function onLine(act) { whenLine = act; }
export function hasToken() { return token !== null; }
export function keep(value) { token = value; sessionStorage.setItem(KEY, value); }
export function forget() { token = null; sessionStorage.removeItem(KEY); }
export function authorization() { return `Bearer ${token}`; }
export function signedOut() { forget(); whenOut("Your token is no longer valid."); }

export class Problem extends Error {
  constructor(status, told) {
    super(told.detail || "Something went wrong.");
    this.status = status;
    this.code = told.code || "unknown";
    this.hint = told.hint || "";
  }
}

export async function call(method, path, body, headers = {}) {
  const sent = { method, headers: { ...headers }, cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer" };
  if (token) sent.headers.Authorization = authorization();
  if (body !== undefined) {
    sent.headers["Content-Type"] = "application/json";
    sent.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, sent);
  } catch {
    whenLine(false);
    throw new Problem(0, { code: "unreachable", detail: method === "GET" ? "The server can't be reached. Nothing is lost; this page keeps trying." : "The server can't be reached, so whether this arrived is not known. Do it again once it answers: it counts once." });
  }
  whenLine(true);
  if (answer.status === 204) return null;
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  if (answer.status === 401 && token) signedOut();
  throw new Problem(answer.status, told);
}

export const get = (path) => call("GET", path);
export const post = (path, body, headers) => call("POST", path, body, headers);

export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Every page of a list.
export async function all(path, name) {
  const found = [];
  let after = null;
  for (let page = 0; page < 20; page += 1) {
    const part = await get(`${path}?limit=200${after ? `&after=${encodeURIComponent(after)}` : ""}`);
    found.push(...part[name]);
    after = part.next;
    if (!after) break;
  }
  return found;
}
