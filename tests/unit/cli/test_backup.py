"""A backup goes where backups go: to another machine's disk."""

import asyncio
from pathlib import Path

import pytest

from holdfast.adapters.files import store
from holdfast.adapters.filesystems import UNSAFE, MagicOf, refuse_unsafe
from holdfast.assembly.service import open_service
from holdfast.assembly.store import existing_store
from holdfast.cli.commands.backup import _backup
from holdfast.cli.shared.options import Options
from holdfast.errors import Unusable


def test_a_backup_may_lie_where_no_home_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody locks or appends there. A home on the same filesystem is refused as ever."""
    home, copy = tmp_path / "home", tmp_path / "backup"

    async def create() -> None:
        async with open_service(home) as service:
            await service.create("ops/api", by="alice")

    asyncio.run(create())
    network = next(iter(UNSAFE))

    def judged(fd: int, path: str, magic_of: MagicOf) -> None:
        refuse_unsafe(fd, path, (lambda _: network) if path == str(copy) else magic_of)

    monkeypatch.setattr(store, "refuse_unsafe", judged)
    options = Options()
    options.home = str(home)
    assert asyncio.run(_backup(options, copy)) == 0
    with pytest.raises(Unusable, match=UNSAFE[network]):
        asyncio.run(existing_store(copy))
