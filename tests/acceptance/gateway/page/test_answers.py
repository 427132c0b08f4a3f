"""What people press counts once, for exactly what stood there, and its result stands on the same card."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.acceptance.gateway.conftest import Gateway, until
from tests.acceptance.gateway.page.browser import IN_BROWSER, Tab, is_inert, records_of

pytestmark = IN_BROWSER


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
    expect(page.locator(".prompt .note")).to_have_text(
        "You asked, so another person decides. Only bob may answer this."
    )
    expect(page.locator(".stop-about")).to_have_text(
        "Stop turn ends your request. Its prompt closes, and bob can no longer answer it."
        " Nothing more runs. Everything said and done stays."
    )
    assert page.locator(".prompt .option").count() == 0
    expect(bob.page.locator(".prompt.is-open .display")).to_contain_text("echo ran >> ran.txt")
    bob.go("#/s/ops/deploy")
    expect(bob.page.locator(".prompt .option")).to_have_count(2)
    expect(bob.page.get_by_role("button", name="Stop turn")).to_be_hidden()  # it is not his turn
    bob.go("#/inbox")
    expect(bob.page.locator(".prompt.is-open .option")).to_have_count(2)

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
    expect(bob.page.locator(".outcome")).to_contain_text("You approved it once")
    expect(page.locator(".chip-state", has_text="done")).to_be_visible()
    expect(page.locator(".t-answered")).to_have_count(1)
    alice.keep("two-people-alice-after")
    assert (gateway.work / "ran.txt").read_text() == "ran\n"


def test_one_with_a_known_risk_needs_its_name_typed(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/danger", "run: eval 'touch danger.txt'")
    prompt = gateway.waiting(client)
    assert [each["kind"] for each in prompt["risks"]] == ["runtime_code"]
    alice = tab(gateway, size="phone").sign_in(token)  # the field is not beside the buttons there
    page = alice.page
    once = page.locator(".option[data-option=approve_once]")
    expect(once).to_be_disabled()
    expect(page.locator(".option[data-option=deny]")).to_be_enabled()
    to_field = page.get_by_role("button", name="Show the field that unlocks Approve")
    to_field.click()
    expect(page.locator(".confirm")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("a")  # Approve is locked: the key is the field
    expect(page.locator(".confirm")).to_be_focused()
    expect(page.locator(".confirm")).to_be_in_viewport(ratio=1)
    page.locator(".confirm").fill("shel")
    page.keyboard.press("Enter")
    expect(once).to_be_disabled()
    expect(to_field).to_be_visible()
    page.locator(".confirm").fill("shell")
    page.keyboard.press("Enter")
    expect(to_field).to_be_hidden()
    assert client.get(f"/v1/approvals/{prompt['id']}").json()["state"] == "requested"
    alice.settled()
    once.click()
    expect(page.locator(".outcome")).to_contain_text("You approved it once")
    until((gateway.work / "danger.txt").exists, "the tool to have run")


def test_a_click_meant_for_what_stood_there_before_is_not_an_answer(
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
    page.locator(".menu > summary").click()
    page.locator("[data-option=edit]").click()
    page.locator(".own textarea").fill(
        '{"command": "echo second", "cwd": ".", "timeout_seconds": null}'
    )
    page.get_by_role("button", name="Show me the new call").click()
    expect(page.locator(".call .prompt .display")).to_contain_text("echo second")
    asked = gateway.waiting(client, "ops/work")
    assert (asked["agent"], asked["edited_by"]) == ("assistant", "alice")
    who = page.locator(".call .prompt .fact", has_text="Who")
    expect(who).to_contain_text("alice asked; alice changed the call of the agent assistant")
    alice.settled()
    page.locator(".call .prompt .menu > summary").click()
    alice.settled()  # the card moved as its menu opened
    page.locator(".call .prompt [data-option=approve_everywhere]").click()
    expect(page.locator(".chip-state", has_text="done")).to_be_visible()
    assert not (gateway.work / "out.txt").exists()
    kept = client.get(f"/v1/approvals/{asked['id']}").json()
    assert (kept["agent"], kept["edited_by"]) == ("assistant", "alice")

    page = alice.go("#/s/ops/question")
    page.fill("#say", "ask me which region?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".call .question")
    alice.settled()
    page.locator(".answer-text").fill("eu-1, please")
    page.locator("[data-option=answer]").click()
    expect(page.locator(".t-answered")).to_have_count(1)
    assert "eu-1, please" in json.dumps(
        [
            each
            for each in records_of(gateway, client, "ops/question")
            if each["type"] == "call_finished"
        ]
    )

    page = alice.go("#/grants")
    expect(page.locator(".grant")).to_have_count(1)
    expect(page.locator(".grant")).to_contain_text("echo second")
    is_inert(page)
    page.get_by_role("button", name="Revoke").click()
    expect(page.locator(".grant")).to_have_count(0)
    assert client.get("/v1/grants").json()["grants"] == []


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


@pytest.mark.parametrize(
    ("how", "told", "state"),
    [
        ("cancelled", "Stopped. Nothing ran.", "stopped before it ran"),
        pytest.param(
            "expired",
            "Nobody answered in time, so it was denied. Nothing ran.",
            "denied: nobody answered in time",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_prompt_that_ends_under_a_hand_says_how_and_what_it_was(
    gateway: Gateway, tab: Callable[..., Tab], how: str, told: str, state: str
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
    expect(page.locator(".chip-state")).to_have_text(state)
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    assert page.url.endswith("#/s/ops/late")

    blind = tab(gateway)
    blind.page.goto(gateway.url)
    blind.page.fill("#token", gateway.token("alice", "send"))
    blind.page.get_by_role("button", name="Sign in").click()
    expect(blind.page.locator(".signin .status.bad")).to_contain_text("lacks the scope read")


def test_a_message_that_would_replace_a_prompt_needs_a_second_press(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/two")
    page.fill("#say", "run: touch ran.txt")
    page.keyboard.press("Enter")
    page.wait_for_selector(".call .prompt .option")
    prompt = gateway.waiting(client)
    page.fill("#say", "what time is it")
    page.keyboard.press("Enter")
    about = page.locator(".composer-about")
    expect(about).to_contain_text("1 prompt waits for an answer: shell touch ran.txt.")
    expect(about).to_contain_text("Your message replaces it, and it does not run.")
    alice.keep("second-press-desk-light")
    assert client.get(f"/v1/approvals/{prompt['id']}").json()["state"] == "requested"
    assert client.get("/v1/sessions/ops/two").json()["turns"] == 1
    page.locator("#say").press_sequentially("?")  # another text asks again
    expect(about).to_be_hidden()
    page.keyboard.press("Enter")
    expect(about).to_contain_text("Your message replaces it")
    page.get_by_role("button", name="Send and replace").click()
    expect(page.locator(".msg.said")).to_contain_text("now:")
    assert client.get(f"/v1/approvals/{prompt['id']}").json()["closed_as"] == "superseded"
    assert not (gateway.work / "ran.txt").exists()


@pytest.mark.parametrize("size", ["phone", pytest.param("desk", marks=pytest.mark.long)])
def test_stop_says_whose_prompt_it_closes_before_it_does(
    gateway: Gateway, tab: Callable[..., Tab], size: str
) -> None:
    """The first press shows the effect, on a phone too; the second one stops."""
    gateway.settings('[policy.personal]\nshell = { ask = ["bob"], requester_may_answer = false }\n')
    gateway.start()
    token = gateway.token("alice")
    alice = tab(gateway, size=size).sign_in(token)
    page = alice.go("#/s/ops/stop")
    page.fill("#say", "run: touch ran.txt")
    page.keyboard.press("Enter")
    page.wait_for_selector(".call .prompt .note")
    prompt = gateway.waiting(gateway.client(gateway.token("bob")))
    page.get_by_role("button", name="Stop turn").click()
    about = page.locator(".composer-about")
    expect(about).to_be_in_viewport()
    expect(about).to_have_text(
        "Stop turn ends your request. Its prompt closes, and bob can no longer answer it."
        " Nothing more runs. Everything said and done stays. Press again to stop."
    )
    alice.keep(f"stop-second-press-{size}-light")
    client = gateway.client(token)
    assert client.get(f"/v1/approvals/{prompt['id']}").json()["state"] == "requested"
    page.get_by_role("button", name="Stop now").click()
    expect(page.locator(".ended", has_text="Stopped by alice.")).to_have_count(1)
    expect(about).to_be_hidden()
    assert client.get(f"/v1/approvals/{prompt['id']}").json()["closed_as"] == "cancelled"


def test_while_a_question_waits_the_message_box_answers_it(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/ask")
    page.fill("#say", "ask me which region?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".call .question")
    prompt = gateway.waiting(client)
    expect(page.locator("#say")).to_have_attribute("placeholder", "Answer the question")
    expect(page.locator(".composer-about")).to_contain_text("You answer: which region?")
    page.fill("#say", "eu-1, please")
    alice.keep("question-box-desk-light")
    page.keyboard.press("Enter")
    expect(page.locator(".t-answered")).to_have_count(1)
    report = client.get(f"/v1/approvals/{prompt['id']}").json()
    assert (report["state"], report["option"]) == ("answered", "answer")
    assert client.get("/v1/sessions/ops/ask").json()["turns"] == 1, "it was not a message"
    expect(page.locator("#say")).to_have_value("")
    expect(page.locator("#say")).to_have_attribute("placeholder", "Say something")


def test_the_result_stands_on_the_card_that_was_answered(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """Also why a person denied it, which the agent reads."""
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/a", "run: echo all is well")
    gateway.waiting(client, "ops/a")
    gateway.send(client, "ops/b", "run: echo no")
    gateway.waiting(client, "ops/b")
    alice = tab(gateway).sign_in(token)
    page = alice.page
    first = page.locator(".prompt", has_text="echo all is well")
    second = page.locator(".prompt", has_text="echo no")
    first.locator(".option").first.wait_for()
    alice.settled()
    first.locator("[data-option=approve_once]").click()
    expect(first.locator(".outcome")).to_contain_text("You approved it once. Result: done.")
    expect(first.locator(".outcome .result")).to_contain_text("all is well")
    second.locator(".option").first.wait_for()
    alice.settled()
    second.get_by_role("button", name="Add a reason to Deny").click()
    second.get_by_label("Why you deny it").fill("not today")
    second.locator("[data-option=deny]").click()
    expect(second.locator(".outcome")).to_contain_text("You denied it.")
    page = alice.go("#/decisions")
    expect(page.locator(".decision")).to_have_count(2)
    expect(page.locator(".decision", has_text="echo no")).to_contain_text("not today")
    page.fill("#d-session", "ops/a")
    page.keyboard.press("Tab")
    expect(page.locator(".decision")).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export CSV").click()
    assert "echo all is well" in Path(download.value.path()).read_text()
