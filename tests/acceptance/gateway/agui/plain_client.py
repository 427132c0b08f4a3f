"""A client that speaks AG-UI plainly, and judges every stream by the rules of the protocol."""

import json
from typing import Any, NamedTuple

import httpx

Event = dict[str, Any]
_OPENS = {"TEXT_MESSAGE_START": "messageId", "TOOL_CALL_START": "toolCallId"}
_GOES_ON = {"TEXT_MESSAGE_CONTENT": "messageId", "TOOL_CALL_ARGS": "toolCallId"}
_CLOSES = {"TEXT_MESSAGE_END": "messageId", "TOOL_CALL_END": "toolCallId"}


class Run(NamedTuple):
    """The answer to one run: a problem, or its events."""

    status: int
    problem: dict[str, Any]
    events: list[Event]

    @property
    def kinds(self) -> list[str]:
        return [each["type"] for each in self.events]

    @property
    def last(self) -> Event:
        return self.events[-1]

    @property
    def interrupts(self) -> list[dict[str, Any]]:
        assert self.last["type"] == "RUN_FINISHED", self.last
        assert self.last["outcome"]["type"] == "interrupt", self.last
        found: list[dict[str, Any]] = self.last["outcome"]["interrupts"]
        return found

    @property
    def text(self) -> str:
        return "".join(e["delta"] for e in self.events if e["type"] == "TEXT_MESSAGE_CONTENT")

    @property
    def results(self) -> list[Event]:
        return [each for each in self.events if each["type"] == "TOOL_CALL_RESULT"]

    @property
    def snapshot(self) -> list[dict[str, Any]]:
        (found,) = [each for each in self.events if each["type"] == "MESSAGES_SNAPSHOT"]
        messages: list[dict[str, Any]] = found["messages"]
        return messages


def said(text: str, ident: str = "m1") -> dict[str, Any]:
    return {"id": ident, "role": "user", "content": text}


def post(
    client: httpx.Client, thread: str, run: str, *messages: dict[str, Any], **more: Any
) -> Run:
    """Make one run, and read its stream to the end."""
    body = {"threadId": thread, "runId": run, "messages": list(messages), **more}
    with client.stream("POST", "/v1/agui", json=body) as answer:
        if answer.status_code != httpx.codes.OK:
            return Run(answer.status_code, json.loads(answer.read()), [])
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = list(answer.iter_lines())
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    check_rules(events, thread, run)
    return Run(answer.status_code, {}, events)


def check_rules(events: list[Event], thread: str, run: str) -> None:
    """
    A stream begins with RUN_STARTED and ends with one ending; all that was opened was closed first.
    """
    kinds = [each["type"] for each in events]
    assert kinds[0] == "RUN_STARTED", kinds
    assert [kind for kind in kinds if kind in ("RUN_FINISHED", "RUN_ERROR")] == kinds[-1:], kinds
    open_now: set[str] = set()
    for event in events:
        kind = event["type"]
        if (field := _OPENS.get(kind)) is not None:
            assert event[field] not in open_now, event
            open_now.add(event[field])
        elif (field := _GOES_ON.get(kind)) is not None:
            assert event[field] in open_now, event
        elif (field := _CLOSES.get(kind)) is not None:
            open_now.remove(event[field])
        if kind in ("RUN_STARTED", "RUN_FINISHED"):
            assert (event["threadId"], event["runId"]) == (thread, run)
    assert kinds[-1] == "RUN_ERROR" or not open_now, open_now


def resolved(interrupt: dict[str, Any], option: str, answer: str = "r1") -> dict[str, Any]:
    """The resume entry of an answer, as the interrupt's own schema asks for it."""
    assert option in interrupt["responseSchema"]["properties"]["option"]["enum"]
    payload = {
        "option": option,
        "digest": interrupt["metadata"]["digest"],
        "answer_id": answer,
    }
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


def cancelled(interrupt: dict[str, Any]) -> dict[str, Any]:
    return {"interruptId": interrupt["id"], "status": "cancelled"}
