"""Full outputs of tools, kept beside a journal, found and checked by digest."""

import os
import re
import secrets

from blake3 import blake3

from holdfast.adapters.files.paths import (
    create_exclusively,
    create_whole,
    make_folder,
    open_folder,
    read_file,
    walk,
)
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.errors import BrokenChain, Refused
from holdfast.limits import TOOL_OUTPUT_KEPT_BYTES
from holdfast.secrecy import known

OUTPUTS = "outputs"
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


def redacted_output(data: bytes) -> bytes:
    """Return the output as it may be kept: without secrets, and not too large."""
    data = known().hidden_bytes(data)
    if len(data) > TOOL_OUTPUT_KEPT_BYTES:
        raise Refused(
            f"an output of {len(data)} bytes is too large",
            code="too_large",
            hint=f"at most {TOOL_OUTPUT_KEPT_BYTES} are kept",
        )
    return data


def keep(files: SessionFiles, data: bytes) -> str:
    """Keep an output durably and return its digest. The same bytes are kept once."""
    data = redacted_output(data)
    digest = blake3(data).hexdigest()
    with walk(files.home, *files.parts) as folder:
        make_folder(folder, OUTPUTS)
        fd = open_folder(folder, OUTPUTS)
        try:
            temporary = f".{digest}.{secrets.token_hex(8)}.tmp"
            # An existing file was linked whole. Somebody may have changed it since, so its digest
            # is checked and these bytes replace it if needed.
            if not create_exclusively(fd, digest, data, temporary=temporary) and not _holds(
                fd, digest
            ):
                create_whole(fd, digest, data, temporary=temporary)
        finally:
            os.close(fd)
    return digest


def _holds(folder: int, digest: str) -> bool:
    try:
        return (
            blake3(read_file(folder, digest, bytes_max=TOOL_OUTPUT_KEPT_BYTES + 1)).hexdigest()
            == digest
        )
    except (OSError, Refused):
        return False


def find(files: SessionFiles, digest: str) -> bytes:
    if not _DIGEST.match(digest):
        raise Refused(f"{digest!r} is not a digest", code="malformed")
    try:
        with walk(files.home, *files.parts, OUTPUTS) as fd:
            data = read_file(fd, digest, bytes_max=TOOL_OUTPUT_KEPT_BYTES + 1)
    except FileNotFoundError:
        raise Refused(f"{files.session} keeps no output {digest}", code="unknown") from None
    if blake3(data).hexdigest() != digest:
        raise BrokenChain(
            f"{files.session}: the output {digest} was changed",
            hint="its text can't be believed; the journal has its digest",
        )
    return data
