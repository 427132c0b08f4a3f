"""
A long conversation on the page: from the press on its name to the drawing of its last message, in
a real browser, beside a short conversation in the same run.

The page reads one part of the history, so the length must not matter. The CPU time of the page's
main thread is reported too: other people's load does not change it.
"""

import getpass
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Page, sync_playwright

from bench.gateway import Served, server_process
from bench.ground import Ground, Row, Times, compared, under

PART = "page"
LONG, SHORT = 5_000, 50
OPENS_SECONDS = 0.5
TIMES = 9
_SCOPES = ("--scopes", "read,send,admin")
_WAIT_MS = 30_000
_CHROMIUM = "/usr/bin/chromium"
_FLAGS = ("--no-sandbox", "--disable-quic", "--disable-background-networking")

# From the change of the address to the frame in which the last message stands.
_OPEN = """([name, last, wait]) => new Promise((done, fail) => {
  const start = performance.now();
  const look = () => {
    const text = document.querySelector(".log")?.textContent ?? "";
    if (text.includes(last)) done(performance.now() - start);
    else if (performance.now() - start > wait) fail(new Error(`${name} did not open: ${text}`));
    else requestAnimationFrame(look);
  };
  location.hash = `#/s/bench/${name}`;
  look();
})"""


class Opening(NamedTuple):
    seconds: float
    cpu_seconds: float


def measure(ground: Ground) -> list[Row]:
    if not Path(_CHROMIUM).exists():
        return []
    long = ground.count(LONG, 1_000)
    folder = ground.fresh("page")
    with server_process(folder) as served:
        for name, messages in (("long", long), ("short", SHORT)):
            _import(folder, name, messages)
        with _signed_in(served, _admin_token(folder)) as page:
            opened = _opener(page)
            opened("short", SHORT)  # the first one also loads the page's modules
            pairs = [(opened("long", long), opened("short", SHORT)) for _ in range(TIMES)]
    longs, shorts = (Times([each.seconds for each in some]) for some in zip(*pairs, strict=True))
    busy = Times([each.cpu_seconds for each, _ in pairs])
    what = f"a conversation of {long:,} messages opens, p50"
    return [
        under(
            PART,
            what,
            longs.p50,
            OPENS_SECONDS,
            note=f"slowest {max(longs.all):.2f} s; CPU of the main thread {busy.p50:.2f} s",
        ),
        compared(
            PART,
            what,
            longs.p50,
            shorts.p50,
            note=f"limit: a conversation of {SHORT}; the page draws one part of the long one",
        ),
    ]


def _import(folder: Path, name: str, messages: int) -> None:
    said = (
        {"role": ("user", "assistant")[number % 2], "content": f"message {number}"}
        for number in range(messages)
    )
    head = {"type": "session", "version": 1, "id": name}
    lines = [head, *({"type": "message", "message": each} for each in said)]
    source = folder / f"{name}.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    _holdfast(folder, "sessions", "import", str(source), f"bench/{name}")


def _holdfast(folder: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", "holdfast", "--home", str(folder / "home"), "--json"]
    done = subprocess.run(
        [*command, *arguments], check=True, capture_output=True, cwd=folder / "work"
    )
    return json.loads(done.stdout)


def _admin_token(folder: Path) -> str:
    """An imported conversation belongs to the home's owner."""
    added = _holdfast(folder, "tokens", "add", "page", "--as", getpass.getuser(), *_SCOPES)
    return str(added["token"])


@contextmanager
def _signed_in(served: Served, token: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=list(_FLAGS))
        page = browser.new_page()
        page.set_default_timeout(_WAIT_MS)
        page.goto(f"http://127.0.0.1:{served.port}")
        page.fill("#token", token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_selector(".frame")
        yield page
        browser.close()


def _opener(page: Page) -> Callable[[str, int], Opening]:
    chromium = page.context.new_cdp_session(page)
    chromium.send("Performance.enable", {"timeDomain": "threadTicks"})

    def cpu_seconds() -> float:
        found = chromium.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))

    def opened(name: str, messages: int) -> Opening:
        before = cpu_seconds()
        seconds = page.evaluate(_OPEN, [name, f"message {messages - 1}", _WAIT_MS]) / 1000
        opening = Opening(float(seconds), cpu_seconds() - before)
        page.evaluate("() => { location.hash = '#/inbox'; }")
        page.wait_for_function("() => document.querySelector('.log') === null")
        return opening

    return opened
