// A live stream that goes on where it was: `heard(name, data)` for each event, `state(line)` when
// the line is live, away or absent.
//
// It resumes by the last id, so nothing is missed and nothing comes twice. A browser holds six
// connections to one server, for all of its tabs together. So a hidden tab gives its line up and
// takes it up again where it was, and only so many tabs hold a line of a kind with seats.

import { authorization, hasToken, reportLine, signedOut } from "./api.js";

const FIRST_PAUSE_MS = 300;
const LAST_PAUSE_MS = 5000;
const SEQ = /^[0-9]+$/; // of a record; any other id is the server's to count
const UNSEEN_MS = 5000; // a glance at another tab cuts nothing
const SILENT_MS = 45_000; // the server speaks every 15 s: after three times the line is dead

export class Follow {
  constructor(path, heard, state, { seats = null, cursor = null } = {}) {
    this.path = path;
    this.heard = heard;
    this.state = state;
    this.seats = seats;
    this.cursor = cursor;
    this.instance = null; // of the session, in which the cursor counts
    this.closed = false;
    this.line = new AbortController();
    this.run();
  }

  close() {
    this.closed = true;
    this.line.abort();
  }

  async run() {
    let pause = FIRST_PAUSE_MS;
    for (;;) {
      await seen();
      if (this.closed) return;
      const outcome = await seated(this.seats, () => this.once());
      if (this.closed || outcome === "over") return;
      if (outcome === "heard") pause = FIRST_PAUSE_MS;
      this.state("away");
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(pause * 1.7, LAST_PAUSE_MS);
    }
  }

  async once() {
    if (this.closed || !hasToken()) return "over"; // signed out while it waited for its seat
    this.line = new AbortController();
    const unwatch = whenUnseen(() => this.line.abort());
    // A network that goes away says nothing: without this, a page waits for pieces for ever.
    const { line } = this;
    let silence = setTimeout(() => line.abort(), SILENT_MS);
    let heard = false;
    try {
      const headers = { Authorization: authorization(), Accept: "text/event-stream" };
      if (this.cursor !== null) headers["Last-Event-ID"] = this.cursor;
      const answer = await fetch(this.path, {
        headers,
        cache: "no-store",
        credentials: "omit",
        signal: this.line.signal,
      });
      reportLine(true);
      if (answer.status === 401) {
        signedOut();
        return "over";
      }
      if (answer.status === 404) {
        this.state("absent");
        return "over";
      }
      if (answer.status === 409) {
        this.restart();
        return "heard";
      }
      if (!answer.ok) return "failed";
      if (this.isOther(answer.headers.get("Holdfast-Instance"))) {
        this.line.abort();
        this.restart();
        return "heard";
      }
      this.state("live");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done || this.closed) break;
        clearTimeout(silence);
        silence = setTimeout(() => line.abort(), SILENT_MS);
        heard = true;
        const frames = (rest + value).split("\n\n");
        rest = frames.pop();
        for (const frame of frames) this.take(frame);
      }
    } catch {
      if (!heard && !line.signal.aborted) reportLine(false);
      return heard ? "heard" : "failed";
    } finally {
      clearTimeout(silence);
      unwatch();
    }
    return "heard";
  }

  restart() {
    this.cursor = null;
    this.heard("restart", {});
  }

  // A cursor of another instance would leave records out for ever, so begin anew on a new line.
  isOther(instance) {
    const before = this.instance;
    this.instance = instance;
    return before !== null && before !== instance;
  }

  take(frame) {
    let name = "message";
    let id = null;
    let data = null;
    for (const line of frame.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("id: ")) id = line.slice(4);
      else if (line.startsWith("data: ")) data = line.slice(6);
    }
    if (id !== null) {
      if (this.cursor !== null && SEQ.test(id) && Number(id) <= Number(this.cursor)) return;
      this.cursor = id;
    }
    if (data === null) return;
    if (name === "end" && JSON.parse(data).reason === "new_instance") {
      this.restart();
      return;
    }
    this.heard(name, JSON.parse(data));
  }
}

// Until somebody looks at this tab.
function seen() {
  return new Promise((done) => {
    const look = () => {
      if (!document.hidden) {
        document.removeEventListener("visibilitychange", look);
        done();
      }
    };
    document.addEventListener("visibilitychange", look);
    look();
  });
}

function whenUnseen(act) {
  let timer = null;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(act, UNSEEN_MS);
  };
  document.addEventListener("visibilitychange", look);
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
  };
}

// The browser's own locks are shared by its tabs and fall with them. Where there are none,
// everybody sits.
async function seated(seats, act) {
  if (seats === null || !navigator.locks) return act();
  for (let seat = 0; seat < seats.count; seat += 1) {
    const outcome = await navigator.locks.request(
      `${seats.name}.${seat}`,
      { ifAvailable: true },
      (lock) => (lock ? act() : null),
    );
    if (outcome !== null) return outcome;
  }
  return "failed";
}
