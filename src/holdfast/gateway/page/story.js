// From a session's records to what is shown of it: turns with what was said, called, asked and answered, and the stretches of time they took.
// A pure fold, like the one that the server does: the same records give the same story.

export class Story {
  constructor() {
    this.turns = new Map();   // in the order they were asked
    this.inputs = new Map();  // input id -> turn
    this.notes = [];
  }

  turn(id) {
    if (!this.turns.has(id)) {
      this.turns.set(id, { id, items: [], calls: new Map(), marks: [], open: null, outcome: null, waiting: 0, streaming: null, startedAt: null, endedAt: null, requester: null });
    }
    return this.turns.get(id);
  }

  // Begin a stretch of time; the one before ends where it begins.
  stretch(turn, kind, at, label) {
    this.end(turn, at);
    turn.open = { kind, from: at, to: null, label };
    turn.marks.push(turn.open);
  }

  end(turn, at) {
    if (turn.open) { turn.open.to = at; turn.open = null; }
  }

  mark(turn, kind, at, label) { turn.marks.push({ kind, from: at, to: at, label, point: true }); }

  delta(piece) {
    const turn = this.turns.get(piece.turn);
    if (!turn) return;
    if (piece.kind === "text") {
      if (turn.open?.kind !== "thinking") return;  // late: the record of what was said has come before it
      if (!turn.streaming) { turn.streaming = { kind: "said", text: "", live: true }; turn.items.push(turn.streaming); }
      turn.streaming.text += piece.text;
    } else if (piece.call && turn.calls.has(piece.call)) {
      const call = turn.calls.get(piece.call);
      call.output = (call.output + piece.text).slice(-20000);
    }
  }

  // The record of what was said in pieces says it whole, or there is none.
  forgetPieces(turn) {
    if (turn.streaming) { turn.items.splice(turn.items.indexOf(turn.streaming), 1); turn.streaming = null; }
  }

  // One record. A kind that nothing is shown of has no method here.
  take(record) {
    const { body, at, type } = record;
    if (type === "input_accepted") this.input(body, at);
    else if (!body.turn) this.note(record);
    else this[type]?.(this.turn(body.turn), body, at);
  }

  input(body, at) {
    const turn = this.turn(body.turn);
    const context = body.context || {};
    turn.requester = context.requester || null;
    turn.circle = context.boundary || context.audience || null;
    turn.channel = context.channel || null;
    turn.quoted = context.quoted_speakers || [];
    turn.startedAt = turn.startedAt ?? at;
    this.inputs.set(body.input, turn.id);
    if (body.kind === "job") {
      turn.items.push({ kind: "report", text: body.text, at });
      this.mark(turn, "asked", at, "a job ended");
      return;
    }
    const speaks = { delegate: "an agent", reminder: "a reminder" }[body.kind];
    const who = speaks ? `${speaks}, for ${turn.requester || "nobody known"}` : turn.requester;
    turn.items.push({ kind: "asked", who, text: body.text, at, quotes: body.quotes || [] });
    this.mark(turn, "asked", at, `${who || "somebody"} asked`);
  }

  note(record) {
    const words = {
      session_born: null, tail_repaired: "An unfinished write was cut off after a crash; nothing that was acknowledged is lost.",
      life_carried: "This is a new life of the session; its past was carried over.", compacted: "Older turns were summarised for the model. The journal keeps everything.",
      reminder_set: record.body.by && `${record.body.by} set a reminder: ${record.body.text}`,
      reminder_cancelled: record.body.reason ? `A reminder was dropped: ${record.body.reason}` : `${record.body.by} cancelled a reminder.`,
      model_given: `From here on the model is ${record.body.model}.`,
    }[record.type];
    if (words) this.notes.push({ kind: "note", text: words, at: record.at });
  }

  turn_started(turn, body, at) {
    for (const input of body.inputs || []) {
      const own = this.inputs.get(input);
      if (own && own !== turn.id) {
        const joined = this.turns.get(own);
        turn.items.push(...joined.items);
        turn.marks.push(...joined.marks);
        this.turns.delete(own);
        this.inputs.set(input, turn.id);
      }
    }
    turn.startedAt = turn.startedAt ?? at;
  }

  memory_recalled(turn, body, at) {
    for (const item of body.items || []) turn.items.push({ kind: "note", text: `Remembered${item.tainted === false ? "" : " (from untrusted content)"}: ${item.text}`, at });
    if (body.degraded) turn.items.push({ kind: "note", text: `Not everything could be recalled: ${body.degraded}.`, at });
  }

  model_call_started(turn, body, at) { this.stretch(turn, "thinking", at, "thinking"); }

  model_answered(turn, body, at) {
    this.end(turn, at);
    this.forgetPieces(turn);
    if (body.text) turn.items.push({ kind: "said", text: body.text, at });
    for (const made of body.calls || []) this.called(turn, made, at);
  }

  calls_proposed(turn, body, at) { this.model_answered(turn, body, at); }

  called(turn, made, at) {
    const call = { kind: "call", call: made.call, tool: made.tool, arguments: made.arguments, state: "proposed", output: "", result: null, at, by: null };
    turn.calls.set(made.call, call);
    turn.items.push(call);
  }

  model_call_failed(turn, body, at) {
    this.end(turn, at);
    this.mark(turn, "failed", at, `the model failed: ${body.kind}`);
    turn.items.push({ kind: "note", text: body.final ? `The model failed: ${body.message}` : `The model failed (${body.kind}); it is asked again.`, at });
  }

  model_call_lost(turn, body, at) {
    this.end(turn, at);
    this.mark(turn, "crashed", at, "the driver died; the model is asked again");
    this.forgetPieces(turn);
  }

  model_answer_dropped(turn, body, at) { this.end(turn, at); }

  call_allowed(turn, body) {
    const call = turn.calls.get(body.call);
    if (call) { call.state = "allowed"; call.by = body.by; call.arguments = body.arguments; }
  }

  approval_requested(turn, body, at) {
    const call = turn.calls.get(body.call);
    turn.waiting += 1;
    if (call) { call.state = "waiting"; call.approval = body.approval; call.asked = { ...body, at }; call.arguments = body.arguments; }
    this.stretch(turn, "waiting", at, `waits for ${body.may_answer.join(" or ")}`);
  }

  approval_answered(turn, body, at) {
    const call = turn.calls.get(body.call);
    turn.waiting = Math.max(0, turn.waiting - 1);
    if (call) { call.by = body.by; call.state = body.option === "deny" ? "denied" : body.option === "edit" ? "edited" : "approved"; }
    if (!turn.waiting) this.end(turn, at);
    this.mark(turn, body.option === "deny" ? "denied" : "answered-prompt", at, `${body.by}: ${body.option.replaceAll("_", " ")}`);
  }

  answer_refused(turn, body, at) {
    turn.items.push({ kind: "note", text: `${body.by} tried to answer and may not; the prompt stands.`, at });
    this.mark(turn, "refused", at, `${body.by} refused`);
  }

  approval_closed(turn, body, at) {
    const call = turn.calls.get(body.call);
    turn.waiting = Math.max(0, turn.waiting - 1);
    if (call) call.state = body.closed_as;
    if (!turn.waiting) this.end(turn, at);
  }

  reminder_set(turn, body, at) { turn.items.push({ kind: "note", text: `A reminder is set: ${body.text}`, at }); }

  reminder_fired(turn, body, at) {
    const missed = body.missed ? ` It stands for ${body.missed} more that were missed.` : "";
    turn.items.unshift({ kind: "note", text: `A reminder, due ${new Date(body.scheduled_at).toLocaleString()}.${missed}`, at });
  }

  // The call has its result at once, which is that the job goes on; what came of the job itself is told when it is over.
  job_submitted(turn, body, at) {
    const call = turn.calls.get(body.call);
    if (call) call.job = { id: body.job, outcome: null, endedAt: null };
    const began = turn.marks.findLast((mark) => mark.kind === "ran");
    if (began) began.label = `${body.tool}, in the background`;
    turn.items.push({ kind: "note", text: `${body.tool} goes on in the background as ${body.job}.`, at });
  }

  job_cancelled(turn, body, at) { turn.items.push({ kind: "note", text: `${body.by} asked for ${body.job} to be stopped.`, at }); }

  job_ended(turn, body, at) {
    const call = [...turn.calls.values()].find((each) => each.job?.id === body.job);
    if (call) call.job = { ...call.job, outcome: body.outcome, endedAt: at };
    turn.items.push({ kind: "note", text: `${body.job} is over: ${body.outcome}.`, at });
  }

  turn_resumed(turn, body, at) {
    if (body.after === "crash") {
      this.end(turn, at);
      if (!turn.marks.some((each) => each.kind === "crashed" && at - each.from < 5000)) this.mark(turn, "crashed", at, "the driver died");
      this.mark(turn, "resumed", at, "resumed");
      turn.items.push({ kind: "note", text: "The driver died here; the turn was resumed from its journal.", at });
    }
  }

  tool_started(turn, body, at) {
    const call = turn.calls.get(body.call);
    if (call) { call.state = "running"; call.arguments = body.arguments; call.startedAt = at; }
    this.stretch(turn, "ran", at, body.tool);
  }

  delegate_started(turn, body, at) {
    const call = turn.calls.get(body.call);
    if (call) { call.state = "running"; call.arguments = body.arguments; call.startedAt = at; call.delegate = body.session; }
    this.stretch(turn, "ran", at, body.agent);
  }

  call_finished(turn, body, at) {
    const call = turn.calls.get(body.call);
    const overtaken = body.outcome === "denied" && call?.state === "expired";  // it says more of the same
    if (call) { call.state = overtaken ? call.state : body.outcome; call.result = body.text; call.code = body.code; call.endedAt = at; }
    if (turn.open && turn.open.kind === "ran") this.end(turn, at);
    if (body.outcome === "in_doubt") this.mark(turn, "doubt", at, "in doubt: maybe it ran");
  }

  turn_cancelled(turn, body, at) { this.end(turn, at); this.mark(turn, "denied", at, `cancelled by ${body.by}`); }

  turn_ended(turn, body, at) {
    this.end(turn, at);
    turn.endedAt = at;
    turn.outcome = body.outcome;
    turn.waiting = 0;
    this.forgetPieces(turn);
    const last = [...turn.items].reverse().find((item) => item.kind === "said");
    if (body.reply && (!last || last.text !== body.reply)) turn.items.push({ kind: "said", text: body.reply, at });
    if (body.outcome !== "completed") turn.items.push({ kind: "ended", outcome: body.outcome, text: body.message || body.outcome, hint: body.hint || "", at });
    this.mark(turn, body.outcome === "completed" ? "answered" : "failed", at, body.outcome === "completed" ? "answered" : body.outcome);
  }
}
