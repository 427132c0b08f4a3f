"""Signing in and out: a code works once, a wrong token is named, and typed text survives."""

from collections.abc import Callable

from playwright.sync_api import Route, expect

from tests.acceptance.gateway.conftest import Gateway, until
from tests.acceptance.gateway.page.browser import IN_BROWSER, Held, Tab, sign_out

pytestmark = IN_BROWSER


def test_the_page_keeps_typed_text_while_it_loads(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    A place is entered once, however long the first look at everything takes; and nothing is said to
    wait for nobody before somebody looked.
    """
    gateway.start()
    alice = tab(gateway)
    page = alice.page
    page.route("**/v1/approvals/events", lambda route: route.abort())
    prompts, sessions = Held(page, "**/v1/approvals?*"), Held(page, "**/v1/sessions?*")
    with page.expect_request("**/v1/approvals?*"):
        alice.sign_in(gateway.token("alice"))
    expect(page.locator("h1")).to_have_text("Looking for prompts")
    expect(page.locator(".empty")).to_be_hidden()
    with page.expect_request("**/v1/sessions?*"):
        prompts.let_go()
    expect(page.locator("h1")).to_have_text("Nothing waits for you")
    alice.go("#/s/ops/early")
    page.fill("#say", "run: echo early")
    sessions.let_go()
    page.wait_for_selector(".recent .dim")  # none yet: the look has come back
    expect(page.locator("#say")).to_have_value("run: echo early")
    page.keyboard.press("Enter")
    expect(page.locator(".call .prompt .display")).to_contain_text("echo early")


def test_typed_text_survives_a_refusal_a_slow_answer_and_a_sign_out(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.settings('[approvals]\non_message = "wait"\n[policy.personal]\nshell = "auto"\n')
    gateway.start()
    token = gateway.token("alice")
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/slow")
    held: list[Route] = []
    page.route("**/messages", lambda route: held.append(route), times=1)  # noqa: PLW0108  # playwright puts marks on it, which a builtin takes none of
    page.locator("#say").focus()
    page.keyboard.type("write_file path=a.txt content=b")
    page.keyboard.press("Enter")
    page.keyboard.type("the next one")
    until(lambda: page.evaluate("() => 1") and held, "the message to be on its way")
    held[0].continue_()
    expect(page.locator(".call .prompt .display")).to_contain_text("a.txt")
    expect(page.locator("#say")).to_have_value("the next one")

    alice.settled()
    page.locator(".menu > summary").click()
    page.locator("[data-option=edit]").click()
    page.locator(".own textarea").fill('{"path": "a.txt", "contents": "typed for long"}')
    page.get_by_role("button", name="Show me the new call").click()
    expect(page.locator(".prompt .status")).to_contain_text("no field 'contents'")
    expect(page.locator(".own textarea")).to_have_value(
        '{"path": "a.txt", "contents": "typed for long"}'
    )
    expect(page.get_by_role("button", name="Show me the new call")).to_be_enabled()

    page.fill("#say", "run: until [ -e stop ]; do sleep 0.05; done")
    page.keyboard.press("Enter")
    expect(page.locator(".chip-state", has_text="running")).to_be_visible()
    page.get_by_role("button", name="Stop turn").click()
    expect(page.locator(".ended", has_text="Stopped by alice.")).to_have_count(1)
    assert (
        gateway.waiting(gateway.client(token))["turn"] == "t1"
    )  # that one waits on: another was stopped

    sign_out(page)
    page.fill("#token", "hf_half")
    page.evaluate(
        "() => new Promise((done) => { addEventListener('hashchange', () => setTimeout(done)); location.hash = '#/s/ops/elsewhere'; })"
    )
    expect(page.locator("#token")).to_have_value("hf_half")
    assert page.evaluate("() => window.asked") == []


def test_nothing_is_sent_after_a_sign_out_not_even_by_a_stream_that_waits_for_its_seat(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    page = tab(gateway).sign_in(gateway.token("alice")).go("#/s/ops/quiet")
    page.wait_for_selector("#say")
    page.evaluate(
        """() => {
          window.waiting = [];
          const locks = navigator.locks, request = locks.request.bind(locks);
          locks.request = (...words) => new Promise((done) => {
            window.waiting.push(() => done(request(...words)));
          });
        }"""
    )
    gateway.stop()
    page.wait_for_function("() => window.waiting.length > 0")  # the line fell, and asks for a seat
    gateway.start()
    sign_out(page)
    page.evaluate("() => { for (const go of window.waiting) go(); }")
    page.evaluate("() => new Promise((done) => setTimeout(done, 400))")
    assert page.evaluate("() => window.asked") == []


def test_the_code_in_the_address_works_once_and_stays_nowhere(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    owner = tab(gateway)
    page = owner.go(f"#code={gateway.code}")
    page.wait_for_selector(".frame")
    assert gateway.code not in page.url
    assert page.evaluate("document.cookie") == ""
    assert owner.context.cookies() == []
    assert "hf_" not in page.evaluate("JSON.stringify(localStorage)")
    assert "hf_" not in page.content()
    page.reload()
    page.wait_for_selector(".frame")
    thief = tab(gateway)
    other = thief.go(f"#code={gateway.code}")
    expect(other.locator(".status.bad")).to_contain_text("unknown, used or too old")


def test_a_revoked_token_ends_the_page_and_says_so(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice", name="laptop")
    gateway.send(gateway.client(token), "ops/a", "help")
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/a")
    page.wait_for_selector(".t-answered")
    gateway.run("tokens", "revoke", "laptop")
    expect(page.locator(".signin .status.bad")).to_contain_text("revoked or has expired")


def test_a_token_that_was_not_copied_whole_is_called_unknown(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    page = tab(gateway).go("")
    page.fill("#token", gateway.token("alice")[:-1])
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".signin .status.bad")).to_have_text(
        "This server does not know that token. Did you copy all of it?"
    )
