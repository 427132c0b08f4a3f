"""The line to the server: changes of others come live, and a server that is away is never guessed at."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from tests.acceptance.gateway.conftest import Gateway, until
from tests.acceptance.gateway.page.browser import IN_BROWSER, SIZES, WAIT_MS, Tab

pytestmark = IN_BROWSER


def test_the_page_inbox_shows_changes_of_others_live_or_by_polling(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    By its live line alone while there is one; by looking again while there is none; and given up
    while nobody looks at the tab.
    """
    gateway.start()
    token = gateway.token("alice")
    alice = tab(gateway)
    page = alice.page
    lists: list[str] = []
    page.on(
        "request",
        lambda request: lists.append(request.url) if "/v1/approvals?" in request.url else None,
    )
    page.clock.install()
    page.route("**/v1/approvals/events", lambda route: route.abort())
    alice.sign_in(token)
    expect(page.locator(".line")).to_have_text("Offline. Trying again.")
    gateway.ask("ops/one", "run: echo one")
    expect(page.locator(".prompt.is-open .display")).to_contain_text("echo one")
    page.unroute("**/v1/approvals/events")
    expect(page.locator(".line")).to_have_text("live")

    lists.clear()
    second = gateway.ask("ops/two", "run: echo two")
    card = page.locator(f"[data-approval='{second.id}']")
    expect(card).to_contain_text("echo two")
    expect(page.get_by_role("heading", level=1)).to_have_text("2 prompts wait for you")
    card.locator(".prompt-head").click()
    expect(card.locator(".option")).not_to_have_count(0)
    gateway.elsewhere(
        lambda service: service.answer(
            second.id, "deny", by="alice", digest=second.digest, wait=False
        )
    )
    expect(card.locator(".outcome")).to_contain_text("You denied it.")
    assert card.locator(".option").count() == 0
    expect(page.get_by_role("heading", level=1)).to_have_text("1 prompt waits for you")
    alice.keep("inbox-answered-elsewhere")
    assert lists == []

    client = gateway.client(token)
    look = "(hidden) => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(look, True)
    page.clock.fast_forward(6_000)
    until(lambda: "holdfast_streams 0" in client.get("/metrics").text, "the line to be given up")
    gateway.ask("ops/three", "run: echo three")
    page.evaluate(look, False)
    expect(page.locator(".prompt", has_text="echo three")).to_be_visible()


@pytest.mark.long
def test_two_tabs_of_a_browser_hold_the_inboxs_line_and_a_third_waits_for_its_seat(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    A browser has six connections to one server for all of its tabs: answers must find one free.
    """
    gateway.start()
    token = gateway.token("alice")
    first = tab(gateway).sign_in(token)
    pages = [first.page]
    expect(first.page.locator(".line")).to_have_text("live")
    for line in ("live", "Offline. Trying again."):
        page = first.context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(gateway.url)
        page.fill("#token", token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".line")).to_have_text(line)
        pages.append(page)
    pages[1].close()
    expect(pages[2].locator(".line")).to_have_text("live")


def test_the_page_restarts_when_its_session_was_replaced_while_it_was_offline(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    G4: the cursor is of another instance, and the new one is longer; the page begins at its beginning.
    """
    gateway.start()
    token = gateway.token("alice")
    gateway.send(gateway.client(token), "ops/api", "read before-1")
    page = tab(gateway).sign_in(token).go("#/s/ops/api")
    expect(page.locator(".msg.asked .text")).to_have_text(["read before-1"])
    expect(page.locator(".t-answered")).to_have_count(1)
    gateway.kill()
    gateway.run("sessions", "delete", "ops/api", "--yes")
    for number in (1, 2, 3):
        gateway.run("send", "ops/api", f"read after-{number}", "--as", "alice")
    gateway.start(gateway.port)
    expect(page.locator(".msg.asked .text")).to_have_text(
        ["read after-1", "read after-2", "read after-3"]
    )


@pytest.mark.long  # a line that breaks is taken up again only after a while
def test_while_the_server_is_away_nothing_is_said_that_is_not_known_and_nothing_is_covered(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    A conversation that was never opened is not called new; a message that may have arrived is not
    called lost; the note stands over no button.
    """
    gateway.start()
    token = gateway.token("alice")
    gateway.send(gateway.client(token), "ops/old", "what time is it")
    alice = tab(gateway).sign_in(token)
    page = alice.page
    expect(page.locator(".line")).to_have_text("live")
    gateway.kill()
    page.evaluate("location.hash = '#/s/ops/old'")
    expect(page.locator(".away-note")).to_be_visible()
    expect(page.locator(".log")).to_have_text("This conversation is shown once the server answers.")
    page.fill("#say", "read after-all")
    page.keyboard.press("Enter")
    expect(page.locator(".composer .status")).to_contain_text(
        "We don't know if this arrived. Send it again when the server is back; it will count once."
    )
    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        alice.keep(f"away-{size}")
        note, *others = (
            page.locator(each).bounding_box()
            for each in (".away-note", ".composer .button.main", "#say", ".log")
        )
        assert note is not None
        for box in others:
            assert box is not None
            assert note["y"] + note["height"] <= box["y"] or box["y"] + box["height"] <= note["y"]
    gateway.start(gateway.port)
    expect(page.locator(".away-note")).to_be_hidden()
    expect(page.locator(".msg.asked .text").first).to_have_text("what time is it")
    page.locator(".composer .button.main").click()
    expect(page.locator(".msg.asked .text", has_text="read after-all")).to_be_visible()
    gateway.run("sessions", "delete", "ops/old", "--yes")
    expect(page.locator(".line")).to_have_text("deleted")
    expect(page.locator(".log .ended", has_text="This session was deleted.")).to_be_visible()
    page.fill("#say", "read anew")
    page.keyboard.press("Enter")
    expect(page.locator(".msg.asked .text")).to_have_text(["read anew"])


def test_no_error_stays_after_the_server_is_back(gateway: Gateway, tab: Callable[..., Tab]) -> None:
    gateway.start()
    token = gateway.token("alice")
    gateway.send(gateway.client(token), "ops/a", "what time is it")
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/a")
    expect(page.locator(".t-answered")).to_have_count(1)
    gateway.kill()
    page.fill("#say", "read after")
    page.keyboard.press("Enter")
    wrong = page.locator(".composer .status")
    expect(wrong).to_contain_text("We don't know if this arrived.")
    gateway.start(gateway.port)
    expect(page.locator(".talk-head .line")).to_have_text("live")
    expect(wrong).to_have_text("")
    expect(page.locator("#say")).to_have_value("read after")


def test_a_line_that_went_silent_is_taken_up_again(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """A network that goes away ends no connection: the page notices that the server says nothing."""
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/a", "what time is it")
    until(lambda: client.get("/v1/sessions/ops/a").json()["phase"] == "idle", "the turn to end")
    alice = tab(gateway)
    page = alice.page
    page.clock.install()
    alice.sign_in(token)
    silent: list[Route] = []
    page.route(
        "**/v1/sessions/ops/a/events",
        lambda route: silent.append(route),  # noqa: PLW0108  # Playwright inspects the function
        times=1,
    )
    alice.go("#/s/ops/a")
    until(lambda: page.evaluate("() => 1") and silent, "the line that stays silent")
    expect(page.locator(".msg.said")).to_have_count(0)
    page.clock.run_for(46_000)
    expect(page.locator(".msg.said")).to_have_count(1)
    expect(page.locator(".talk-head .line")).to_have_text("live")


NOTICES = """
window.notices = [];
window.Notification = class {
  static permission = "granted";
  static async requestPermission() { return "granted"; }
  constructor(title, { body }) { window.notices.push(`${title}: ${body}`); }
  addEventListener() {}
  close() {}
};
window.hide = (isHidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange"));
};
"""


def test_a_reader_who_asked_for_it_is_notified_while_the_page_is_hidden(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """Nobody else is. A hidden page gives its line up, and looks now and then instead."""
    gateway.start()
    alice = tab(gateway)
    page = alice.page
    page.add_init_script(NOTICES)
    page.clock.install()
    alice.sign_in(gateway.token("alice"))
    expect(page.locator("h1")).to_have_text("Nothing waits for you")
    page.evaluate("() => hide(true)")
    page.clock.run_for(6_000)  # its line is given up
    gateway.ask("ops/quiet", "run: true")
    page.clock.run_for(40_000)
    assert page.evaluate("() => notices") == []
    page.evaluate("() => hide(false)")
    expect(page.locator("h1")).to_have_text("1 prompt waits for you")
    assert page.evaluate("() => notices") == [], "the page was on the screen"

    page.get_by_role("button", name="Notifications").click()
    expect(page.locator(".toast")).to_contain_text("Notifications are on.")
    expect(page.get_by_role("button", name="Notifications")).to_have_attribute(
        "aria-pressed", "true"
    )
    page.evaluate("() => hide(true)")
    page.clock.run_for(6_000)
    gateway.ask("ops/loud", "run: echo SECRET-WORDS")
    with page.expect_response("**/v1/approvals?*"):
        page.clock.run_for(20_000)
    until(lambda: page.evaluate("() => notices"), "the notice")
    assert page.evaluate("() => notices") == ["Something waits for you: shell in ops/loud"]
