"""
Models that settings name: their own address, key and settings, side by side, against providers on
the loopback. And the hints of failures that waiting does not mend.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.adapters.models.conftest import Line
from tests.adapters.models.test_providers import Anthropic, Chat, Dialect, Responses

from holdfast.adapters.models.catalogue import Catalogue
from holdfast.adapters.models.endpoints import EndpointModels
from holdfast.errors import Unusable
from holdfast.ports.model import Model, ModelEndpoint, ModelFailed, ModelRequest
from holdfast.session.view.messages import ModelAnswer, UserMessage
from holdfast.testing.loop import in_loop

HELLO = ModelRequest(instructions="", messages=(UserMessage(speaker="alice", text="hello"),))
DIALECTS: dict[str, Dialect] = {
    "openai:gpt-4o": Responses(),
    "openai-chat:gpt-4o": Chat(),
    "ollama:llama": Chat(),
    "vllm:llama": Chat(),
    "anthropic:claude-haiku-4-5": Anthropic(),
}


def models(
    endpoints: Mapping[str, ModelEndpoint], environment: Mapping[str, str] | None = None
) -> EndpointModels:
    given = environment or {}
    return EndpointModels(Catalogue(given), lambda: endpoints, given)


async def ask(model: Model) -> ModelAnswer:
    return await model.call(HELLO, on_text=lambda _: None)


def saying(dialect: Dialect, text: str) -> Any:
    async def reply(line: Line) -> None:
        await line.open_stream()
        await line.send(*dialect.opening(), *dialect.text(text), *dialect.ending("stop"))
        await line.end_stream()

    return reply


def refusing(status: int, dialect: Dialect) -> Any:
    async def reply(line: Line) -> None:
        await line.refuse(status, dialect.error("error", "no"))

    return reply


@pytest.mark.parametrize("model", DIALECTS)
@in_loop
async def test_a_section_brings_its_address_key_and_settings(model: str, provider: Any) -> None:
    async with provider() as it:
        it.replies = [saying(DIALECTS[model], "hi")]
        address = it.url if model.startswith("anthropic") else f"{it.url}/v1"
        endpoint = ModelEndpoint(
            model=model,
            base_url=address,
            key_env="TEAM_KEY",
            temperature=0.25,
            max_output_tokens=77,
            headers=(("X-Team", "ops"),),
        )
        found = models({"team": endpoint}, {"TEAM_KEY": "sk-of-the-team"}).resolve("team")
        assert (found.name, (await ask(found)).text) == ("team", "hi")
        (seen,) = it.seen
    assert seen.headers["x-team"] == "ops"
    assert "sk-of-the-team" in (seen.headers.get("authorization") or seen.headers["x-api-key"])
    assert seen.body["temperature"] == 0.25
    sizes = {seen.body.get(name) for name in ("max_tokens", "max_output_tokens")}
    assert 77 in sizes | {seen.body.get("max_completion_tokens")}


@in_loop
async def test_two_servers_side_by_side_and_no_key_for_a_server_that_names_none(
    provider: Any,
) -> None:
    """The provider's own key, which is set, is for the provider's own address alone."""
    async with provider() as first, provider() as second:
        first.replies, second.replies = [saying(Chat(), "one")], [saying(Chat(), "two")]
        both = models(
            {
                name: ModelEndpoint(model="openai-chat:m", base_url=f"{it.url}/v1")
                for name, it in (("first", first), ("second", second))
            }
        )
        assert (await ask(both.resolve("first"))).text == "one"
        assert (await ask(both.resolve("second"))).text == "two"
        for it in (first, second):
            assert it.seen[0].headers["authorization"] == "Bearer none"


def test_a_changed_section_is_another_model() -> None:
    endpoints = {"local": ModelEndpoint(model="vllm:one", base_url="http://127.0.0.1:1/v1")}
    found = models(endpoints)
    first = found.resolve("local")
    assert found.resolve("local") is first
    endpoints["local"] = ModelEndpoint(model="vllm:two", base_url="http://127.0.0.1:1/v1")
    assert found.resolve("local") is not first


@pytest.mark.parametrize(
    ("endpoint", "code", "said"),
    [
        (ModelEndpoint(model="openai:x", key_env="TEAM_KEY"), "model_key_missing", "TEAM_KEY"),
        (ModelEndpoint(model="openai:x"), "model_key_missing", "OPENAI_API_KEY"),
        (ModelEndpoint(model="opnai:x"), "unknown_model", "did you mean 'openai'"),
        (
            ModelEndpoint(model="groq:x", base_url="http://127.0.0.1:1"),
            "unknown_model",
            "can't name an address",
        ),
    ],
)
def test_a_section_that_cannot_be_used_says_why(
    endpoint: ModelEndpoint, code: str, said: str
) -> None:
    with pytest.raises(Unusable) as refused:
        models({"team": endpoint}).resolve("team")
    assert refused.value.code == code
    assert said in refused.value.message


def test_a_misspelt_section_is_named() -> None:
    endpoints = {"careful": ModelEndpoint(model="vllm:x", base_url="http://127.0.0.1:1")}
    with pytest.raises(Unusable, match="did you mean 'careful'"):
        models(endpoints).resolve("carefull")


@pytest.mark.parametrize("name", ["openai:gpt-4o", "openai-chat:gpt-4o", "anthropic:claude-x"])
@in_loop
async def test_a_wrong_key_names_its_variable(name: str, provider: Any) -> None:
    dialect = DIALECTS.get(name) or Anthropic()
    async with provider() as it:
        it.replies = [refusing(401, dialect)]
        with pytest.raises(ModelFailed) as failed:
            await ask(Catalogue().resolve(name))
    key = "ANTHROPIC_API_KEY" if name.startswith("anthropic") else "OPENAI_API_KEY"
    assert (failed.value.may_pass, failed.value.hint) == (False, f"check {key}")


@in_loop
async def test_a_server_without_responses_is_pointed_to_chat_completions(provider: Any) -> None:
    async with provider() as it:
        it.replies = [refusing(404, Responses()), refusing(404, Chat())]
        hints = []
        for name in ("openai:qwen", "openai-chat:qwen"):
            with pytest.raises(ModelFailed) as failed:
                await ask(Catalogue().resolve(name))
            assert not failed.value.may_pass
            hints.append(failed.value.hint)
        assert [each.path for each in it.seen] == ["/v1/responses", "/v1/chat/completions"]
    assert hints == [
        "is the model's name right? for servers with chat completions only use openai-chat:",
        "is the model's name right?",
    ]


@pytest.mark.parametrize(
    ("asked", "wait"), [("7", 7.0), ("inf", None), ("nan", None), ("-5", None), ("soon", None)]
)
@in_loop
async def test_a_wait_that_is_not_a_number_of_seconds_is_left_out(
    asked: str, wait: float | None, provider: Any
) -> None:
    async def reply(line: Line) -> None:
        await line.refuse(429, Chat().error("rate_limit_error", "slow down"), retry_after=asked)

    async with provider() as it:
        it.replies = [reply]
        with pytest.raises(ModelFailed) as failed:
            await ask(Catalogue().resolve("openai-chat:gpt-4o"))
    assert (failed.value.kind, failed.value.retry_after_seconds) == ("rate_limit", wait)
