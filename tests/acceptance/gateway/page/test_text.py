"""No text of a model, a tool or a person becomes markup, and long text is folded, never lost."""

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from tests.acceptance.gateway.conftest import Gateway, until
from tests.acceptance.gateway.page.browser import IN_BROWSER, Tab, is_inert
from tests.corpus import HOSTILE_TEXTS

pytestmark = IN_BROWSER


LONG_REPLY = "\n".join(f"line {number}" for number in range(5_000))
LONG_COMMAND = "\n".join(f"echo {number}" for number in range(60))


def test_no_text_of_a_model_a_tool_or_a_person_becomes_markup(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    calls = [
        {"tool": f"<script>{n}</script>", "args": {"a": text}}
        for n, text in enumerate(HOSTILE_TEXTS[:4])
    ]
    lines = [
        {"say": "\n".join(HOSTILE_TEXTS), "call": calls},
        {
            "say": HOSTILE_TEXTS[1],
            "call": [
                {"tool": "shell", "args": {"command": f"echo '{text}'"}}
                for text in HOSTILE_TEXTS[:6]
                if "'" not in text
            ],
        },
        {"say": "\n".join(HOSTILE_TEXTS)},
    ]
    gateway.settings(f'[agents.assistant]\nmodel = "{gateway.script(*lines)}"\n')
    gateway.start()
    token = gateway.token("alice", "read,send,approve,admin")
    client = gateway.client(token)
    gateway.send(client, "ops/xss", "\n".join(HOSTILE_TEXTS))
    gateway.waiting(client)
    alice = tab(gateway).sign_in(token)
    expect(alice.page.locator(".prompt.is-open")).to_be_visible()
    is_inert(alice.page)
    page = alice.go("#/s/ops/xss")
    expect(page.locator(".call .prompt").first).to_be_visible()
    is_inert(page)
    shown = page.locator(".log").inner_text()
    for text in HOSTILE_TEXTS[:6]:
        assert text in shown
    for prompt in client.get("/v1/approvals").json()["approvals"]:
        assert (
            page.locator(f"[data-approval='{prompt['id']}'] .display").inner_text()
            == prompt["display"]
        )
        gateway.answer(client, prompt, "deny", reason=HOSTILE_TEXTS[0])
    expect(page.locator(".t-answered")).to_have_count(1)
    page.locator("summary", has_text="Result").first.click()
    is_inert(page)
    alice.keep("xss-inert")
    title = client.post("/v1/sessions/ops/xss/title", json={"title": HOSTILE_TEXTS[0]})
    assert title.status_code == 200, title.text
    for place, sign in (("#/decisions", ".decision"), ("#/talk", ".rows .session")):
        alice.go(place)
        page.wait_for_selector(sign)
        is_inert(page)
    page.fill("#find", "script")
    page.wait_for_selector(".hit")
    is_inert(page)
    assert alice.wrong == []
    assert (
        page.evaluate(
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'markup'; } catch { return 'refused'; } })()"
        )
        == "refused"
    )
    alice.wrong.clear()  # the browser's word about what was just tried


def test_the_page_shows_long_text_from_its_beginning_and_folds_it(
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
    head = page.locator(".call .prompt-head")
    expect(head).to_be_visible()
    until(lambda: late or page.wait_for_timeout(20), "the answer that is held")
    late[0]()
    expect(page.locator("#say")).to_have_value("")
    expect(head).to_be_in_viewport(ratio=1)
    alice.keep("long-prompt-from-its-top")
    expect(page.locator(".option[data-option=deny]")).to_be_in_viewport()
    alice.settled()
    page.locator(".option[data-option=deny]").click()
    expect(page.locator(".turn").last.locator(".msg.said")).to_be_in_viewport()

    page.set_viewport_size({"width": 640, "height": 400})
    log = page.locator(".log").bounding_box()
    assert log is not None
    assert log["height"] >= 240
    alice.keep("twice-the-size")


def test_the_page_shows_recalled_memory_as_text_to_its_person_alone(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    M1 over HTTP: remembered by alice, recalled in her next session, in no record of bob's; on the
    page it is text and nothing else.
    """
    canary = f"the door code is {HOSTILE_TEXTS[0]} canary"
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
    is_inert(page)


def test_a_sessions_reminders_are_listed_beside_it_as_plain_text(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """Work that will come by itself is shown in the conversation; its text is text."""
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


@pytest.mark.parametrize(
    ("tool", "change"),
    [
        pytest.param("write_file", {"content": "one\nTWO\nthree\n"}, marks=pytest.mark.long),
        ("edit_file", {"old": "two", "new": "TWO"}),
    ],
)
def test_a_reply_is_drawn_as_markdown_and_a_change_as_a_diff(
    gateway: Gateway, tab: Callable[..., Tab], tool: str, change: dict[str, str]
) -> None:
    (gateway.work / "a.txt").write_text("one\ntwo\nthree\n")
    said = "# Plan\n\n- [notes](https://example.org/x)\n\n| a |\n|---|\n| 1 |\n\n```py\nx = 1\n```"
    arguments = {"path": "a.txt", **change}
    model = gateway.script(
        {"say": said, "call": [{"tool": tool, "args": arguments}]}, {"say": "done"}
    )
    gateway.settings(f'[agents.assistant]\nmodel = "{model}"\n')
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/md")
    page.fill("#say", "go")
    page.keyboard.press("Enter")
    reply = page.locator(".msg.said .rich").first
    expect(reply.locator("h3")).to_have_text("Plan")
    expect(reply.locator("td")).to_have_text("1")
    expect(reply.locator("pre .c-number")).to_have_text("1")
    expect(reply.locator("a")).to_have_text("notes https://example.org/x")
    is_inert(page)
    diff = page.locator(".call .diff")
    expect(diff.locator(".diff-counts")).to_have_text("+1 line -1 line")
    expect(diff.locator(".is-changed .left mark")).to_have_text("two")
    expect(diff.locator(".is-changed .right mark")).to_have_text("TWO")
    page.locator(".exact-text > summary").click()
    display = page.locator(".call .display[data-exact]").inner_text()
    assert display == gateway.waiting(client)["display"]
    alice.settled()
    page.locator("[data-option=approve_once]").click()
    until(lambda: (gateway.work / "a.txt").read_text() == "one\nTWO\nthree\n", "the change")


def test_messages_of_other_people_stand_apart_from_the_readers_own(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice", "read,send,approve,admin")
    gateway.send(gateway.client(gateway.token("bob", audience="team")), "ops/both", "read one")
    client = gateway.client(gateway.token("alice", audience="team"))
    gateway.send(client, "ops/both", "read two")
    page = tab(gateway).sign_in(token).go("#/s/ops/both")
    own = page.locator(".msg.asked", has_text="read two")
    other = page.locator(".msg.asked", has_text="read one")
    expect(own).to_have_class(re.compile("own"))
    expect(other).not_to_have_class(re.compile("own"))
    boxes = [each.bounding_box() for each in (own, other)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[1]["x"] + boxes[1]["width"] < boxes[0]["x"], "the other person's is at the left"
    colour = "(each) => getComputedStyle(each).backgroundColor"
    assert own.locator(".text").evaluate(colour) != other.locator(".text").evaluate(colour)
