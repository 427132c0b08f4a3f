"""
Kills and redeliveries at random moments: no turn and no reply is doubled, and none is missing
without a word. A small sweep always, a large one in `make test-long`.
"""

import random
import threading
from collections import Counter

import pytest

from tests.acceptance.channels.conftest import Stage
from tests.acceptance.gateway.conftest import until


def sweep(stage: Stage, kills: int, seed: int) -> int:
    """Return the number of redeliveries."""
    dice, fake, said, redelivered = random.Random(seed), stage.start().fake, [], 0
    for number in range(kills):
        for _ in range(dice.randint(1, 3)):
            text = f"what time is it? ({len(said)})"
            place = dice.choice([None, stage.team])
            fake.say(dice.choice([stage.alice, stage.bob]), text, place=place)
            said.append(text)
        if dice.random() < 0.3:
            fake.faults.append(dice.choice(["reset_after", "too_many"]))
        if dice.random() < 0.7:
            redelivered += len(said)
            fake.redeliver()
        # The moment of the kill: from before the poll to after the reply.
        threading.Event().wait(dice.uniform(0, 0.5))
        stage.gateway.kill()
        if dice.random() < 0.3:
            fake.say(stage.alice, text := f"what time is it? (while down, {number})")
            said.append(text)
        stage.gateway.start()
    stage.until_up()
    redelivered += len(said)
    fake.redeliver()
    until(lambda: accepted(stage) == Counter(said), "every message, once", 120)
    until(lambda: is_quiet(stage), "every reply to be settled", 120)
    fake.redeliver()
    check(stage, said)
    return redelivered


def accepted(stage: Stage) -> Counter[str]:
    """By text, without the note that a busy machine took it in late."""
    return Counter(body["text"].rpartition("\n")[2] for body in stage.bodies("input_accepted"))


def is_quiet(stage: Stage) -> bool:
    """Every message is in a turn that ended, and every reply has an end."""
    inputs = {(each["session"], each["body"]["input"]) for each in stage.records("input_accepted")}
    taken = {
        (each["session"], name)
        for each in stage.records("turn_started")
        for name in each["body"]["inputs"]
    }
    started, ended = len(stage.records("turn_started")), len(stage.records("turn_ended"))
    queued = {body["delivery"] for body in stage.bodies("delivery_queued")}
    return inputs == taken and started == ended and queued == set(outcomes(stage))


def outcomes(stage: Stage) -> dict[str, str]:
    """By delivery: confirmed, in_doubt or failed."""
    return {body["delivery"]: "confirmed" for body in stage.bodies("delivery_confirmed")} | {
        body["delivery"]: body["code"] for body in stage.bodies("delivery_failed")
    }


def check(stage: Stage, said: list[str]) -> None:
    assert accepted(stage) == Counter(said)
    ends, found = len(stage.bodies("turn_ended")), Counter(outcomes(stage).values())
    assert set(found) <= {"confirmed", "in_doubt"}
    assert found.total() == ends  # one reply for each turn, and each has an end
    receipts = [body["receipt"] for body in stage.bodies("delivery_confirmed")]
    arrived = [each.name for each in stage.fake.messages]
    assert len(set(receipts)) == len(receipts)
    assert set(receipts) <= set(arrived)
    # A message without a receipt is one that is in doubt.
    assert len(arrived) - len(receipts) <= found["in_doubt"]


@pytest.mark.timeout(300)
def test_a_few_kills_and_redeliveries_double_nothing_and_lose_nothing(stage: Stage) -> None:
    assert sweep(stage, kills=3, seed=20) > 0


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_kills_and_redeliveries_double_nothing_and_lose_nothing(stage: Stage) -> None:
    assert sweep(stage, kills=70, seed=7) > 400
