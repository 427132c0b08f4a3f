"""From names to models: cheap, lazy, and with a next step wherever a name can't be used."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic_ai import providers
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel as ForeignTestModel
from pydantic_ai.providers import infer_provider_class

from holdfast.adapters.models import catalogue as module
from holdfast.adapters.models.catalogue import Catalogue
from holdfast.adapters.models.providers import PROVIDERS, SECRETS
from holdfast.adapters.models.pydantic_ai.view import answer_from_response
from holdfast.assembly.service import open_service
from holdfast.errors import Unusable
from holdfast.ports.model import ModelFailed, ModelRequest, OnText
from holdfast.runtime.context import ModelTimes
from holdfast.runtime.drive.model_call import ask_model
from holdfast.session.view.messages import ModelAnswer, ProposedCall, UserMessage
from holdfast.testing.models import ScriptModel

HELLO = ModelRequest(instructions="Be kind.", messages=(UserMessage("hello", "alice"),))

LAZY = """
import sys
from holdfast.adapters.models.catalogue import Catalogue
catalogue = Catalogue({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})
names = [catalogue.resolve(name).name for name in ("demo", "openai:gpt-5", "anthropic:claude-opus-5")]
print(names, sorted({"pydantic_ai", "pydantic", "openai", "anthropic", "httpx", "httpx2"} & set(sys.modules)))
"""


def test_resolving_imports_no_provider() -> None:
    """Nor the library under it: that takes a second, and only a call needs it."""
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=True)
    assert done.stdout == "['demo', 'openai:gpt-5', 'anthropic:claude-opus-5'] []\n"


@pytest.mark.parametrize(
    ("name", "code", "said", "hint"),
    [
        ("gpt-5", "unknown_model", "did you mean 'openai:gpt-5'?", "PROVIDER:MODEL"),
        ("claude-x", "unknown_model", "did you mean 'anthropic:claude-x'?", "PROVIDER:MODEL"),
        ("opnai:gpt-5", "unknown_model", "did you mean 'openai'?", "PROVIDER:MODEL"),
        ("openai:", "unknown_model", "'openai:'", "PROVIDER:MODEL"),
        ("", "unknown_model", "''", "PROVIDER:MODEL"),
        ("litellm:x", "unknown_model", "'litellm:x'", "PROVIDER:MODEL"),
        ("openai:gpt-5", "model_key_missing", "OPENAI_API_KEY", "set OPENAI_API_KEY"),
        (
            "anthropic:claude-opus-5",
            "model_key_missing",
            "ANTHROPIC_API_KEY",
            "set ANTHROPIC_API_KEY",
        ),
        ("ollama:llama3", "model_key_missing", "OLLAMA_BASE_URL", "set OLLAMA_BASE_URL"),
        ("groq:llama", "model_package_missing", "the package groq", "pydantic-ai-slim[groq]"),
        (
            "google:gemini",
            "model_package_missing",
            "the package google.genai",
            "pydantic-ai-slim[google]",
        ),
        ("script:", "unknown_model", "no file", "script:FILE"),
        ("script:/nowhere/at/all", "unknown_model", "can't be read", "script:FILE"),
        ("object:openai:gpt-5", "unknown_model", "is an object", "--app"),
        ("script-object:abc", "unknown_model", "is an object", "--app"),
    ],
)
def test_a_name_that_cannot_be_used_comes_with_the_next_step(
    name: str, code: str, said: str, hint: str
) -> None:
    """The error names its cause and the next step."""
    with pytest.raises(Unusable) as caught:
        Catalogue({}).resolve(name)
    assert caught.value.code == code
    assert said in caught.value.message
    assert hint in caught.value.hint


def test_without_pydantic_ai_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base install has no providers."""
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(Unusable) as caught:
        Catalogue({"OPENAI_API_KEY": "k"}).resolve("openai:gpt-5")
    assert (caught.value.code, caught.value.hint) == (
        "model_package_missing",
        f"install the extra: `pip install '{Path(__file__).parents[3]}[models]'`",
    )


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_provider_of_the_table_is_one_that_pydantic_ai_knows(name: str) -> None:
    """A name that resolves here must not turn out unknown at the first call."""
    try:
        infer_provider_class(name)
    except ImportError as exc:
        assert PROVIDERS[name].extra in str(exc)  # noqa: PT017 - known, and its package is not installed


def test_every_secret_that_a_provider_looks_for_is_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    S1, also for those that need none to be tried: as many as Pydantic AI's own modules name, and
    Amazon's, which its SDK reads.
    """
    modules = [
        Path(providers.__file__).parent / f"{name.replace('-', '_')}.py" for name in PROVIDERS
    ]
    named = {
        each
        for module in modules
        if module.exists()
        for each in re.findall(r"'([A-Z][A-Z0-9_]*(?:KEY|TOKEN)[A-Z0-9_]*)'", module.read_text())
    }
    assert {"VLLM_API_KEY", "OLLAMA_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "GROQ_API_KEY"} < named
    assert named - set(SECRETS) == set()
    for each in SECRETS:
        monkeypatch.setenv(each, f"secret of {each}")

    async def held_back() -> set[str]:
        async with open_service(tmp_path / "home") as service:
            return set(service.runtime.world.secrets)

    assert asyncio.run(held_back()) >= {
        f"secret of {each}" for each in (*named, "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY")
    }


@pytest.mark.parametrize("name", ["openai:gpt-5", "anthropic:claude-opus-5"])
def test_a_key_that_is_gone_by_the_first_call_fails_the_call(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the process: the provider's own complaint is told as unavailable."""
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    model = Catalogue({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}).resolve(name)
    assert model.context_tokens is None
    with pytest.raises(ModelFailed) as caught:
        asyncio.run(model.call(HELLO, on_text=lambda _: None))
    assert (caught.value.kind, caught.value.may_pass) == ("unavailable", False)
    assert "API_KEY" in caught.value.message


def test_the_window_is_known_where_the_price_list_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, from what ships with Pydantic AI."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert Catalogue().resolve("demo").context_tokens is None
    assert (Catalogue().resolve("anthropic:claude-opus-5").context_tokens or 0) >= 200_000


def answer(messages: Any, info: Any) -> ModelResponse:  # noqa: ARG001
    return ModelResponse(
        parts=[TextPart("hi"), ToolCallPart("now", {"zone": "UTC"}, "call_1"), TextPart("bye")]
    )


def test_any_model_object_of_pydantic_ai_can_be_registered() -> None:
    """
    Those that stream and those that don't; each under a name of its own that only this process
    knows.
    """
    catalogue = Catalogue()
    function, stock = (
        FunctionModel(answer, model_name="f"),
        ForeignTestModel(custom_output_text="one two"),
    )
    first, second = (
        catalogue.register(function),
        catalogue.register(FunctionModel(answer, model_name="f")),
    )
    assert (first.name, second.name) == ("object:function:f", "object:function:f#2")
    assert catalogue.register(function) is first is catalogue.resolve(first.name)
    heard: list[str] = []
    said = asyncio.run(first.call(HELLO, on_text=heard.append))
    assert said.text == "".join(heard) == "hi\n\nbye"
    assert said.calls == (ProposedCall("now", '{"zone":"UTC"}', "call_1"),)
    heard.clear()
    assert (
        asyncio.run(catalogue.register(stock).call(HELLO, on_text=heard.append)).text
        == "".join(heard)
        == "one two"
    )


def test_a_model_of_ours_is_registered_as_it_is() -> None:
    """A ScriptModel is found again by its name."""
    catalogue, model = Catalogue(), ScriptModel(["hi"])
    assert catalogue.register(model) is model is catalogue.resolve(model.name)


class Strange:
    """
    A response as a provider's package may hand it out. FunctionModel itself stumbles over half a
    character in arguments.
    """

    name = "strange"
    context_tokens = None

    def __init__(self, part: Any) -> None:
        self._response = ModelResponse(parts=[part])

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        answer = answer_from_response(self._response, request)
        on_text(answer.text)
        return answer


def test_an_answer_that_is_not_text_is_the_models_failure() -> None:
    """
    A model object gives whatever it gives: what can't be written down ends the call, and nothing
    else.
    """

    def strange(messages: Any, info: Any) -> ModelResponse:  # noqa: ARG001
        return ModelResponse(parts=[ToolCallPart("note", {"x": object()}, "a")])

    model = Catalogue().register(FunctionModel(strange, model_name="f"))
    with pytest.raises(ModelFailed) as failed:
        asyncio.run(ask_model(model, HELLO, on_text=lambda _: None, times=ModelTimes()))
    assert (failed.value.kind, failed.value.may_pass) == ("malformed", True)


@pytest.mark.parametrize(
    ("part", "text", "call", "is_said"),
    [
        (TextPart("half \ud83d"), "half \ufffd", None, True),
        (TextPart("joined \ud83d\ude00"), "joined \U0001f600", None, True),
        (ToolCallPart("\ud800", "{}", "a"), "", ProposedCall("\ufffd", "{}", "a"), True),
        (ToolCallPart("note", "{}", "\ud800"), "", ProposedCall("note", "{}", "\ufffd"), True),
        (
            ToolCallPart("note", '{"x":"\ud800"}', "a"),
            "",
            ProposedCall("note", '{"x":"\\ud800"}', "a"),
            True,
        ),
        (
            ToolCallPart("note", {"x": "\ud800"}, "a"),
            "",
            ProposedCall("note", '{"x": "\\ud800"}', "a"),
            False,
        ),  # spelt out by the adapter
        (ThinkingPart("\ud800"), "", None, False),
    ],
)
def test_an_answer_with_half_a_character_is_kept(
    part: Any,
    text: str,
    call: ProposedCall | None,
    *,
    is_said: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    It was paid for: its words are mended, and of a call only the arguments stay what they are,
    which no tool takes.
    """
    heard: list[str] = []
    answer, written = asyncio.run(
        ask_model(Strange(part), HELLO, on_text=heard.append, times=ModelTimes())
    )
    assert (answer.text, answer.calls, "".join(heard)) == (
        text,
        (call,) if call is not None else (),
        text,
    )
    assert msgspec.json.decode(written, type=ModelAnswer) == answer
    assert ("wrote halves of characters" in caplog.text) == is_said


def test_a_models_own_code_that_would_end_the_program_ends_its_call() -> None:
    def leaves(*_: Any) -> ModelResponse:
        sys.exit(3)

    model = Catalogue().register(FunctionModel(leaves, model_name="f"))
    with pytest.raises(ModelFailed) as caught:
        asyncio.run(model.call(HELLO, on_text=lambda _: None))
    assert (caught.value.kind, caught.value.may_pass) == ("malformed", False)
