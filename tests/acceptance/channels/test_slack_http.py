"""Slack over HTTP: a request counts by its signature, once, however often it comes."""

import json
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import pytest

from holdfast.testing.fakes.slack import FakeSlack
from tests.acceptance.channels.conftest import CAST, Stage
from tests.acceptance.gateway.conftest import Gateway, until

pytestmark = pytest.mark.timeout(300)


class SlackThatCalls(FakeSlack):
    def settings(self) -> str:
        return (
            super()
            .settings()
            .replace("app_token_env", "signing_secret_env")
            .replace("FAKE_SLACK_APP", "FAKE_SLACK_SIGNING")
        )


@pytest.fixture
def calling(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with SlackThatCalls() as fake:
        for name, value in fake.environment().items():
            monkeypatch.setenv(name, value)
        yield Stage(gateway, fake, CAST["slack"][1]).start()


def call(stage: Stage, body: bytes, headers: dict[str, str], name: str = "slack") -> httpx.Response:
    return httpx.post(
        f"{stage.gateway.url}/v1/channels/{name}", content=body, headers=headers, timeout=60
    )


def test_a_signed_request_counts_once_and_no_other_does(calling: Stage) -> None:
    fake = calling.fake
    assert isinstance(fake, FakeSlack)
    until(
        lambda: "channels-down" not in httpx.get(f"{calling.gateway.url}/readyz").headers, "Slack"
    )
    challenge = json.dumps({"type": "url_verification", "challenge": "c-1"}).encode()
    assert call(calling, challenge, fake.signed(challenge)).json() == {"challenge": "c-1"}

    ts = fake.say(calling.alice, "run: echo hi > ran", place=calling.team)
    event = next(each for each in fake.history if each["ts"] == ts)
    body = json.dumps(fake.event_payload(event)).encode()
    good = fake.signed(body)
    bad = good | {"X-Slack-Signature": "v0=" + "0" * 64}
    old = fake.signed(body, at=int(time.time()) - 3600)
    odd = good | {"X-Slack-Request-Timestamp": "soon"}
    for headers in (bad, old, odd, {}):
        assert call(calling, body, headers).status_code == 401
    assert call(calling, body, good, name="telegram").status_code == 401
    assert call(calling, body + b" ", good).status_code == 401
    assert calling.records("input_accepted") == []
    for _ in range(2):
        assert call(calling, body, good).json() == {}
    prompt = fake.message(calling.team, "Approval needed")
    assert len(calling.bodies("input_accepted")) == 1

    calling.until_records("delivery_confirmed", 2)
    for user in (calling.alice, calling.bob):
        payload = fake.press_payload(user, prompt, prompt.payload("Approve once"))
        form = urlencode({"payload": json.dumps(payload)}).encode()
        for _ in range(2):
            assert call(calling, form, fake.signed(form)).status_code == 200
    assert fake.whispered(calling.alice) == "You may not answer this prompt. It still stands."
    fake.wait(lambda: prompt.edits, "the update")
    until(lambda: calling.workspace("ran").exists(), "the command")
    assert [each["by"] for each in calling.bodies("approval_answered")] == ["bob"]
