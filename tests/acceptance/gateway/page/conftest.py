"""A browser for all tests of the page, and a tab for each person."""

from collections.abc import Callable, Generator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.acceptance.gateway.conftest import Gateway
from tests.acceptance.gateway.page.browser import Tab


@pytest.fixture(scope="package")
def browser(needs: Callable[[str], str]) -> Generator[Browser, None, None]:
    """One browser for this folder. Its driver's loop ends before tests of other folders begin."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=needs("chromium"), args=["--no-sandbox"]
        )
        yield launched
        launched.close()


@pytest.fixture
def tab(browser: Browser) -> Generator[Callable[..., Tab], None, None]:
    opened: list[Tab] = []

    def open_tab(gateway: Gateway, **more: Any) -> Tab:
        opened.append(Tab(browser, gateway, **more))
        return opened[-1]

    yield open_tab
    for each in opened:
        each.close()
