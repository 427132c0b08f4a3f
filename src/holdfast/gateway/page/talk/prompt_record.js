// A journalled prompt, in the form of the list of prompts.

export function promptFromRecord(session, turn, call) {
  const { asked } = call;
  let given = asked.arguments;
  try {
    given = JSON.parse(asked.arguments);
  } catch {
    /* shown as the text it is */
  }
  return {
    id: asked.approval,
    session,
    turn: turn.id,
    tool: asked.tool,
    arguments: given,
    display: asked.display,
    digest: asked.digest,
    options: asked.options.map((each) => each.option),
    covers: Object.fromEntries(asked.options.map((each) => [each.option, each.covers])),
    may_answer: asked.may_answer,
    requester: turn.requester,
    agent: turn.agent,
    edited_by: call.option === "edit" ? call.by : null,
    channel: turn.channel,
    quoted_speakers: turn.quoted,
    boundary: turn.boundary,
    requested_at: new Date(asked.at).toISOString(),
    expires_at: new Date(asked.expires_at).toISOString(),
    kind: asked.kind || "approval",
    reason: asked.reason || "",
    risks: asked.risks ?? [],
  };
}
