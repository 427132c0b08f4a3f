// Talking to the server: one token, JSON, problems as errors, and a stream that goes on where it was.

const KEY = "holdfast.token";
let token = sessionStorage.getItem(KEY);
let whenOut = () => {};

export function onSignedOut(act) { whenOut = act; }
export function hasToken() { return token !== null; }
export function keep(value) { token = value; sessionStorage.setItem(KEY, value); }
export function forget() { token = null; sessionStorage.removeItem(KEY); }

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
  if (token) sent.headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) {
    sent.headers["Content-Type"] = "application/json";
    sent.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, sent);
  } catch {
    throw new Problem(0, { code: "unreachable", detail: "The server can't be reached. Nothing is lost; this page keeps trying." });
  }
  if (answer.status === 204) return null;
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  if (answer.status === 401 && token) { forget(); whenOut("Your token is no longer valid."); }
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

// Follows a session: `heard(name, data)` for each event. Resumes by the last record's seq, so nothing is missed and nothing comes twice.
export class Follow {
  constructor(session, heard, state) {
    this.session = session;
    this.heard = heard;
    this.state = state;
    this.cursor = null;
    this.over = new AbortController();
    this.run();
  }

  close() { this.over.abort(); }

  async run() {
    let pause = 300;
    while (!this.over.signal.aborted) {
      const outcome = await this.once();
      if (this.over.signal.aborted || outcome === "over") return;
      if (outcome === "heard") pause = 300;
      this.state("away");
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(pause * 1.7, 5000);
    }
  }

  async once() {
    const headers = { Authorization: `Bearer ${token}`, Accept: "text/event-stream" };
    if (this.cursor !== null) headers["Last-Event-ID"] = String(this.cursor);
    let heard = false;
    try {
      const answer = await fetch(`/v1/sessions/${this.session}/events`, { headers, cache: "no-store", credentials: "omit", signal: this.over.signal });
      if (answer.status === 401) { forget(); whenOut("Your token is no longer valid."); return "over"; }
      if (answer.status === 404) { this.state("absent"); return "over"; }
      if (answer.status === 409) { this.cursor = null; this.heard("restart", {}); return "heard"; }
      if (!answer.ok) return "failed";
      this.state("live");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard = true;
        const frames = (rest + value).split("\n\n");
        rest = frames.pop();
        for (const frame of frames) this.take(frame);
      }
    } catch {
      return heard ? "heard" : "failed";
    }
    return "heard";
  }

  take(frame) {
    let name = "message"; let id = null; let data = null;
    for (const line of frame.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("id: ")) id = Number(line.slice(4));
      else if (line.startsWith("data: ")) data = line.slice(6);
    }
    if (data === null) return;
    if (id !== null) {
      if (this.cursor !== null && id <= this.cursor) return;
      this.cursor = id;
    }
    if (name === "end" && JSON.parse(data).reason === "new_life") { this.cursor = null; this.heard("restart", {}); return; }
    this.heard(name, JSON.parse(data));
  }
}
