"""
`remember`, `recall` and `forget`: the model's access to memory, only under the turn's journalled
context.

No argument names the person or boundary. They come from the scene, and the scene comes from the
journal. An item of another boundary is not found, even by its id. Policy decides as for any tool.
This module refuses the calls that no policy can allow: anything in PUBLIC, anything that quotes
another person, and anything under a lost context.
"""

from collections.abc import Callable

from holdfast import limits
from holdfast.adapters.tools.builtin.base import Builtin, ToolFailed, Values, definition_of
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.python.arguments import REQUIRED, ArgumentTypes
from holdfast.errors import HoldfastError
from holdfast.ids import memory_id
from holdfast.ports.memory import CannotRecall, Memory
from holdfast.ports.tools import CannotBind, InvalidArguments, Scene
from holdfast.session.authority.context import Audience
from holdfast.session.authority.plan import Binding
from holdfast.session.features.memory.items import (
    RECALLED,
    MemoryItem,
    Origin,
    ReaderSet,
    may_see,
    query_words,
    remembered_lines,
    within_bounds,
)
from holdfast.session.view.safe_text import framed, render_argument

_RECALL_SECONDS = 4 * limits.MEMORY_RECALL_SECONDS  # the model asked for it, so it may take longer
_ID_CHARS_MAX = 64


def remember(memory: Memory | None, now_ms: Callable[[], int]) -> Builtin:
    types = ArgumentTypes("remember", {"text": (str, REQUIRED)})
    definition = definition_of(
        "remember",
        "Remember a short text beyond this conversation, for the person or the team that asked. "
        "Write it so that it is understood on its own.",
        types,
        contract="idempotent",  # the item's id comes from the call: a rerun writes the same item
        mode="ask",
        kind="memory",
        audience="personal",
    )

    def work(values: Values, _binding: Binding, scene: Scene) -> str:
        origin = _origin(scene)
        item = _item(values["text"], origin, scene, now_ms())
        try:
            _there(memory).add(item)
        except HoldfastError as exc:
            raise ToolFailed(f"not remembered: {exc.message}") from exc
        return f"remembered as {item.id}"

    def bind(values: Values, scene: Scene) -> Binding:
        _there(memory)
        origin = _origin(scene)
        shown = render_argument(values["text"])
        whence = (
            "Tools or other people have spoken in this turn, so this may not be your own wish."
            if origin.tainted
            else ""
        )
        return Binding(
            display=display_of(
                [f"remember for {_whom(origin.reader_set)}", framed(shown.text), whence]
            ),
            warnings=shown.warnings,
        )

    return Builtin(definition, types, check=_check_text, bind=bind, work=work)


def recall(memory: Memory | None) -> Builtin:
    types = ArgumentTypes("recall", {"query": (str, REQUIRED)})
    definition = definition_of(
        "recall",
        "Find memories of the requester by words.",
        types,
        contract="pure",
        mode="auto",
        kind="memory",
        audience="team",
    )

    def work(values: Values, _binding: Binding, scene: Scene) -> str:
        return _recalled(_there(memory), values["query"], _reader_set(scene))

    def bind(values: Values, scene: Scene) -> Binding:
        _there(memory)
        _reader_set(scene)
        return Binding(
            display=display_of(["recall", framed(render_argument(values["query"]).text)])
        )

    return Builtin(definition, types, check=_check_query, bind=bind, work=work)


def forget(memory: Memory | None) -> Builtin:
    types = ArgumentTypes("forget", {"id": (str, REQUIRED)})
    definition = definition_of(
        "forget",
        "Forget one remembered thing for good, by its id (m-...).",
        types,
        contract="once",
        mode="ask",
        kind="memory",
        audience="personal",
    )

    def work(values: Values, _binding: Binding, scene: Scene) -> str:
        item = _visible(_there(memory), values["id"], scene)
        try:
            _there(memory).forget(item.id)
        except HoldfastError as exc:
            raise ToolFailed(f"not forgotten: {exc.message}") from exc
        return f"{item.id} is forgotten"

    def bind(values: Values, scene: Scene) -> Binding:
        item = _visible(_there(memory), values["id"], scene)
        shown = render_argument(item.text)
        display = display_of(
            [
                (
                    f"forget, for good, {item.id} of "
                    f"{_whom(ReaderSet(Audience(item.audience), item.boundary, item.person))}"
                ),
                framed(shown.text),
            ]
        )
        return Binding(display=display, warnings=shown.warnings)

    return Builtin(definition, types, check=_check_id, bind=bind, work=work)


# --- arguments


def _check_text(values: Values) -> None:
    size = len(values["text"].encode())
    if not values["text"].strip() or size > limits.MEMORY_ITEM_BYTES_MAX:
        raise InvalidArguments(
            f"text has {size} bytes; it must say something in at most "
            f"{limits.MEMORY_ITEM_BYTES_MAX}"
        )


def _check_query(values: Values) -> None:
    if not query_words(values["query"]):
        raise InvalidArguments("query holds no word to look for")


def _check_id(values: Values) -> None:
    if not values["id"].startswith("m-") or len(values["id"]) > _ID_CHARS_MAX:
        raise InvalidArguments("id is the whole id of one remembered thing, as in m-...")


# --- boundary and audience


def _there(memory: Memory | None) -> Memory:
    if memory is None:
        raise CannotBind("this home has no memory")
    return memory


def _origin(scene: Scene) -> Origin:
    if isinstance(scene.origin, str):
        raise CannotBind(f"nothing is remembered here: {scene.origin}", code="hard_deny")
    return scene.origin


def _reader_set(scene: Scene) -> ReaderSet:
    if scene.reader_set is None:
        raise CannotBind(
            "nothing is recalled here: it is not known that everybody who reads the answer may see "
            "it",
            code="hard_deny",
        )
    return scene.reader_set


def _visible(memory: Memory, name: str, scene: Scene) -> MemoryItem:
    """Return an item that the turn may see. Any other item is reported as missing."""
    try:
        item = memory.get(name) if scene.reader_set is not None else None
    except CannotRecall as exc:
        raise CannotBind(f"memory can't be read: {exc}") from exc
    if item is None or scene.reader_set is None or not may_see(item, scene.reader_set):
        raise CannotBind(f"no memory {name} here")
    return item


def _whom(reader_set: ReaderSet) -> str:
    return (
        f"{reader_set.person} alone ({reader_set.boundary})"
        if reader_set.audience is Audience.PERSONAL
        else f"everybody in {reader_set.boundary}"
    )


def _item(text: str, origin: Origin, scene: Scene, now: int) -> MemoryItem:
    reader_set = origin.reader_set
    return MemoryItem(
        id=memory_id(scene.instance, scene.call),
        text=text,
        audience=reader_set.audience.value,
        boundary=reader_set.boundary,
        person=reader_set.person,
        authenticity=origin.authenticity,
        tainted=origin.tainted,
        kind=origin.kind,
        session=scene.session,
        instance=scene.instance,
        turn=scene.turn,
        call=scene.call,
        created_at=now,
    )


def _recalled(memory: Memory, query: str, reader_set: ReaderSet) -> str:
    try:
        found = memory.find(
            query_words(query),
            reader_set,
            limit=2 * limits.MEMORY_RECALLED_MAX,
            seconds=_RECALL_SECONDS,
        )
    except CannotRecall as exc:
        raise ToolFailed(f"nothing could be recalled: {exc}") from exc
    items = within_bounds(item for item in found.items if may_see(item, reader_set))
    left_out = (
        [f"({found.unverified} of what was found does not verify, and is left out.)"]
        if found.unverified
        else []
    )
    if not items:
        return "\n".join(["nothing is remembered about that", *left_out])
    return "\n".join([RECALLED, *remembered_lines(items), *left_out])
