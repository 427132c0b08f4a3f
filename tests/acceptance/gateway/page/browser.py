"""A real browser on a real server: one tab is one person. Screenshots are kept in tests/artefacts."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.acceptance.gateway.conftest import Gateway

ARTEFACTS = Path(__file__).parents[3] / "artefacts"
SIZES = {"phone": (390, 844), "desk": (1280, 800)}
WAIT_MS = 60_000
IN_BROWSER = [
    pytest.mark.needs_system("chromium"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(180),
]
expect.set_options(timeout=WAIT_MS)  # its own is five seconds, whatever the page's is


class Tab:
    """One person's browser: their own context, watched for anything that a page should never do."""

    def __init__(
        self, browser: Browser, gateway: Gateway, *, size: str = "desk", scheme: Any = "light"
    ) -> None:
        width, height = SIZES[size]
        self.gateway = gateway
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on(
            "dialog",
            lambda dialog: (self.wrong.append(f"dialog {dialog.message}"), dialog.dismiss()),
        )
        self.page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(gateway.url)
                else self.wrong.append(f"request {request.url}")
            ),
        )
        self.page.on(
            "console",
            lambda said: (
                self.wrong.append(said.text)
                if said.type == "error" and not _is_about_the_line(said.text)
                else None
            ),
        )

    def sign_in(self, token: str) -> "Tab":
        self.page.goto(self.gateway.url)
        self.page.fill("#token", token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_selector(".frame")
        return self

    def go(self, place: str) -> Page:
        self.page.goto(f"{self.gateway.url}/{place}")
        return self.page

    def keep(self, name: str) -> None:
        ARTEFACTS.mkdir(exist_ok=True)
        self.page.screenshot(path=ARTEFACTS / f"{name}.png")

    def settled(self) -> None:
        """The half second in which a card that has just opened takes no click."""
        self.page.wait_for_timeout(600)

    def close(self) -> None:
        self.context.close()
        assert self.wrong == []


class Held:
    """Requests that get no answer until they are let go."""

    def __init__(self, page: Page, pattern: str) -> None:
        self._routes: list[Route] | None = []
        page.route(pattern, self._take)

    def _take(self, route: Route) -> None:
        if self._routes is None:
            route.continue_()
        else:
            self._routes.append(route)

    def let_go(self) -> None:
        routes, self._routes = self._routes or [], None
        for each in routes:
            each.continue_()


def _is_about_the_line(text: str) -> bool:
    """The browser's own words about a server that is away, or a status that the page handles."""
    return "Failed to load resource" in text or "ERR_" in text


def is_inert(page: Page) -> None:
    assert page.evaluate("window.pwned") is None
    assert (
        page.locator(
            "#app script, #app iframe, #app svg[onload], #app base, #app form:not(.filters), #app style, #app meta, #app object, #app embed"
        ).count()
        == 0
    )
    assert page.locator("img:not([src='/assets/icon.svg'])").count() == 0
    links = page.locator("a").evaluate_all(
        "all => all.map((a) => [a.getAttribute('href'), a.rel, a.referrerPolicy, a.innerText])"
    )
    for href, rel, referrer, words in links:
        if not href.startswith("#"):  # to another site: it tells nothing and shows its target
            assert re.match("https?://|mailto:", href)
            assert ("noreferrer" in rel, "noopener" in rel, referrer) == (True, True, "no-referrer")
            assert href in words


def sign_out(page: Page) -> None:
    """
    Sign out in the same task of the browser in which a look at the lists is scheduled, and wait
    until a timer that was set later has fired. `window.asked` then holds every request that the
    page began after the sign-out.
    """
    page.evaluate(
        """() => new Promise((done) => {
          const ask = window.fetch;
          window.asked = [];
          window.fetch = (url, more) => { window.asked.push(String(url)); return ask(url, more); };
          document.dispatchEvent(new Event("visibilitychange"));
          document.querySelector('[aria-label="Sign out"]').click();
          window.asked = [];
          setTimeout(done, 400);
        })"""
    )


def records_of(gateway: Gateway, client: Any, session: str) -> list[Any]:
    with gateway.events(client, session) as stream:
        stream.until_record("turn_ended")
    return [data for name, _, data in stream.heard if name == "record"]
