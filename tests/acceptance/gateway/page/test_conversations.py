"""The list of conversations, their titles, and a long, a stopped and a sealed one."""

import json
import re
from collections.abc import Callable

from playwright.sync_api import Request, expect

from tests.acceptance.gateway.conftest import Gateway, until
from tests.acceptance.gateway.page.browser import IN_BROWSER, Tab

pytestmark = IN_BROWSER


def test_the_page_lists_the_newest_session_first_and_updates_its_times(
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
    rows = page.locator(".sessions .session-id")
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
    expect(page.locator(".integrity")).to_have_text("sealed: history damaged")
    page.set_viewport_size({"width": 390, "height": 844})
    # The conversation says so, or the line above the box that refused the message.
    expect(page.locator("main")).to_contain_text("holdfast sessions unseal ops/a")
    root.keep("sealed-phone-light")
    page.locator(".integrity").click()
    expect(page.locator(".verify-words .bad")).to_contain_text("does not hold after record 2")
    expect(page.locator(".verify-rows")).to_contain_text("session created")
    dialog = page.locator(".verify")
    assert dialog.evaluate("(each) => each.scrollWidth - each.clientWidth") == 0
    root.keep("sealed-verified-phone-light")
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(page.locator(".side .sealed")).to_contain_text("changed")
    expect(page.locator(".side .sealed")).to_contain_text("holdfast sessions unseal ops/a")
    expect(page.locator("#say")).to_be_disabled()
    expect(page.locator("#say")).to_have_attribute("placeholder", "Sealed: nothing can be sent")
    expect(page.locator(".side .fact", has_text="Verified")).to_contain_text(
        "up to record 2"
    )  # the third holds the message
    expect(
        page.locator(".sessions .session", has_text="ops/a").locator(".session-about")
    ).to_have_text("ops/a · sealed")
    root.keep("sealed-desk-light")


MESSAGES = 5_000  # of people and of the agent
PART_RECORDS = 400  # `bench page` has the time; here it is the amount that is read


def test_a_conversation_of_five_thousand_messages_opens_at_its_end(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """The page reads one part of the history, and earlier ones when the reader asks for them."""
    said = [
        {"role": ("user", "assistant")[number % 2], "content": f"message {number}"}
        for number in range(MESSAGES)
    ]
    head = json.dumps({"type": "session", "version": 1, "id": "old"})
    lines = [head, *(json.dumps({"type": "message", "message": each}) for each in said)]
    source = gateway.work / "old.jsonl"
    source.write_text("\n".join(lines) + "\n")
    gateway.run("sessions", "import", str(source), "ops/old")
    gateway.start()
    token = gateway.token("root", "read,send,admin")
    alice = tab(gateway).sign_in(token)
    page = alice.page
    asked: list[Request] = []
    page.on("request", lambda each: asked.append(each))  # noqa: PLW0108  playwright marks it
    page.goto(f"{gateway.url}/#/s/ops/old")
    expect(page.locator(".log")).to_contain_text("message 4999")
    expect(page.locator(".talk-head .line")).to_have_text("live")
    parts = [each.url for each in asked if "/records?" in each.url]
    assert [url.rpartition("&")[2] for url in parts] == [f"limit={PART_RECORDS}"]
    streams = [each for each in asked if re.search(r"/sessions/ops/old/(events|stream)", each.url)]
    cursors = [int(each.headers["last-event-id"]) for each in streams]
    assert cursors == [len(gateway.lines("ops/old"))]
    assert "message 10\n" not in page.locator(".log").inner_text()
    before = page.locator(".turn").count()
    page.get_by_role("button", name="Show earlier messages").click()
    page.wait_for_function(
        "(before) => document.querySelectorAll('.turn').length > before", arg=before
    )


def test_a_conversation_has_a_title_that_a_person_changes(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """The first message gives it. The head, the lists, the search and the window show it."""
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/a", "what time is it\nin Rome")
    page = tab(gateway).sign_in(token).go("#/s/ops/a")
    expect(page.locator(".talk-head h1")).to_have_text("what time is it")
    expect(page.locator(".talk-id")).to_have_text("ops/a")
    page.get_by_role("button", name="Rename").click()
    expect(page.locator(".title-input")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".talk-head h1")).to_have_text("what time is it")
    page.get_by_role("button", name="Rename").click()
    page.fill(".title-input", "Time in <b>Rome</b>")
    page.keyboard.press("Enter")
    expect(page.locator(".talk-head h1")).to_have_text("Time in <b>Rome</b>")
    expect(page.locator(".sessions .session-name").first).to_have_text("Time in <b>Rome</b>")
    expect(page.locator(".note", has_text="alice gave this conversation the title")).to_be_visible()
    until(lambda: "Time in <b>Rome</b>" in page.title(), "the window's title")
    page.get_by_role("button", name="Rename").click()
    page.locator(".title-input").evaluate("(each) => { each.removeAttribute('maxlength') }")
    page.fill(".title-input", "x" * 81)
    page.keyboard.press("Enter")
    expect(page.locator(".title-form .status")).to_contain_text("at most 80 characters")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".talk-head h1")).to_have_text("Time in <b>Rome</b>")
    page.goto(f"{gateway.url}/#/talk")
    page.fill("#find", "rome")
    expect(page.locator(".rows .session")).to_have_count(1)
    expect(page.locator(".hits .session-name").first).to_have_text("Time in <b>Rome</b>")


STALLED = '''
import asyncio
import holdfast


class Stalled:
    """Begins a reply, and never ends it."""

    name = "stalled"
    context_tokens = None
    summarises = False

    async def call(self, request, *, on_text):
        on_text("First I look. Then I ")
        await asyncio.Event().wait()


ops = holdfast.Agent("ops", model=Stalled())
'''


def test_a_reply_that_was_stopped_is_there_for_a_later_reader(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """Stop keeps the partial text: on this page, and from the journal on every other one."""
    bot = gateway.work / "bot.py"
    bot.write_text(STALLED)
    gateway.settings(f'[tools.python]\napp = "{bot}:ops"\n')
    gateway.start()
    token = gateway.token("alice")
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/a")
    page.fill("#say", "count")
    page.keyboard.press("Enter")
    expect(page.locator(".msg.said")).to_contain_text("First I look")
    expect(page.locator(".sessions .session", has_text="ops/a")).to_contain_text("thinking")
    page.get_by_role("button", name="Stop turn").click()
    expect(page.locator(".ended", has_text="Stopped by alice.")).to_have_count(1)
    # The list looks again at once, and does not wait for its next look by the clock.
    row = page.locator(".sessions .session", has_text="ops/a")
    expect(row).not_to_contain_text("thinking", timeout=15_000)
    with gateway.events(gateway.client(token), "ops/a") as events:
        kept = events.until_record("model_answer_dropped")["body"]["text"]
    assert kept.startswith("First I look")
    for reader in (page, tab(gateway).sign_in(token).go("#/s/ops/a")):
        expect(reader.locator(".msg.said .text")).to_have_text(kept.strip())
        expect(reader.locator(".msg.said")).to_contain_text(
            "Stopped here. The reply is incomplete."
        )
        expect(reader.locator(".msg.said")).to_have_count(1)


def test_conversations_are_filtered_and_say_what_they_used(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/done", "what time is it")
    gateway.send(client, "ops/asks", "run: true")
    gateway.waiting(client, "ops/asks")
    until(lambda: client.get("/v1/sessions/ops/done").json()["phase"] == "idle", "the turn to end")
    page = tab(gateway).sign_in(token).go("#/talk")
    rows = page.locator(".rows .session")
    expect(rows).to_have_count(2)
    page.locator("[data-filter=waiting]").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("ops/asks")
    page.locator("[data-filter=sealed]").click()
    expect(page.locator(".rows .empty")).to_have_text("No conversation fits.")
    page.locator("[data-filter=all]").click()
    page.fill("#find", "time")
    heads = page.locator(".view h2.section:visible")
    expect(heads).to_have_text(
        ["1 conversation by title, name or last message", "1 message with these words"]
    )
    assert page.locator(".rows").bounding_box()["y"] < heads.nth(1).bounding_box()["y"]  # type: ignore[index]  # both are visible
    page.goto(f"{gateway.url}/#/s/ops/done")
    expect(page.locator(".log", has_text=re.compile(r"\d+ tokens"))).to_be_visible()
    expect(page.locator(".side .fact", has_text="Used")).to_contain_text("tokens")
