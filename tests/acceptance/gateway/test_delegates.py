"""
Delegates under `serve`: it drives parent and delegate, survives a kill between any two of their
steps, and tells strangers nothing.
"""

from tests.acceptance.gateway.conftest import Gateway, until

SETTINGS = """
[agents.ops]
model = "{ops}"
tools = ["write_file", "now"]
delegates = ["researcher"]
[agents.researcher]
model = "{researcher}"
tools = ["write_file"]
"""


def serving(gateway: Gateway) -> Gateway:
    task = {"call": [{"tool": "delegate_researcher", "args": {"task": "write it down"}}]}
    write = {"call": [{"tool": "write_file", "args": {"path": "found.txt", "content": "green"}}]}
    ops = gateway.script(task, {"say": "all done"}, name="ops.jsonl")
    researcher = gateway.script(write, {"say": "written"}, name="researcher.jsonl")
    gateway.settings(SETTINGS.format(ops=ops, researcher=researcher))
    return gateway.start()


def test_a_server_killed_while_a_person_decides_goes_on_with_delegate_and_parent(
    gateway: Gateway,
) -> None:
    serving(gateway)
    alice, bob = gateway.token("alice"), gateway.token("bob")
    gateway.send(gateway.client(alice), "http/a", "find out")
    prompt = gateway.waiting(gateway.client(alice))
    assert (
        prompt["path"],
        prompt["session"].partition("/")[0],
        prompt["display"].splitlines()[0],
    ) == (
        ["ops", "researcher"],
        "delegate",
        "ops > researcher asks",
    )
    stranger = gateway.client(bob)
    assert stranger.get("/v1/approvals").json()["approvals"] == []
    assert (
        stranger.get(f"/v1/sessions/{prompt['session']}").status_code
        == stranger.get("/v1/sessions/delegate/nosuch").status_code
        == 404
    )
    known, unknown = (
        gateway.send(stranger, session, "hello")
        for session in (prompt["session"], "delegate/nosuch")
    )
    assert (known.status_code, known.json()["code"]) == (
        unknown.status_code,
        unknown.json()["code"],
    )
    gateway.kill()
    gateway.start()
    client = gateway.client(alice)
    assert gateway.answer(client, gateway.waiting(client), "approve_once").json()["result"] in (
        "started",
        "handed_on",
    )
    with gateway.events(client, "http/a", after=0) as events:
        ended = events.until_record("turn_ended")
    assert (ended["body"]["outcome"], ended["body"]["reply"]) == ("completed", "all done")
    assert (gateway.work / "found.txt").read_text() == "green"
    until(
        lambda: client.get("/v1/sessions/http/a").json()["delegates"][0]["outcome"] == "completed",
        "the delegate's end",
    )


def test_a_cancel_reaches_the_delegate_through_the_server(gateway: Gateway) -> None:
    serving(gateway)
    client = gateway.client(gateway.token("alice"))
    gateway.send(client, "http/a", "find out")
    prompt = gateway.waiting(client)
    assert client.post("/v1/sessions/http/a/cancel", json={}).status_code == 200
    assert gateway.answer(client, prompt, "approve_once").status_code == 410
    until(lambda: client.get("/v1/sessions/http/a").json()["phase"] == "idle", "the turn to end")
    assert not (gateway.work / "found.txt").exists()
