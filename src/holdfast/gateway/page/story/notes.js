// The sentences for records that are shown as a note and nothing else. Pure.

export function recordNotes(type, body) {
  switch (type) {
    case "tail_repaired":
      return "An unfinished write was removed after a crash. Nothing that was saved is lost.";
    case "life_carried":
      return "This is a new instance of the session. Its past was carried over.";
    case "compacted":
      return "Older turns were summarised for the model. The journal keeps everything.";
    case "reminder_set":
      return body.by ? `${body.by} set a reminder: ${body.text}` : null;
    case "reminder_cancelled":
      return body.reason
        ? `A reminder was dropped: ${body.reason}`
        : `${body.by} cancelled a reminder.`;
    case "session_renamed":
      return body.title
        ? `${body.by} gave this conversation the title “${body.title}”.`
        : `${body.by} removed the title of this conversation.`;
    case "model_given":
      return `From here on the model is ${body.model}.`;
    default:
      return null;
  }
}

export function turnNotes(type, body) {
  return type === "reminder_set" ? `A reminder is set: ${body.text}` : null;
}
