"""Each turn as a picture, its replay, its verified history, and its jobs."""

import os
import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.acceptance.gateway.conftest import Gateway, until
from tests.acceptance.gateway.page.browser import IN_BROWSER, Tab

pytestmark = IN_BROWSER


def test_a_job_is_shown_as_running_until_it_ends_and_its_command_is_read_from_the_left(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    Its call has a result at once, which is not an outcome of the job. Words of a command stay whole;
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
    expect(page.locator(".call .chip-state")).to_have_text(
        "runs in the background, approved by alice"
    )
    (gateway.work / "hold").write_text("held no more")
    expect(page.locator(".call .chip-state").first).to_contain_text("done")


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
    expect(page.locator(".turn-state")).to_have_text("completed, 1 call in doubt")
    legend = page.locator(".legend")
    for words in ("Time runs down.", "a tool runs", "in doubt: it may have run", "resumed"):
        expect(legend).to_contain_text(words)
    expect(legend).not_to_contain_text("denied, stopped")  # the picture has no such sign
    alice.keep("crash-desk-light")


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


def test_the_history_is_verified_in_front_of_the_reader_and_a_turn_is_replayed(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/a", "what time is it")
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/a")
    expect(page.locator(".t-answered")).to_have_count(1)
    seq = client.get("/v1/sessions/ops/a").json()["seq"]
    page.locator(".integrity").click()
    expect(page.locator(".verify-words")).to_have_text(f"All {seq} records are intact.")
    expect(page.locator(".verify-rows li").last).to_contain_text("turn ended")
    expect(page.locator(".verify-rows li")).to_have_count(seq)
    expect(page.locator(".verify-rows li").first).to_contain_text(
        "a segment of the journal begins or ends"
    )
    page.keyboard.press("Escape")
    expect(page.locator(".verify")).to_have_count(0)
    page.locator(".replay-range").evaluate(
        "(range) => { range.value = 2; range.dispatchEvent(new Event('input')); }"
    )
    expect(page.locator(".replay-words")).to_contain_text("2. turn started")
    expect(page.locator(".t-answered")).to_have_count(0)


def test_a_reader_who_comes_late_sees_what_a_running_command_has_said(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    slow = "echo step 1; touch said; until [ -e stop ]; do sleep 0.05; done; echo step 2"
    gateway.send(client, "ops/slow", f"run: {slow}")
    assert gateway.answer(client, gateway.waiting(client), "approve_once").status_code == 200
    until((gateway.work / "said").exists, "the command's first line")
    alice = tab(gateway).sign_in(token)
    page = alice.go("#/s/ops/slow")
    output = page.locator(".call .output")
    expect(output.locator("summary")).to_have_text("Output so far")
    expect(output.locator("pre")).to_have_text("step 1\n")
    expect(output.locator("pre")).to_be_visible()
    alice.keep("running-output-desk-light")
    (gateway.work / "stop").touch()
    expect(output.locator("summary")).to_have_text("Result")
    expect(output.locator("pre")).to_have_text("step 1\nstep 2")


def test_output_beyond_the_pages_bound_goes_on_beside_a_waiting_sibling(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    """
    The page keeps the last 20,000 characters of a running call. Its length stands still from there
    on, and its lines go on: who waits for a longer text waits for ever.
    """
    chatter = (
        "n=0; while [ $n -lt 3000 ]; do n=$((n+1)); echo tick $n; done;"
        " until [ -e stop ]; do n=$((n+1)); echo tick $n; sleep 0.02; done"
    )
    model = gateway.script(
        {
            "call": [
                {"tool": "shell", "args": {"command": chatter, "timeout_seconds": 120}},
                {"tool": "ask_person", "args": {"question": "Where?"}},
            ]
        },
        {"say": "done"},
    )
    gateway.settings(f'[agents.assistant]\nmodel = "{model}"\n[policy.personal]\nshell = "auto"\n')
    gateway.start()
    token = gateway.token("alice")
    gateway.send(gateway.client(token), "ops/busy", "go")
    page = tab(gateway).sign_in(token).go("#/s/ops/busy")
    expect(page.locator(".call .prompt")).to_have_count(1)
    last = "document.querySelector('.call .output pre')?.textContent.match(/tick (\\d+)\\n$/)?.[1]"
    page.wait_for_function(f"Number({last}) > 3000")
    seen = [int(page.evaluate(last) or 0)]
    for _ in range(20):
        page.wait_for_function(f"(before) => Number({last}) > before", arg=seen[-1])
        seen.append(int(page.evaluate(last) or 0))
        shown = page.locator(".call .output pre").text_content() or ""
        assert len(shown) == 20_000
        assert f"tick {seen[-1]}\n" in shown
    assert seen == sorted(set(seen))
    (gateway.work / "stop").touch()
    expect(page.locator(".call .output summary")).to_have_text("Result")


def test_a_job_shows_its_time_and_its_last_output_and_can_be_stopped(
    gateway: Gateway, tab: Callable[..., Tab]
) -> None:
    gateway.start()
    alice = tab(gateway).sign_in(gateway.token("alice"))
    page = alice.go("#/s/ops/job")
    page.fill("#say", "shell command='echo halfway; sleep 1000' background=true")
    page.keyboard.press("Enter")
    page.wait_for_selector(".call .prompt .option")
    alice.settled()
    page.locator("[data-option=approve_once]").click()
    expect(page.locator(".job-line .elapsed")).to_contain_text("running for")
    expect(page.locator(".job-line .last-output")).to_have_text("halfway")
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator(".msg.report")).to_contain_text(
        re.compile(r"is over after \d+ \w+, and its outcome is in doubt:")
    )
    expect(page.locator(".toast")).to_have_text("The job was asked to stop.")
    expect(page.locator(".note", has_text="alice asked the job to stop.")).to_be_visible()
