"""
`[approvals] notify = { command = [...] }`: run a program of the operator with one JSON object on
its standard input.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered, Parcel

NOTIFY = "notify"
TIMEOUT_SECONDS = 10.0


class CommandChannel:
    """
    Exit code 0 confirms the delivery. Another code is a known failure. A program that hangs is
    ended, and its effect is unknown.
    """

    name = NOTIFY

    def __init__(
        self,
        words: Sequence[str],
        *,
        folder: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._words = tuple(words)
        # The folder it runs in: the home. A program name without a folder must not mean a file in
        # the current folder, which may belong to somebody else.
        self._folder = folder
        self._timeout_seconds = timeout_seconds

    def takes(self, kind: str, *, of: str) -> bool:  # noqa: ARG002  # prompts of every channel
        return kind == "prompt"

    async def send(self, parcel: Parcel) -> str | None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=environment,
                cwd=self._folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            raise NotDelivered(f"{self._words[0]} can't be run: {exc}", may_pass=False) from exc
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await process.communicate(parcel.text.encode() + b"\n")
        except TimeoutError:
            raise DeliveryInDoubt(
                f"{self._words[0]} did not end within {self._timeout_seconds:g} s"
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode != 0:
            raise NotDelivered(f"{self._words[0]} ended with {process.returncode}", may_pass=True)
        return None
