"""A server behind the proxy asks inside of a call: a person of Holdfast answers, never the client."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from mcp_types import ElicitRequestParams, ElicitResult

from holdfast.testing.loop import in_loop
from tests.acceptance.gateway.conftest import until
from tests.acceptance.gateway.proxy.conftest import Proxied, said, text_of

pytestmark = [pytest.mark.needs_system("bwrap"), pytest.mark.timeout(240)]

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FORM = {"message": "Tell me", "requestedSchema": NAME}


def asking(proxied: Proxied) -> None:
    proxied.tools(wire="2025-11-25", call={"do": "elicit", "questions": [FORM]})


def prompts(proxied: Proxied) -> list[dict[str, object]]:
    client = proxied.gateway.client(proxied.approver("alice"))
    found: list[dict[str, object]] = client.get("/v1/approvals").json()["approvals"]
    return found


def test_a_person_answers_while_the_client_waits(proxied: Proxied) -> None:
    proxied.wait("60s")
    asking(proxied)
    proxied.gateway.stop()
    proxied.gateway.start()
    with ThreadPoolExecutor(1) as threads:
        calling = threads.submit(proxied.called, "wire.quick", "x")
        prompt = proxied.waiting()
        assert (prompt["kind"], "Tell me" in prompt["display"]) == ("question", True)
        mine = proxied.gateway.client(proxied.tokens["alice"])
        assert proxied.gateway.answer(mine, prompt, "deny").status_code == 403
        client = proxied.gateway.client(proxied.approver("alice"))
        answer = proxied.gateway.answer(client, prompt, "answer", reason="Ada")
        assert answer.status_code == 200, answer.text
        result = calling.result()
    assert said(result) == '[{"action": "accept", "content": {"name": "Ada"}}]'
    assert len(proxied.sent(1)) == 1


def test_nobody_answers_in_time_and_the_server_hears_so(proxied: Proxied) -> None:
    """The client's next calls wait for this one, so the question stands no longer than it waits."""
    asking(proxied)
    result = proxied.called("wire.quick", "x")
    assert said(result) == '[{"action": "cancel"}]'
    until(lambda: not prompts(proxied), "the question is closed")
    assert len(proxied.rig.got()) == 1


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_a_client_that_offers_to_answer_is_never_asked(proxied: Proxied, transport: str) -> None:
    asking(proxied)
    asked: list[ElicitRequestParams] = []
    results: list[str] = []

    async def accept(_: object, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action="accept", content={"name": "the client's program"})

    @in_loop
    async def story() -> None:
        offer = {"elicitation_callback": accept}
        async with proxied.client("legacy", transport, **offer) as client:
            results.append(text_of(await client.call_tool("wire.quick", {"text": "x"})))

    story()
    assert (results, asked) == (['[{"action": "cancel"}]'], [])
