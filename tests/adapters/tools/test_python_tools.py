"""
Functions as tools: typed arguments refused before anyone is asked, outcomes known, the function
still a function.
"""

import asyncio
import enum
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pydantic
import pytest

from holdfast.adapters.tools.output import refuse_secrets, returned_text
from holdfast.adapters.tools.python import decorator as python
from holdfast.adapters.tools.python.decorator import tool
from holdfast.errors import InvariantBroken, Unusable
from holdfast.ports.tools import CannotBind, InvalidArguments, ToolCall
from holdfast.threads import ThreadPool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Box(msgspec.Struct):
    name: str
    points: list[Point] = []


class Order(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(default=1, ge=1)


class Parcel(msgspec.Struct, omit_defaults=True, tag="parcel"):
    to: Point
    fragile: bool = False
    labels: set[str] = set()


@tool
def post(
    parcel: Parcel, stops: list[Point], order: Order, via: dict[str, Point] | None = None
) -> str:
    """Post a parcel."""
    return f"{parcel} {stops} {order} {via}"


@tool
async def restart_service(service: str, region: str = "eu-1") -> str:
    """Restart one production service."""
    return f"{service} restarted in {region}"


@tool(
    contract="pure", mode="auto", audience="team", free=["note"], name="draw-it", timeout_seconds=5
)
def draw(
    box: Box,
    colour: Colour,
    size: Literal["s", "m"] = "s",
    orders: list[Order] | None = None,
    weights: dict[str, float] | None = None,
    note: str = "",
) -> dict[str, Any]:
    """Draw."""
    del weights, note
    return {
        "box": box.name,
        "points": [(p.x, p.y) for p in box.points],
        "colour": colour.value,
        "size": size,
        "orders": [o.count for o in orders or []],
    }


@tool
def who(call: ToolCall, greeting: str) -> str:
    return f"{greeting} {call.requester} {call.idempotency_key} {call.workspace}"


def test_defaults_are_the_safe_ones() -> None:
    definition = restart_service.definition
    assert (definition.contract, definition.default_mode, definition.audience) == (
        "once",
        "ask",
        "personal",
    )
    assert definition.description == "Restart one production service."
    assert msgspec.json.decode(definition.parameters) == {
        "type": "object",
        "properties": {
            "service": {"type": "string"},
            "region": {"type": "string", "default": "eu-1"},
        },
        "required": ["service"],
        "additionalProperties": False,
    }


def test_a_tool_is_still_the_function_it_was() -> None:
    assert asyncio.run(restart_service("api")) == "api restarted in eu-1"
    assert restart_service.__wrapped__.__name__ == "restart_service"
    assert draw(Box("b"), Colour.RED)["box"] == "b"


def test_arguments_are_completed_in_the_schemas_order() -> None:
    assert (
        restart_service.validate(b'{"region":"us", "service":"api"}')
        == b'{"service":"api","region":"us"}'
    )
    assert restart_service.validate(b'{"service":"api"}') == b'{"service":"api","region":"eu-1"}'


def test_every_default_that_will_run_is_shown_however_deep(place: Any) -> None:
    """
    This holds for dataclasses, structs that omit them, and models. Sets have one order: equal
    arguments are equal bytes in every process (P1, P4).
    """
    whole = post.validate(
        b'{"order":{"item":"pen"},"stops":[{"x":1}],"parcel":{"to":{"x":2},"labels":["b","a","c"],"type":"parcel"},"via":{"k":{"x":3}}}'
    )
    assert json.loads(whole) == {
        "parcel": {
            "type": "parcel",
            "to": {"x": 2, "y": 0},
            "fragile": False,
            "labels": ["a", "b", "c"],
        },
        "stops": [{"x": 1, "y": 0}],
        "order": {"item": "pen", "count": 1},
        "via": {"k": {"x": 3, "y": 0}},
    }
    assert post.validate(whole) == whole
    assert '"fragile":false' in post.bind(whole, place.scene()).display


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (b"[]", "object"),
        (b'{"service":1}', "service"),
        (b"{}", "service"),
        (b'{"service":"a","regoin":"b"}', "regoin"),
        (b'{"service":"a","service":"b"}', "twice"),
        (b'{"service":NaN}', "NaN"),
        (b'{"service":1e999}', "number"),
        (b'{"service":' + b"9" * 5000 + b"}", "integer"),
        (b'{"service":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
        (b'{"service":"\\ud800"}', "surrogate"),
        (b'{"service":"\xff"}', "UTF-8"),
        (b'{"service":"' + b"x" * 600_000 + b'"}', "too many"),
        (b'{"service":"a"', "strict JSON"),
    ],
)
def test_bad_arguments_are_refused_with_the_fields_name(arguments: bytes, names: str) -> None:
    with pytest.raises(InvalidArguments, match=names):
        restart_service.validate(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        # a dataclass would drop z in silence
        b'{"box":{"name":"b","points":[{"x":1,"z":2}]},"colour":"red"}',
        b'{"box":{"name":"b","lid":1},"colour":"red"}',  # and a struct the lid
        # and Pydantic the price
        b'{"box":{"name":"b"},"colour":"red","orders":[{"item":"i","price":1}]}',
        b'{"box":{"name":"b"},"colour":"green"}',
        b'{"box":{"name":"b"},"colour":"red","size":"xl"}',
        b'{"box":{"name":"b"},"colour":"red","orders":[{"item":"i","count":"2"}]}',
        b'{"box":{"name":"b"},"colour":"red","orders":[{"item":"i","count":0}]}',
        b'{"box":{"name":"b","points":[{"x":"1"}]},"colour":"red"}',
        b'{"box":{"name":"b"},"colour":"red","weights":{"a":"1"}}',
    ],
)
def test_unknown_and_wrong_fields_are_refused_however_deep(arguments: bytes) -> None:
    with pytest.raises(InvalidArguments):
        draw.validate(arguments)


def test_all_kinds_of_types_arrive_as_themselves(place: Any, run: Any) -> None:
    returned = run(
        draw,
        place.scene(),
        box={"name": "b", "points": [{"x": 1}]},
        colour="blue",
        orders=[{"item": "i", "count": 3}],
    )
    assert (returned.outcome, msgspec.json.decode(returned.text)) == (
        "ok",
        {"box": "b", "points": [[1, 0]], "colour": "blue", "size": "s", "orders": [3]},
    )
    schema = msgspec.json.decode(draw.definition.parameters)
    assert set(schema["$defs"]) == {"Box", "Point", "Colour"}
    assert draw.definition.name == "draw-it"


def test_the_call_is_injected_and_not_in_the_schema(place: Any, run: Any) -> None:
    assert "call" not in msgspec.json.decode(who.definition.parameters)["properties"]
    with pytest.raises(InvalidArguments):
        who.validate(b'{"greeting":"hi","call":{}}')
    assert run(who, place.scene(), greeting="hi").text == f"hi alice k-1 {place.workspace}"


def test_a_tools_exception_is_reported_without_a_traceback(place: Any, run: Any) -> None:
    @tool
    def broken() -> None:
        raise ValueError("no such service")

    assert (run(broken, place.scene()).outcome, run(broken, place.scene()).text) == (
        "error",
        "ValueError: no such service",
    )


class _NoWords(Exception):
    def __str__(self) -> str:
        raise ValueError("none")


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (
            BaseExceptionGroup("several", [SystemExit(1)]),
            "BaseExceptionGroup: several (1 sub-exception)",
        ),
        (asyncio.CancelledError("of its own"), "CancelledError: of its own"),
        (GeneratorExit("of its own"), "GeneratorExit: of its own"),
        (_NoWords(), "_NoWords: (it can't say why)"),
    ],
)
def test_any_exception_of_a_function_ends_its_own_call_only(
    place: Any, run: Any, raised: BaseException, told: str
) -> None:
    """One tool's `sys.exit` would take everybody's turns along, and leave its own in doubt."""

    @tool
    def sync() -> None:
        raise raised

    @tool
    async def not_sync() -> None:
        raise raised

    returned = [run(each, place.scene()) for each in (sync, not_sync)]
    assert [each.outcome for each in returned] == ["error", "error"]
    assert all(each.text.endswith(told) for each in returned)


def test_an_interrupt_of_a_functions_own_is_not_the_programs(place: Any, run: Any) -> None:
    @tool
    def interrupts() -> None:
        raise KeyboardInterrupt("mine")

    assert run(interrupts, place.scene()).text == "RuntimeError: KeyboardInterrupt: mine"


def test_a_call_that_is_stopped_from_outside_is_not_reported_as_its_own_failure(place: Any) -> None:
    async def stopped() -> bool:
        begun = asyncio.Event()

        @tool
        async def waits() -> None:
            begun.set()
            await asyncio.Event().wait()

        prepared = await waits.prepare(
            b"{}", waits.bind(b"{}", place.scene()), place.scene(), idempotency_key="k"
        )
        task = asyncio.ensure_future(prepared.go(timeout_seconds=60, on_output=lambda _: None))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(stopped())


def test_a_call_that_is_closed_from_outside_is_not_reported_as_its_own_failure(place: Any) -> None:
    """Nobody waits for it any more, and whoever is closed may not go on with a result."""

    async def closed() -> list[str]:
        begun, seen = asyncio.Event(), list[str]()

        @tool
        async def waits() -> None:
            begun.set()
            await asyncio.Event().wait()

        prepared = await waits.prepare(
            b"{}", waits.bind(b"{}", place.scene()), place.scene(), idempotency_key="k"
        )

        async def awaiting() -> None:
            try:
                seen.append((await prepared.go(timeout_seconds=60, on_output=lambda _: None)).text)
            except GeneratorExit:
                seen.append("closed")
                raise

        coroutine = awaiting()
        task = asyncio.create_task(coroutine)
        await begun.wait()
        coroutine.close()
        task.cancel()
        await asyncio.wait([task])
        assert isinstance(
            task.exception(), RuntimeError
        )  # there is nothing left that it could go on with
        return seen

    assert asyncio.run(closed()) == ["closed"]


def test_a_function_that_is_waited_for_no_longer_never_begins(
    place: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Functions that don't end hold all the threads; what waited behind them was told as over, and
    must not happen an hour later.
    """
    threads = ThreadPool(1, "test")
    monkeypatch.setattr(python, "_FUNCTIONS", threads)
    release, ran = threading.Event(), threading.Event()

    @tool(timeout_seconds=0.05)
    def stuck() -> None:
        release.wait()

    @tool(timeout_seconds=0.05)
    def late() -> None:
        ran.set()

    assert "may still take effect" in run(stuck, place.scene()).text
    assert run(late, place.scene()).text.startswith("no result within 0.05 s; it never began")
    release.set()
    asyncio.run(
        threads.call(lambda: None)
    )  # the one thread has come to what was handed out after it
    assert not ran.is_set()


def test_a_tools_own_timeout_error_is_not_ours(place: Any, run: Any) -> None:
    @tool
    async def slow_peer() -> None:
        raise TimeoutError("peer")

    assert run(slow_peer, place.scene()).outcome == "error"


def test_a_function_that_never_ends_is_timed_out(place: Any, run: Any) -> None:
    release = threading.Event()

    @tool(timeout_seconds=0.05)
    def stuck() -> None:
        release.wait()

    @tool(timeout_seconds=0.05)
    async def stuck_async() -> None:
        await asyncio.Event().wait()

    returned = run(stuck, place.scene())
    assert (returned.outcome, "may still take effect" in returned.text) == ("timed_out", True)
    release.set()
    returned = run(stuck_async, place.scene())
    assert (returned.outcome, "may still take effect" in returned.text) == ("timed_out", False)


def test_a_result_that_is_not_json_is_a_known_error(place: Any, run: Any) -> None:
    @tool
    def odd() -> object:
        return object()

    assert run(odd, place.scene()).outcome == "error"


def test_a_prepared_call_runs_at_most_once(place: Any, encode: Any) -> None:
    ran: list[str] = []

    @tool
    def note(text: str) -> None:
        ran.append(text)

    async def twice() -> None:
        arguments = note.validate(encode(text="a"))
        binding = note.bind(arguments, place.scene())
        prepared = await note.prepare(arguments, binding, place.scene(), idempotency_key="k")
        await prepared.go(timeout_seconds=60, on_output=lambda _: None)
        with pytest.raises(InvariantBroken):
            await prepared.go(timeout_seconds=60, on_output=lambda _: None)
        abandoned = await note.prepare(arguments, binding, place.scene(), idempotency_key="k")
        await abandoned.abandon()
        await abandoned.abandon()
        with pytest.raises(InvariantBroken):
            await abandoned.go(timeout_seconds=60, on_output=lambda _: None)

    asyncio.run(twice())
    assert ran == ["a"]


def test_the_display_shows_every_argument_as_it_will_be_read(place: Any, encode: Any) -> None:
    binding = restart_service.bind(
        restart_service.validate(encode(service="a\u202epi\nregion: x")), place.scene()
    )
    assert (
        binding.display == 'restart_service\n| service: "a\\u202epi\\nregion: x"\n| region: "eu-1"'
    )
    assert binding.warnings == ("invisible or control characters: U+202E RIGHT-TO-LEFT OVERRIDE",)


def test_too_long_to_show_can_not_be_bound(place: Any, encode: Any) -> None:
    with pytest.raises(CannotBind) as refused:
        restart_service.bind(restart_service.validate(encode(service="x" * 21_000)), place.scene())
    assert refused.value.code == "too_long"


def test_a_secret_that_is_escaped_in_the_arguments_is_refused() -> None:
    """The escapes of other characters than those of ASCII are found in the decoded strings."""
    with pytest.raises(CannotBind, match="hold a secret"):
        refuse_secrets(b'{"word":"p\\u00e4ssw\\u00f6rter"}', ("p\u00e4ssw\u00f6rter",))


@pytest.mark.parametrize("secret", ["sk-live-12345", 'quo"ted\nsecret'])
def test_a_secret_in_the_arguments_is_refused_and_one_in_a_result_hidden(
    place: Any, run: Any, encode: Any, secret: str
) -> None:
    @tool
    def leak() -> str:
        return f"it is {secret}!"

    scene = place.scene(secrets=(secret,))
    with pytest.raises(CannotBind) as refused:
        restart_service.bind(restart_service.validate(encode(service=f"x{secret}x")), scene)
    assert refused.value.code == "secret"
    assert run(leak, scene).text == "it is [secret]!"


@dataclass
class _Ratio:
    whole: int

    def __post_init__(self) -> None:
        self.part = 1 // self.whole


class _Picky(pydantic.BaseModel):
    whole: int

    @pydantic.field_validator("whole")
    @classmethod
    def check(cls, value: int) -> int:
        if value in _LEAVING:
            raise _LEAVING[value]("no")
        return {2: 2}[value]


_LEAVING: dict[int, type[BaseException]] = {
    1: SystemExit,
    3: GeneratorExit,
    4: asyncio.CancelledError,
}


class _Mute(pydantic.BaseModel):
    whole: int

    @pydantic.model_serializer
    def write(self) -> dict[str, int]:
        raise SystemExit("no words")


def test_a_check_of_the_authors_own_that_fails_in_any_way_is_about_the_arguments() -> None:
    """It would come up again with every look at the call: the turn could neither go on nor end."""

    @tool
    def divide(ratio: _Ratio) -> str:
        return str(ratio.part)

    @tool
    def pick(picky: _Picky) -> str:
        return str(picky.whole)

    for each, arguments, told in (
        (divide, b'{"ratio":{"whole":0}}', "ZeroDivisionError"),
        (pick, b'{"picky":{"whole":0}}', "KeyError: 0"),
        (pick, b'{"picky":{"whole":1}}', "SystemExit: no"),
        (pick, b'{"picky":{"whole":3}}', "GeneratorExit: no"),
        (pick, b'{"picky":{"whole":4}}', "CancelledError: no"),
    ):
        with pytest.raises(InvalidArguments, match=f"the tool's own check failed: {told}"):
            each.validate(arguments)
    assert pick.validate(b'{"picky":{"whole":2}}') == b'{"picky":{"whole":2}}'


@pytest.mark.parametrize("leaving", _LEAVING.values())
def test_a_result_that_can_not_write_itself_down_is_a_result_all_the_same(
    place: Any, run: Any, leaving: type[BaseException]
) -> None:
    class Mute:
        def model_dump_json(self) -> str:
            raise leaving("no words")

    @tool
    async def ran() -> Mute:
        return Mute()

    returned = run(ran, place.scene())
    assert (returned.outcome, returned.text) == (
        "error",
        f"it ran, but its result can't be written as JSON ({leaving.__name__}: no words)",
    )


def test_a_model_that_can_not_write_itself_down_is_about_the_arguments_too() -> None:
    @tool
    def keep(mute: _Mute) -> str:
        return str(mute.whole)

    with pytest.raises(InvalidArguments, match=r"can't be written down: .*no words"):
        keep.validate(b'{"mute":{"whole":1}}')


def test_a_check_that_passes_when_asked_and_not_when_started_starts_nothing(place: Any) -> None:
    closed = False

    class Open(msgspec.Struct):
        name: str

        def __post_init__(self) -> None:
            if closed:
                raise ValueError("it is closed by now")

    def enter(door: Open) -> str:
        return door.name

    enter.__annotations__["door"] = Open
    made = tool(enter)
    arguments = made.validate(b'{"door":{"name":"a"}}')
    binding = made.bind(arguments, place.scene())
    closed = True
    with pytest.raises(CannotBind, match="it is closed by now"):
        asyncio.run(made.prepare(arguments, binding, place.scene(), idempotency_key="k"))


def test_functions_a_model_could_not_call_are_refused_when_made() -> None:
    def untyped(x) -> None: ...  # type: ignore[no-untyped-def]

    def starred(*xs: int) -> None: ...

    def typed(x: int) -> None: ...

    def strange(x: threading.Thread) -> None: ...

    def yielding() -> Iterator[int]:
        yield 1

    async def yielding_later() -> AsyncIterator[int]:
        yield 1

    for function in (untyped, starred, strange, yielding, yielding_later):
        with pytest.raises(Unusable):
            tool(function)
    with pytest.raises(Unusable):
        tool(free=["y"])(typed)
    with pytest.raises(Unusable):
        tool(name="no name")(typed)
    with pytest.raises(Unusable, match="is not a function"):
        tool("restart")  # type: ignore[call-overload]


@pytest.mark.parametrize("word", ["contract", "mode", "audience"])
def test_a_word_that_means_nothing_is_refused_when_the_tool_is_made(word: str) -> None:
    """`mode="always"` must not be taken for anything, the safe default included."""

    def typed(x: int) -> None: ...

    with pytest.raises(Unusable, match=f"'always' is not a valid {word} of a tool"):
        tool(**{word: "always"})(typed)


def test_a_type_that_can_not_be_found_is_said() -> None:
    def hidden(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(Unusable, match="Nowhere"):
        tool(hidden)


def test_other_code_is_another_definition() -> None:
    def make(body: int) -> Any:
        if body == 1:

            @tool
            def act(x: int) -> int:
                return x + 1

        else:

            @tool
            def act(x: int) -> int:
                return x + 2

        return act

    assert make(1).definition.digest() != make(2).definition.digest()
    assert make(1).definition.digest() == make(1).definition.digest()


@pytest.mark.parametrize("before", range(-12, 13, 4))
def test_a_secret_where_a_long_text_is_shortened_is_hidden_whole(before: int) -> None:
    """The model sees the beginning and the end; neither may begin or end inside a secret."""
    secret = "correct horse battery staple"
    head = returned_text("." * 100_000, outcome="ok", secrets=()).text.partition("\n")[0]
    text = "." * (len(head) + before - len(secret) // 2) + secret + "." * 100_000
    shown = returned_text(text, outcome="ok", secrets=(secret,))
    assert not [part for part in secret.split() if part in shown.text]
    assert shown.full is not None
    assert secret.encode() not in shown.full
