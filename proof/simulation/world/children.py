"""
Check the work that leaves a simulated turn: delegates, background jobs and reminders. Each is
compared with its turn and with the real events.

Nothing here trusts `decide` or `narrowed`: stored contexts are compared field by field.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdfast.ids import JobId, SessionId
from proof.checkers.history import History
from proof.checkers.states import hold
from proof.simulation.home import SimulatedHome
from proof.simulation.world.jobs import JobTable

_HANDED_DOWN = (
    "audience",
    "boundary",
    "requester",
    "principal",
    "quoted_speakers",
    "interactive",
    "workspace",
)


# --- delegates


def check_delegates(home: SimulatedHome, histories: Mapping[SessionId, History]) -> None:
    for session, history in histories.items():
        parent = history.entries[0].body.get("parent")
        if parent is not None:
            found = [instance for name, instance in home.disk.instances if name == session]
            hold("T2", len(found) == 1, f"{session} was created {len(found)} times")
        if (
            parent is not None
            and (above := histories.get(SessionId(parent["session"]))) is not None
        ):
            _check_delegate(home, history, parent, above)


def _check_delegate(
    home: SimulatedHome, history: History, parent: dict[str, Any], above: History
) -> None:
    """
    A4: it has its parent's authority and no tool that its parent lacks. T5: its outcome is the
    call's one result.
    """
    session = history.state.session
    started = [
        each.body for each in above.of("delegate_started") if each.body["session"] == session
    ]
    named = [(each["call"], each["instance"]) for each in started]
    hold(
        "A4",
        named == [(parent["call"], history.state.instance)],
        f"{session} is not what its parent started: {named}",
    )
    given = next(
        each.body["context"]
        for each in above.of("input_accepted")
        if each.body["turn"] == parent["turn"]
    )
    for entry in history.of("input_accepted"):
        own = entry.body["context"]
        wider = [name for name in _HANDED_DOWN if own[name] != given[name]]
        hold("A4", not wider, f"{session} has another authority than its parent: {wider}")
    agent = home.agents[parent["path"][-2]]
    hold(
        "A4",
        set(parent["tools"]) <= set(agent.tools),
        f"{session} was given tools that {agent.name} lacks: {parent['tools']}",
    )
    ran = {each.body["tool"] for each in history.of("tool_started")}
    hold("A4", ran <= set(parent["tools"]), f"{session} started what it was not given: {ran}")
    ended = [
        each.body for each in above.of("delegate_ended") if each.body["call"] == parent["call"]
    ]
    results = [
        each.body for each in above.of("call_finished") if each.body["call"] == parent["call"]
    ]
    hold(
        "T5",
        (len(ended), len(results)) == (1, 1),
        f"{session} ended {len(ended)} times for its parent, with {len(results)} results",
    )
    told = [each.body["became"] for each in history.of("delegate_reported")]
    hold("T7", len(told) == 1, f"{session} told its parent {len(told)} times: {told}")
    reply = next((each.body.get("reply") for each in history.of("turn_ended")), None)
    reported = told == ["reported"] and ended[0]["outcome"] == "completed"
    hold(
        "T5",
        not reported or results[0]["text"].startswith(reply),
        f"{session} said {reply!r}, and its parent heard {results[0]['text']!r}",
    )


# --- jobs


def check_jobs(history: History, table: JobTable) -> None:
    """T2: started once, ended once, reported once; and the recorded end is the real one."""
    session = history.state.session
    ended = {each.body["job"]: each.body for each in history.of("job_ended")}
    reports = Counter(
        each.body["dedup"]
        for each in history.of("input_accepted")
        if each.body.get("kind") == "job"
    )
    for submitted in (each.body for each in history.of("job_submitted")):
        job = JobId(submitted["job"])
        hold("T7", job in ended, f"{session}: {job} was submitted, and nobody says how it ended")
        hold("T7", reports[job] == 1, f"{session}: {job} was reported {reports[job]} times")
        supervisor = table.supervisors.get(job)
        if supervisor is not None:
            told = (ended[job]["outcome"], supervisor.truth())
            hold(
                "T2",
                told[0] == told[1],
                f"{session}: {job} is said to have ended as {told[0]}, and ended as {told[1]}",
            )
            words = supervisor.returned.text if supervisor.returned is not None else ""
            if supervisor.is_forged:
                # Somebody replaced the report, so its real words are gone, and the replacement
                # does not count.
                hold(
                    "T2",
                    not words or words not in ended[job]["text"],
                    f"{session}: the forged report of {job} was believed: {ended[job]['text']!r}",
                )
            else:
                hold(
                    "L6",
                    words in ended[job]["text"],
                    f"{session}: what {job} said is lost: {ended[job]['text']!r}",
                )
        elif submitted["host"] == "process":
            hold(
                "T2",
                ended[job]["outcome"] in ("in_doubt", "error"),
                f"{session}: {job} never ran, and ended as {ended[job]['outcome']}",
            )


# --- reminders


def check_reminders(history: History, told: set[str]) -> None:
    """A4, D1, T7: one input for each instant, under the stored authority, and none is missing."""
    session = history.state.session
    standing = {each.body["reminder"]: each.body for each in history.of("reminder_set")}
    hold(
        "D1",
        told <= standing.keys(),
        f"{session}: {told - standing.keys()} were set, and are not there",
    )
    fired = [each.body for each in history.of("reminder_fired")]
    cancelled = {each.body["reminder"] for each in history.of("reminder_cancelled")}
    inputs = [
        each.body for each in history.of("input_accepted") if each.body.get("kind") == "reminder"
    ]
    times = Counter(each["reminder"] for each in fired)
    for name, body in standing.items():
        texts = sum(each["text"].startswith(body["text"]) for each in inputs)
        # If a crash kept the input but lost the record after it, and the reminder was then
        # cancelled, it fired once more than its counter shows.
        hold(
            "A4",
            texts - times[name] in (0, int(name in cancelled)),
            f"{session}: {name} fired {times[name]} times, and {texts} turns are about it",
        )
        once = body["schedule"]["kind"] == "once"
        hold(
            "A4",
            not once or times[name] <= 1,
            f"{session}: {name} was for once, and fired {times[name]} times",
        )
        hold(
            "T7",
            times[name] or name in cancelled or not once,
            f"{session}: {name} was set, and never fired",
        )
