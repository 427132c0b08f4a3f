"""
The stored form of a session in the index: a few columns to survey tens of thousands of sessions,
the rest packed, and one mac over all of it.

The packed part leaves out values that the columns have. Prompts repeat the same words in every
session, so a long one is deflated against a dictionary of them, to an eighth of its length. That is
the cost of a parked session besides its journal. Pure: values in, bytes out.
"""

import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from blake3 import blake3

from holdfast.ids import InstanceId, SessionId
from holdfast.limits import MIB
from holdfast.ports.index import IndexRow, Standing
from holdfast.session.state import Reader

_log = logging.getLogger(__name__)

COLUMNS = (
    "session, instance, seq, owes, waiting, expires_at, remind_at, running, "
    "awaits, rest, prompts, mac"
)
Values = tuple[str, str, int, int, int, int, int, int, bytes, bytes, bytes, bytes]
_TYPES = (str, str, int, int, int, int, int, int, bytes, bytes, bytes, bytes)

PACKED_BYTES_MAX = (
    64 * MIB
    # Several hundred of the longest prompts. A larger row is not kept, and its session is opened
    # instead.
)
_DEFLATED = b"z"  # a JSON array begins with "["
_PLAIN_BYTES_MAX = 512  # for shorter ones the gain is not worth the time
_WINDOW = (
    -13
)  # 8 KiB back: most prompts are shorter, and a larger window costs more to set up than it saves
_MEMORY = 5
_LEVEL = 6
# Up to this length the dictionary has most of the words. Dynamic Huffman codes would save a
# twentieth of the length, and reading them would take two thirds of the time.
_FIXED_BYTES_MAX = 4096
_WORDS = (
    b'"approve_folder":"outside this folder, in this session","answered","closed","k'
    b'ind":"question","audience":"public","boundary":"team:ops","channel":"http","au'
    b'dience":"team","options":["approve_once","approve_session","approve_folder","a'
    b'pprove_everywhere","edit","deny"],"principal":"trusted_internal","tool":"write'
    b'_file","arguments":{"path":"/","content":"","cwd":"/","timeout_seconds":},"dis'
    b'play":"shell\\n| runs confined","$ ","risks":[{"kind":"destructive","text":"`",'
    b'"start":1,"end":2}],"quoted_speakers":[],"principal":"operator"},{"id":"a-","s'
    b'ession":"ops/","instance":"","turn":"t1","call":"c-","tool":"shell","arguments'
    b'":{"command":""},"display":"","digest":"","options":["approve_once","approve_s'
    b'ession","approve_everywhere","edit","deny"],"covers":{"approve_once":"Runs exa'
    b'ctly this call, once.","approve_session":"Runs now and whenever alice asks for'
    b' exactly this, in this conversation, for 30 days.","approve_everywhere":"Runs '
    b"now and whenever alice asks for exactly this, in all conversations of alice, f"
    b'or 30 days.","edit":"Change the values. You see the new call before it runs.",'
    b'"deny":"Nothing runs."},"may_answer":["alice"],"requester":"alice","audience":'
    b'"personal","boundary":"personal:alice","channel":"local","requested_at":"2026-'
    b'01-01T00:00:00.000Z","expires_at":"2026-01-01T00:00:00.000Z","state":"requeste'
    b'd","closed_as":null,"answered_by":null,"option":null,"kind":"approval","reason'
    b'":"Your settings ask before shell ([policy.personal], line 9).By default, shel'
    b'l asks before it runs.","risks":[],"quoted_speakers":[],"principal":"operator"'
    b',"agent":"assistant"}]'
)
"""
The parts that most prompts have in common, the likeliest last. Another dictionary is another
version of the index.
"""


class _Rest(msgspec.Struct, frozen=True, array_like=True):
    """The values that only readers of one session need."""

    phase: str
    turns: int
    updated_at: int
    waiting_for: tuple[str, ...]
    people: tuple[str, ...]
    readers: tuple[Reader, ...]
    preview: str
    title: str
    reminders: tuple[bytes, ...]  # as JSON
    parent: SessionId | None
    jobs: tuple[str, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode_rest = msgspec.msgpack.Decoder(_Rest).decode
_decode_awaits = msgspec.msgpack.Decoder(tuple[tuple[SessionId, InstanceId], ...]).decode
_decode_prompts = msgspec.json.Decoder(tuple[msgspec.Raw, ...]).decode


def values_of(row: IndexRow, key: bytes) -> Values | None:
    """Return None if the row is too large to be kept."""
    reminders = tuple(bytes(each) for each in row.reminders)
    rest = msgspec.msgpack.encode(
        _Rest(
            row.phase,
            row.turns,
            row.updated_at,
            row.waiting_for,
            row.people,
            row.readers,
            row.preview,
            row.title,
            reminders,
            row.parent,
            row.jobs,
        )
    )
    awaits = msgspec.msgpack.encode(row.awaits) if row.awaits else b""
    prompts = _packed(msgspec.json.encode(row.approvals)) if row.approvals else b""
    if len(awaits) + len(rest) + len(prompts) > PACKED_BYTES_MAX:
        return None
    times = (row.expires_at or 0, row.remind_at or 0)
    numbers = (row.seq, int(row.owes), len(row.approvals), *times, len(row.jobs))
    columns = (row.session, row.instance, *numbers, awaits, rest, prompts)
    return (*columns, _mac(key, columns))


def verifies(found: Sequence[Any], key: bytes) -> bool:
    """
    Verify the types and the mac. SQLite keeps any type in any column, so types are checked too.
    """
    return tuple(map(type, found)) == _TYPES and bool(_mac(key, found[:-1]) == found[-1])


class RowKeys:
    """
    Whether a stored row is ours. `keys` returns the current keys, the newest first: only rows under
    the newest count.
    """

    def __init__(self, keys: Callable[[], Sequence[bytes]]) -> None:
        self._keys = keys

    @property
    def newest(self) -> bytes:
        return self._keys()[0]

    def believed(self, found: Sequence[Any]) -> IndexRow | None:
        if not self.verifies(found):
            return None
        try:
            return row_of(found)
        except msgspec.MsgspecError:  # genuine, of another version of this program
            return None

    def verifies(self, found: Sequence[Any]) -> bool:
        newest, *older = self._keys()
        if verifies(found, newest):
            return True
        # rows from before a rotation need no warning
        if not any(verifies(found, key) for key in older):
            _log.warning("the index has a row for %r that is not ours", found[0])
        return False

    def verified(self, page: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """The rows that verify."""
        newest = self._keys()[0]
        return (each for each in page if verifies(each, newest) or self.verifies(each))

    def approval_mac(self, approval: str, session: str) -> bytes:
        name = approval.encode()
        return blake3(
            b"approval %d:%s%s" % (len(name), name, session.encode()), key=self.newest
        ).digest()


def reaches(known: tuple[str, int] | None, instance: InstanceId, seq: int) -> bool:
    """Whether the known (instance, seq) of a row is as new as this head."""
    return known is not None and known[0] == instance and known[1] >= seq


def standing_of(found: Sequence[Any]) -> Standing:
    """Decode columns that verified."""
    session, instance, seq, owes, _, expires_at, remind_at, _, awaits, _, prompts, _ = found
    return Standing(
        session,
        instance,
        seq,
        bool(owes),
        expires_at or None,
        _unpacked(prompts) if prompts else b"",
        remind_at or None,
        _decode_awaits(awaits) if awaits else (),
    )


def row_of(found: Sequence[Any]) -> IndexRow:
    """
    Decode columns that verified. Raise MsgspecError if another version of this program wrote them.
    """
    session, instance, seq, owes, _, expires_at, remind_at, _, awaits, rest, prompts, _ = found
    more: _Rest = _decode_rest(rest)
    return IndexRow(
        session=SessionId(session),
        instance=InstanceId(instance),
        seq=seq,
        phase=more.phase,
        turns=more.turns,
        owes=bool(owes),
        updated_at=more.updated_at,
        approvals=_decode_prompts(_unpacked(prompts)) if prompts else (),
        waiting_for=more.waiting_for,
        expires_at=expires_at or None,
        people=more.people,
        readers=more.readers,
        preview=more.preview,
        title=more.title,
        remind_at=remind_at or None,
        reminders=tuple(msgspec.Raw(each) for each in more.reminders),
        parent=more.parent,
        jobs=more.jobs,
        awaits=_decode_awaits(awaits) if awaits else (),
    )


def _mac(key: bytes, columns: Sequence[str | int | bytes]) -> bytes:
    """
    The mac covers every field with its type and length, so that no two rows give the same bytes.
    """
    return blake3(b"row " + _encode(columns), key=key).digest()


def _packed(prompts: bytes) -> bytes:
    if len(prompts) <= _PLAIN_BYTES_MAX:
        return prompts
    codes = zlib.Z_FIXED if len(prompts) <= _FIXED_BYTES_MAX else zlib.Z_DEFAULT_STRATEGY
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, codes, _WORDS)
    return b"".join((_DEFLATED, deflate.compress(prompts), deflate.flush()))


def _unpacked(prompts: bytes) -> bytes:
    return (
        zlib.decompressobj(_WINDOW, _WORDS).decompress(prompts[1:])
        if prompts.startswith(_DEFLATED)
        else prompts
    )
