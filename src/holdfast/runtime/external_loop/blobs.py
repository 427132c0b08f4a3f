"""
Opaque bytes of a framework, in the journal or beside it. A blob is refused or kept as it is, never
altered: a known secret in it is refused by name.
"""

import base64
import re
from collections.abc import Sequence

from holdfast import limits
from holdfast.errors import Refused, Unusable
from holdfast.runtime.context import World
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.secrecy import secrecy_of
from holdfast.session.events import Blob

_ADAPTER = re.compile(r"[a-z][a-z0-9_.-]{0,63}/[0-9]{1,6}\Z")


async def pack(world: World, ledger: Ledger, data: bytes | str, adapter: str | None) -> Blob:
    """Check the blob and, if it is large, keep it durably beside the journal."""
    name = adapter_name(adapter)
    raw = raw_bytes(data, name)
    if len(raw) > limits.BLOB_BYTES_MAX:
        raise Refused(
            f"the blob of {name} has {len(raw)} bytes; {limits.BLOB_BYTES_MAX} are the most",
            code="too_large",
            hint="keep less, or keep it elsewhere and its address here",
        )
    if secrecy_of(world.secrets).holds(raw):
        raise Refused(
            f"the blob of {name} holds a known secret, and was not kept",
            code="secret",
            hint="keep secrets out of the framework's state; revoke the secret if others saw it",
        )
    if len(raw) > limits.BLOB_INLINE_BYTES:
        return Blob(adapter=name, size=len(raw), kept=await ledger.journal.keep_output(raw))
    try:
        return Blob(adapter=name, size=len(raw), text=raw.decode())
    except UnicodeDecodeError:
        return Blob(adapter=name, size=len(raw), data=base64.b64encode(raw).decode())


def raw_bytes(data: bytes | str, name: str) -> bytes:
    if not isinstance(data, bytes | str):
        raise Unusable(
            f"the blob of {name} is a {type(data).__name__}",
            code="malformed",
            hint="hand in bytes or text",
        )
    return data.encode(errors="surrogatepass") if isinstance(data, str) else data


async def unpack(ledger: Ledger, blob: Blob) -> bytes:
    """Return the bytes; those beside the journal are checked against their digest."""
    if blob.text is not None:
        return blob.text.encode()
    if blob.data is not None:
        return base64.b64decode(blob.data)
    return await ledger.journal.output(blob.kept or "")


def adapter_name(adapter: str | None) -> str:
    if not isinstance(adapter, str) or not _ADAPTER.match(adapter):
        raise Unusable(
            f"{adapter!r} does not name an adapter and its version",
            code="malformed",
            hint='write adapter="NAME/VERSION", such as "langchain/1"',
        )
    return str.__str__(adapter)


def same_adapter(blobs: tuple[Blob, ...], adapter: str) -> Blob | None:
    """
    Find the blob of exactly this adapter. Refuse if only another version kept one: it could be read
    wrongly.
    """
    name = adapter_name(adapter)
    for blob in blobs:
        if blob.adapter == name:
            return blob
    refuse_others([each for each in blobs if same_family(each.adapter, name)], name)
    return None


def same_family(adapter: str, other: str) -> bool:
    """Whether both are versions of one adapter."""
    return adapter.partition("/")[0] == other.partition("/")[0]


def refuse_others(blobs: Sequence[Blob], adapter: str) -> None:
    """Refuse blobs of any other adapter, or version of it, by name."""
    name = adapter_name(adapter)
    other = next((each for each in blobs if each.adapter != name), None)
    if other is not None:
        raise Refused(
            f"{other.adapter} kept this state, and {name} can't read it",
            code="adapter_version",
            hint=f"go on with {other.adapter}, or begin a new message",
        )
