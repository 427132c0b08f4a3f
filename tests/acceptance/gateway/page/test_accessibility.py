"""The page by keyboard alone, on a phone, and under an accessibility checker."""

import json
import re
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.acceptance.gateway.conftest import Gateway, until
from tests.acceptance.gateway.page.browser import IN_BROWSER, SIZES, Tab

pytestmark = IN_BROWSER


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
    expect(page.locator(".outcome")).to_contain_text("You approved it once")
    until((gateway.work / "approved.txt").exists, "the tool to have run")
    expect(page.locator(".outcome")).to_contain_text("Result: done.")
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


def test_the_accessibility_checker_finds_nothing(gateway: Gateway, tab: Callable[..., Tab]) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/a", "what time is it")
    gateway.send(client, "ops/b", "run: sh -c 'id'")
    gateway.send(client, "ops/c", "run: true")
    gateway.send(client, "ops/d", "ask me which one?")
    (gateway.work / "a.txt").write_text("one two\n")
    gateway.send(client, "ops/e", "edit_file path=a.txt old=two new=three")
    until(lambda: len(client.get("/v1/approvals").json()["approvals"]) == 4, "four prompts")
    gateway.answer(client, gateway.waiting(client, "ops/c"), "approve_session")
    for scheme, size in (("light", "desk"), ("dark", "phone")):
        alice = tab(gateway, scheme=scheme, size=size)
        page = alice.go("")
        page.wait_for_selector("#token")
        _check(page, f"sign in, {scheme}")
        alice.sign_in(token)
        for place, sign in (
            ("#/inbox", ".prompt.is-open .option"), ("#/s/ops/a", ".msg.said"), ("#/s/ops/b", ".call .prompt .option"), ("#/s/ops/new", ".tries"), ("#/s/ops/e", ".diff mark"),
            ("#/grants", ".grant"), ("#/talk", ".rows .session"), ("#/decisions", ".decision"),
        ):  # fmt: skip
            alice.go(place)
            page.wait_for_selector(sign)
            _check(page, f"{place}, {scheme}")
            alice.keep(f"{re.sub('[^a-z]+', '-', place).strip('-')}-{size}-{scheme}")
        page.get_by_role("button", name="Help and keys").click()
        _check(page, f"help, {scheme}")
        page.keyboard.press("Escape")
        alice.go("#/talk")
        page.fill("#find", "time")
        page.wait_for_selector(".hit")
        _check(page, f"search, {scheme}")
        alice.go("#/s/ops/a")
        page.get_by_role("button", name="Rename").click()
        _check(page, f"rename, {scheme}")
        page.keyboard.press("Escape")
        page.locator(".integrity").click()
        expect(page.locator(".verify-words .good")).to_be_visible()
        _check(page, f"verify, {scheme}")
        alice.go("#/s/ops/b")
        page.get_by_role("button", name="Add a reason to Deny").click()
        page.locator(".menu > summary").click()
        alice.settled()
        page.locator("[data-option=edit]").click()
        page.fill("#say", "something else")
        page.locator("#say").press("Enter")
        page.wait_for_selector(".composer-about.warn")
        _check(page, f"everything open, {scheme}")


def _check(page: Page, where: str) -> None:
    found = Axe().run(page).response["violations"]
    told = [
        f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for each in found
        for node in each["nodes"]
    ]
    assert not told, f"{where}: {json.dumps(told, indent=1)}"


def test_letters_move_the_focus_and_press_nothing(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """j and k move between cards, a and d to Approve and Deny; only Space presses."""
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    for name in ("a", "b"):
        gateway.send(client, f"ops/{name}", f"run: touch {name}.txt")
        gateway.waiting(client, f"ops/{name}")
    alice = tab(gateway).sign_in(token)
    page = alice.page
    expect(page.locator(".prompt")).to_have_count(2)
    focused = "document.activeElement.closest('.prompt')?.querySelector('.prompt-peek').textContent"
    option = "document.activeElement.dataset.option"
    page.keyboard.press("j")
    assert page.evaluate(focused) == "touch a.txt"
    page.keyboard.press("j")
    assert page.evaluate(focused) == "touch b.txt"
    # The text of a card that has just opened is measured first; Approve is locked until then.
    unlocked = page.locator(".prompt.is-open [data-option=approve_once]:enabled")
    expect(unlocked).to_have_count(1)
    page.keyboard.press("a")
    assert page.evaluate(option) == "approve_once"
    page.keyboard.press("d")
    assert page.evaluate(option) == "deny"
    page.keyboard.press("k")
    assert page.evaluate(focused) == "touch a.txt"
    assert len(client.get("/v1/approvals").json()["approvals"]) == 2
    expect(unlocked).to_have_count(1)
    page.keyboard.press("a")
    alice.settled()
    page.keyboard.press("Space")
    expect(page.locator(".outcome")).to_contain_text("You approved it once")
    until((gateway.work / "a.txt").exists, "the tool to have run")
    assert not (gateway.work / "b.txt").exists()


def test_on_a_phone_targets_are_large_and_the_box_takes_no_focus_from_a_prompt(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/a", "run: echo hello")
    gateway.waiting(client)
    alice = tab(gateway, size="phone").sign_in(token)
    page = alice.go("#/inbox")
    page.wait_for_selector(".prompt.is-open .option")
    _targets_are_large(page)
    alice.go("#/s/ops/a")
    page.wait_for_selector(".call .prompt .option")
    assert page.evaluate("document.activeElement.id") != "say"
    alice.keep("prompt-phone-light")
    _targets_are_large(page)
    gateway.answer(client, gateway.waiting(client), "approve_everywhere")
    expect(page.locator(".msg.said")).to_have_count(1)
    _targets_are_large(page)
    for place, sign in (
        ("#/inbox", ".empty"), ("#/talk", ".rows .session"),
        ("#/decisions", ".decision"), ("#/grants", ".grant"),
    ):  # fmt: skip
        alice.go(place)
        page.wait_for_selector(sign)
        _targets_are_large(page)


def _targets_are_large(page: Page) -> None:
    kinds = "button, a, summary, input, textarea, select"
    found = page.locator(f":is({kinds}):visible:not(.skip)").evaluate_all(
        "all => all.map((each) => [each.outerHTML.slice(0, 80), each.getBoundingClientRect().height])"
    )
    assert found
    assert [each for each in found if each[1] < 44] == []


# Pairs of places that Tab visits in one order and the eye in the other: the later one stands above
# in the same column, or to the left in the same row. What lies outside of the view is left out.
OUT_OF_ORDER = """() => {
  const kinds = "a[href], button, input, textarea, select, summary, [tabindex='0']";
  const box = (each) => each.getBoundingClientRect();
  const isSeen = (each) => {
    const at = box(each);
    const hit = document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2);
    return !each.disabled && each.contains(hit);
  };
  const middle = (each) => each.y + each.height / 2;
  const isInRow = (a, b) => Math.abs(middle(a) - middle(b)) < Math.min(a.height, b.height) / 2;
  const comesBefore = (a, b) =>
    (a.bottom <= b.top + 1 && a.left < b.right && b.left < a.right) ||
    (a.right <= b.left + 1 && isInRow(a, b));
  const seen = [...document.querySelectorAll(kinds)].filter(isSeen);
  return [seen.length, seen.flatMap((first, at) => seen.slice(at + 1)
    .filter((later) => !first.contains(later) && comesBefore(box(later), box(first)))
    .map((later) => [first.outerHTML.slice(0, 90), later.outerHTML.slice(0, 90)]))];
}"""


@pytest.mark.parametrize("size", ["desk", "phone"])
def test_tab_goes_in_the_order_of_the_screen(
    gateway: Gateway, tab: Callable[..., Tab], size: str
) -> None:
    gateway.start()
    token = gateway.token("alice", "read,send,approve,admin")
    client = gateway.client(token)
    gateway.send(client, "ops/kept", "run: uname")
    gateway.answer(client, gateway.waiting(client), "approve_session")
    gateway.send(client, "ops/asks", "run: true")
    gateway.waiting(client, "ops/asks")
    alice = tab(gateway, size=size).sign_in(token)
    page = alice.page
    for place, sign in (
        ("#/inbox", ".prompt.is-open .option"), ("#/s/ops/asks", ".call .prompt .option"),
        ("#/s/ops/kept", ".msg.said"), ("#/talk", ".rows .session"),
        ("#/decisions", ".decision"), ("#/grants", ".grant"),
    ):  # fmt: skip
        alice.go(place)
        page.wait_for_selector(sign)
        seen, out_of_order = page.evaluate(OUT_OF_ORDER)
        assert seen > 5, place
        assert out_of_order == [], place
    assert page.locator("[tabindex]:not([tabindex='0'], [tabindex='-1'])").count() == 0
    alice.go("#/s/ops/asks")
    for other in ("phone", "desk", "phone"):  # a window that is made narrow, and wide again
        width, height = SIZES[other]
        page.set_viewport_size({"width": width, "height": height})
        until(lambda: page.evaluate(OUT_OF_ORDER)[1] == [], f"the order of a {other}")


@pytest.mark.parametrize(("size", "grants"), [("desk", "Standing approvals"), ("phone", "Grants")])
def test_each_view_has_a_name_that_says_what_is_there(
    gateway: Gateway, tab: Callable[..., Tab], size: str, grants: str
) -> None:
    """'Standing' alone says nothing. Five names fit the width of a phone."""
    gateway.start()
    token = gateway.token("alice", "read,send,approve,admin")
    names = tab(gateway, size=size).sign_in(token).page.locator(".tab-name")
    assert names.all_inner_texts() == ["Waiting", "Talk", "Decisions", grants, "Servers"]
    cut = "all => all.filter((each) => each.offsetWidth > each.parentNode.clientWidth).length"
    assert names.evaluate_all(cut) == 0
