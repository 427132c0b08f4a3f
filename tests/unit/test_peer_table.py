"""
The comparison with others is told as it was measured: who is ahead, who does not sync, who could
not run.
"""

import io
import itertools
import re
import tarfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from bench import docs, npm, peers, postgres
from bench.peer_table import OURS, Peer, table
from bench.picture import DARK, LIGHT, picture

SIZES = {
    "lengths": (10, 1_000),
    "turn_lengths": (10,),
    "sessions": 1_000,
    "tasks": 64,
    "parked": 200,
}
SYNCED, UNSYNCED, ABSENT = Peer("Synced"), Peer("Unsynced", synced=False), Peer("Absent")
FOUND = {
    OURS: {
        "version": "",
        "append": {"10": 500.0, "1000": 510.0, "100000": 520.0},
        "many": 900.0,
        "pause": 7000.0,
        "bare": 200.0,
        "durability": "synced",
    },
    SYNCED: {
        "version": "1.2",
        "append": {"10": 400.0, "1000": 9000.0},
        "many": 70.0,
        "pause": 8000.0,
        "bare": 100.0,
        "durability": "too",
    },
    UNSYNCED: {
        "version": "3",
        "append": {"10": 9.0, "1000": 9.0},
        "many": "failed: locked",
        "pause": "not offered",
        "durability": "none",
    },
    ABSENT: {"version": "4", "left_out": "nobody installed it"},
}


def rows() -> dict[str, dict[str, str]]:
    return {row["what"]: row["cells"] for row in table(FOUND, SIZES)["rows"]}


# --- the table


def test_one_who_does_not_sync_never_takes_the_mark_from_those_who_do() -> None:
    """
    Bold is the best of all, and beside one who does not wait for the disk also the best of those
    who do.
    """
    assert rows()["append at 10"] == {
        "Holdfast": "500 us",
        "Synced 1.2": "**400 us**",
        "Unsynced 3": "**9 us**",
    }
    assert rows()["append at 1,000"] == {
        "Holdfast": "**510 us**",
        "Synced 1.2": "9.00 ms",
        "Unsynced 3": "**9 us**",
    }


def test_a_goal_is_judged_against_the_best_of_those_who_sync() -> None:
    found = {goal["what"]: goal for goal in table(FOUND, SIZES)["goals"]}
    assert found["append at 10"] == {
        "what": "append at 10",
        "ours": "500 us",
        "peer": "Synced, 400 us",
        "ratio": "1.25",
        "goal": "<= 1 x",
        "reached": False,
    }
    assert found["append at 1,000"]["reached"] is True
    many = found["1,000 sessions by 64 tasks, appends a second"]
    assert (many["ratio"], many["goal"], many["reached"]) == ("12.86", ">= 4 x", True)
    assert "load 1,000 messages" not in found  # not measured
    assert "disk a paused session" not in found  # its goal is not a ratio


def test_more_appends_a_second_are_better_and_a_failure_is_shown_in_its_place() -> None:
    assert rows()["1,000 sessions by 64 tasks, appends a second"] == {
        "Holdfast": "**900/s**",
        "Synced 1.2": "70/s",
        "Unsynced 3": "failed: locked",
    }


def test_missing_features_are_named_and_unmeasured_cells_are_empty() -> None:
    assert rows()["turn up to a pause"] == {
        "Holdfast": "**7.00 ms**",
        "Synced 1.2": "8.00 ms",
        "Unsynced 3": "not offered",
    }
    assert rows()["load 1,000 messages"] == {}


def test_the_disk_itself_wins_nothing() -> None:
    assert rows()["the disk just before, write + fdatasync"] == {
        "Holdfast": "200 us",
        "Synced 1.2": "100 us",
    }


def test_the_peer_table_names_every_measure_where_a_peer_is_faster() -> None:
    assert table(FOUND, SIZES)["better"] == [
        "append at 10: Synced 400 us, Unsynced 9 us; Holdfast 500 us",
        "append at 1,000: Unsynced 9 us; Holdfast 510 us",
    ]


def test_one_that_could_not_run_is_left_out_with_its_reason() -> None:
    told = table(FOUND, SIZES)
    assert told["left_out"] == {"Absent": "nobody installed it"}
    assert told["names"] == ["Holdfast", "Synced 1.2", "Unsynced 3"]
    assert "- Absent: nobody installed it." in docs.peers(told).splitlines()


def test_the_page_states_how_durable_each_one_is() -> None:
    lines = docs.peers(table(FOUND, SIZES)).splitlines()
    assert [
        line
        for line in lines
        if line in {"- Holdfast: synced.", "- Synced 1.2: too.", "- Unsynced 3: none."}
    ] == [
        "- Holdfast: synced.",
        "- Synced 1.2: too.",
        "- Unsynced 3: none.",
    ]


def test_a_peer_that_cannot_start_never_ends_the_run(tmp_path: Path) -> None:
    """It is a reason in the table, like all others that were not measured."""
    found = peers._peer("dbos_sqlite", tmp_path / "no-python", tmp_path)
    assert list(found) == ["left_out"]
    assert found["left_out"].startswith("FileNotFoundError: ")


def test_a_machine_without_postgres_is_given_as_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "PLACES", ())
    found = peers._peer("langgraph_postgres", tmp_path / "no-python", tmp_path)
    assert found == {
        "left_out": "NoPostgres: no PostgreSQL server is installed here (initdb and postgres were not found)"
    }


# --- the picture


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_the_picture_has_a_ground_of_its_own_and_a_line_for_each(colours) -> None:
    drawn = ET.fromstring(picture(table(FOUND, SIZES)["series"], "append & load", colours))  # noqa: S314  our own
    names = [each.text for each in drawn.iterfind(".//{*}text")]
    assert next(drawn.iterfind(".//{*}rect")).get("fill") == colours.page
    assert {"append & load", "Holdfast", "Synced", "Unsynced", "write + fdatasync alone"} <= set(
        names
    )
    assert [
        each.get("fill") for each in drawn.iterfind(".//{*}text") if each.text == "Holdfast"
    ] == [colours.ours]


@pytest.mark.parametrize("end", [10.0, 999.0], ids=["at the bottom", "at the top"])
def test_labels_of_the_picture_never_lie_on_each_other_or_outside(end: float) -> None:
    """Eight lines that end in one place are still told apart."""
    series = {f"peer {number}": [(10, 100.0), (1_000, end + number / 100)] for number in range(8)}
    drawn = ET.fromstring(picture(series, "all alike"))  # noqa: S314  our own
    height = float(drawn.get("viewBox", "").split()[-1])
    places = sorted(
        float(each.get("y", 0))
        for each in drawn.iterfind(".//{*}text")
        if (each.text or "").startswith("peer")
    )
    assert len(places) == 8
    assert all(after - before >= 16 for before, after in itertools.pairwise(places))
    assert places[0] > 0
    assert places[-1] < height


def test_the_picture_is_of_one_run() -> None:
    """Ours comes from beside the others, not from another hour of this machine."""
    assert docs._series(
        {
            "ours": {"series": {"Holdfast": [(10, 1.0)]}},
            "peers": {"series": {"Holdfast": [(10, 2.0)]}},
        }
    ) == {"Holdfast": [(10, 2.0)]}
    assert docs._series({"ours": {"series": {"Holdfast": [(10, 1.0)]}}}) == {
        "Holdfast": [(10, 1.0)]
    }


# --- what is fetched of npm


def packed(path: Path) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo("package/index.js")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"1\n"))
    return path


def test_a_package_with_another_digest_is_never_unpacked(tmp_path: Path) -> None:
    archive = packed(tmp_path / "x.tgz")
    with pytest.raises(npm.NoPackage, match="is not what was pinned") as refused:
        npm.unpack(archive, npm.Pinned("x", "1.0.0", "sha512-AAAA"), tmp_path / "node_modules")
    assert not (tmp_path / "node_modules").exists()
    digest = str(refused.value).split()[-1]
    npm.unpack(archive, npm.Pinned("@scope/x", "1.0.0", digest), tmp_path / "node_modules")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.js")] == [
        "node_modules/@scope/x/index.js"
    ]
    assert [path.name for path in (tmp_path / "node_modules").iterdir()] == ["@scope"]


def test_every_package_of_npm_is_pinned_by_version_and_digest() -> None:
    text = npm.LOCK.read_text()
    assert [
        bool(
            re.fullmatch(r"\d+\.\d+\.\d+", each.version)
            and re.fullmatch(r"sha512-[\w+/]{86}==", each.digest)
        )
        for each in npm.pinned(text)
    ] == [
        True,
        True,
    ]
    assert "://" not in text
