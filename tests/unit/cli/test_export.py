"""An export is there whole, or not at all."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.commands.sessions.export import _write
from holdfast.cli.shared.options import Options


def test_half_an_export_is_not_left_behind(tmp_path: Path) -> None:
    """The disk was full: with room again the same command works."""

    def lines() -> Iterator[bytes]:
        yield b"one\n" * 10_000
        raise OSError(errno.ENOSPC, "No space left on device")

    place = tmp_path / "api.jsonl"
    with pytest.raises(OSError, match="No space"):
        _write(Options(), lines(), str(place))
    assert not place.exists()
    _write(Options(), [b"one\n"], str(place))
    assert place.read_bytes() == b"one\n"
