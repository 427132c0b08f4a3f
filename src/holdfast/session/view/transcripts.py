"""
Read session files of other programs into text: JSON Lines with a header line (version 1 to 3),
entries with id and parentId, messages, compactions, labels, branches.

Pure. Only the visible branch is taken: from the last entry up to the root. The result is text only:
no calls, no results, no authority. A line that is not JSON, or that has no meaning here, is left
out and reported. No content of a file raises an error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.session.view.messages import AssistantMessage, Message, NoteMessage, UserMessage
from holdfast.session.view.sizes import chars_of

TEXT_CHARS_MAX = 64 * 1024  # of one message: a longer one is a dump, and its middle says little
RESULT_CHARS_MAX = 4 * 1024
PIECE_CHARS_MAX = 128 * 1024  # of one record; far below a record's bound in any encoding
VERSIONS = (1, 2, 3)


class Skipped(msgspec.Struct, frozen=True):
    line: int
    reason: str


class TranscriptPiece(msgspec.Struct, frozen=True):
    """A request and the messages that followed it, or a part of them."""

    source: str  # the id of its first entry
    messages: tuple[Message, ...]
    at: int | None = None


class Summary(msgspec.Struct, frozen=True):
    """A summary that replaced all pieces before `kept` in the view of that program's model."""

    text: str
    kept: int  # number of pieces before the first that stays
    tokens_before: int


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    pieces: tuple[TranscriptPiece, ...]
    summaries: tuple[Summary, ...]
    skipped: tuple[Skipped, ...]
    version: int | None
    entries: int  # on the visible branch


class _Entry(msgspec.Struct, frozen=True):
    id: str
    parent: str | None
    fields: Mapping[str, Any]
    line: int


def read_session_file(data: bytes) -> Imported:
    """Read everything that can be read from the file."""
    skipped: list[Skipped] = []
    version, entries = _entries(data, skipped)
    branch = _branch(entries, skipped)
    labels = {
        str(each.fields.get("targetId")): str(each.fields.get("label") or "")
        for each in entries
        if each.fields.get("type") == "label"
    }
    pieces, summaries = _pieces(branch, entries, labels, skipped)
    return Imported(
        pieces=tuple(pieces),
        summaries=tuple(summaries),
        skipped=tuple(skipped),
        version=version,
        entries=len(branch),
    )


def _entries(data: bytes, skipped: list[Skipped]) -> tuple[int | None, list[_Entry]]:
    version: int | None = None
    found: list[_Entry] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            skipped.append(Skipped(number, f"no JSON object: {exc}"))
            continue
        if fields.get("type") == "session":
            said = fields.get("version", 1)
            version = said if isinstance(said, int) else None
            if version not in VERSIONS:
                skipped.append(
                    Skipped(
                        number, f"the header says version {said!r}; read as version {VERSIONS[-1]}"
                    )
                )
            continue
        before = found[-1].id if found else None
        own = fields.get("id") or fields.get("uuid")
        parent = fields.get(
            "parentId", fields.get("parentUuid", before if own is None or version == 1 else None)
        )
        found.append(
            _Entry(
                str(own) if own else f"line-{number}",
                str(parent) if parent else None,
                fields,
                number,
            )
        )
    return version, found


def _branch(entries: Sequence[_Entry], skipped: list[Skipped]) -> list[_Entry]:
    """
    Return the path from the last entry to the root, oldest first. If a parent is lost, the entry
    before it in the file takes its place.
    """
    by_id = {each.id: each for each in entries}
    place = {each.id: index for index, each in enumerate(entries)}
    path: list[_Entry] = []
    seen: set[str] = set()
    here = entries[-1] if entries else None
    while here is not None and here.id not in seen:
        seen.add(here.id)
        path.append(here)
        if here.parent is None:
            break
        above = by_id.get(here.parent)
        if above is None:
            index = place[here.id] - 1
            above = entries[index] if index >= 0 else None
            skipped.append(
                Skipped(
                    here.line,
                    f"its parent {here.parent[:40]} is not in the file; the entry before takes its "
                    "place",
                )
            )
        here = above
    return path[::-1]


def _pieces(
    branch: Sequence[_Entry],
    entries: Sequence[_Entry],
    labels: Mapping[str, str],
    skipped: list[Skipped],
) -> tuple[list[TranscriptPiece], list[Summary]]:
    kept_ids = {
        each.id: _first_kept(each, entries)
        for each in branch
        if each.fields.get("type") == "compaction"
    }
    starts = {kept for kept in kept_ids.values() if kept is not None}
    begins: dict[str, int] = {}  # the piece that an entry begins, by id
    summaries: list[Summary] = []
    pieces = _Pieces()
    for entry in branch:
        if entry.fields.get("type") == "compaction":
            pieces.end()
            tokens = entry.fields.get("tokensBefore")
            kept = begins.get(kept_ids[entry.id] or "", len(pieces.ended))
            summaries.append(
                Summary(
                    _clip(_text(entry.fields.get("summary"))),
                    kept,
                    tokens if isinstance(tokens, int) else 0,
                )
            )
            continue
        messages = _messages(entry, skipped)
        if labels.get(entry.id):
            messages.append(NoteMessage(f"(This was labelled {labels[entry.id][:200]!r}.)"))
        is_request = bool(messages) and isinstance(messages[0], UserMessage)
        if is_request or entry.id in starts:
            pieces.end()
        if entry.id in starts:
            begins[entry.id] = len(pieces.ended)
        pieces.add(entry, messages)
    pieces.end()
    return pieces.ended, summaries


class _Pieces:
    """
    Collects messages into records: one piece for a request and the messages that followed it, and
    one more if that is too large.
    """

    def __init__(self) -> None:
        self.ended: list[TranscriptPiece] = []
        self._first: _Entry | None = None
        self._open: list[Message] = []
        self._chars = 0

    def add(self, entry: _Entry, messages: Iterable[Message]) -> None:
        for message in messages:
            size = chars_of(message)
            if self._chars + size > PIECE_CHARS_MAX:
                self.end()
            self._first = self._first or entry
            self._open.append(message)
            self._chars += size

    def end(self) -> None:
        if self._first is not None:
            self.ended.append(
                TranscriptPiece(self._first.id, tuple(self._open), _time(self._first.fields))
            )
        self._first, self._open, self._chars = None, [], 0


def _first_kept(compaction: _Entry, entries: Sequence[_Entry]) -> str | None:
    named = compaction.fields.get("firstKeptEntryId")
    if named is not None:
        return str(named)
    index = compaction.fields.get(
        "firstKeptEntryIndex"
    )  # version 1, counted with or without the header: one entry too many is kept rather than lost
    return entries[index].id if isinstance(index, int) and 0 <= index < len(entries) else None


def _messages(entry: _Entry, skipped: list[Skipped]) -> list[Message]:
    fields = entry.fields
    kind = fields.get("type")
    match kind:
        case "message" | "user" | "assistant":
            return list(_of_message(fields.get("message", fields), str(kind)))
        case "branch_summary":
            return [
                NoteMessage(f"Summary of another branch: {_clip(_text(fields.get('summary')))}")
            ]
        case "custom_message":
            return [NoteMessage(_clip(_text(fields.get("content"))))]
        case (
            "label"
            | "model_change"
            | "thinking_level_change"
            | "session_info"
            | "custom"
            | "leaf"
            | "summary"
            | "file-history-snapshot"
            | "system"
        ):
            return []
        case _:
            skipped.append(Skipped(entry.line, f"an entry of an unknown type: {str(kind)[:40]!r}"))
            return []


def _of_message(message: Any, kind: str) -> Iterator[Message]:
    if not isinstance(message, dict):
        return
    role = message.get("role") or kind
    content = message.get("content")
    match role:
        case "user":
            if text := _clip(_text(content)):
                yield UserMessage(text, None)
            yield from (NoteMessage(each) for each in _results_in(content))
        case "assistant":
            if text := _clip(_text(content)):
                yield AssistantMessage(text)
            yield from (NoteMessage(each) for each in _calls_in(content))
        case "toolResult" | "tool" | "tool_result":
            yield NoteMessage(
                f"Result of {message.get('toolName') or 'a tool'}: "
                f"{_clip(_text(content), RESULT_CHARS_MAX)}"
            )
        case "bashExecution":
            command = _clip(_text(message.get("command")), RESULT_CHARS_MAX)
            output = _clip(_text(message.get("output")), RESULT_CHARS_MAX)
            yield NoteMessage(f"Ran: {command}\n{output}")
        case _:
            said = _text(content) or _text(message.get("summary"))
            if said:
                yield NoteMessage(_clip(said))


def _text(content: Any) -> str:
    """Return the readable text of a content; thinking is left out, pictures are named."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = []
    for block in content:
        match block:
            case str():
                parts.append(block)
            case {"type": "text", "text": str(text)}:
                parts.append(text)
            case {"type": "image"}:
                parts.append("[a picture was here]")
            case _:
                pass
    return "\n".join(parts)


def _calls_in(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "toolCall", "name": str(name)}:
                yield f"Called {name}: {_clip(_json(block.get('arguments')), RESULT_CHARS_MAX)}"
            case {"type": "tool_use", "name": str(name)}:
                yield f"Called {name}: {_clip(_json(block.get('input')), RESULT_CHARS_MAX)}"
            case _:
                pass


def _results_in(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "tool_result"}:
                yield f"Result of a tool: {_clip(_text(block.get('content')), RESULT_CHARS_MAX)}"
            case _:
                pass


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _clip(text: str, most: int = TEXT_CHARS_MAX) -> str:
    if len(text) <= most:
        return text
    return (
        f"{text[: most // 2]}\n[... {len(text) - most} characters are left out"
        f" ...]\n{text[-most // 2 :]}"
    )


def _time(fields: Mapping[str, Any]) -> int | None:
    """Return Unix milliseconds. ISO text is ignored: a fold does not parse dates."""
    message = fields.get("message")
    for value in (
        fields.get("timestamp"),
        message.get("timestamp") if isinstance(message, dict) else None,
    ):
        if isinstance(value, int) and 0 <= value < 2**53:
            return value
    return None
