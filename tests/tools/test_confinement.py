"""A command can't open the Holdfast home: real processes, both mechanisms, every layout, as root and as nobody."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.tools.isolation import Obstacle, find_isolation
from holdfast.adapters.tools.confinement import choose, confinement_report
from holdfast.adapters.tools.home_guard import guard_of
from holdfast.adapters.tools.launch import landlock_abi
from holdfast.adapters.tools.shell import Shell
from holdfast.ports.tools import CannotBind

HERE = Path(__file__).parent
NOBODY = 65534
LAYOUTS = {
    "disjoint": ("a/home", "b/ws"),
    "siblings": ("home", "ws"),
    "home in workspace": ("ws/deep/er/home", "ws"),
    "workspace in home": ("home", "home/work"),
}
CASES = [
    ("landlock", "disjoint"),
    ("landlock", "siblings"),
    *(("bubblewrap", layout) for layout in LAYOUTS),
    *(("landlock,bubblewrap", layout) for layout in LAYOUTS),
]


def system_python() -> str:
    """One that every user may run, with the version our packages were built for."""
    version = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        try:
            subprocess.run([path, "-c", version], check=True, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
        except (OSError, subprocess.CalledProcessError):
            continue
        return path
    pytest.skip("no Python here that another user may run")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A temporary folder that another user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def needs(mechanism: str) -> None:
    if "landlock" in mechanism and landlock_abi() < 3:
        pytest.skip("this kernel has no Landlock of version 3")
    if "bubblewrap" in mechanism and isinstance(find_isolation(), Obstacle):
        pytest.skip("bubblewrap does not work here")


def beyond(mechanism: str) -> set[str]:
    """Only Landlock, and only from version 6 on, keeps a command from signalling its own user's processes."""
    return set() if "landlock" in mechanism and landlock_abi() >= 6 else {"try_signal"}


def break_out(place: Any, holdfast_pid: int) -> str:
    shutil.copy(HERE / "break_out.py", place.workspace / "break_out.py")
    (place.workspace / "made-before").symlink_to(place.key)
    return f"/usr/bin/python3 break_out.py '{place.home}' '{place.key}' '{place.workspace}' {holdfast_pid}"


@pytest.mark.parametrize(("mechanism", "layout"), CASES)
def test_no_way_leads_into_the_home(tmp_path: Path, make_place: Any, run: Any, mechanism: Any, layout: str) -> None:
    needs(mechanism)
    home, workspace = LAYOUTS[layout]
    place = make_place(tmp_path, home=home, workspace=workspace)
    before = place.key.stat()
    returned = run(Shell(mechanisms=mechanism.split(",")), place.scene(), command=break_out(place, os.getpid()))
    assert (returned.outcome, set(returned.text.split()) - beyond(mechanism)) == ("ok", {"tried"})
    after = place.key.stat()
    assert (place.key.read_text(), after.st_ino, after.st_size) == ("key-material-5c0ffee5", before.st_ino, before.st_size)


@pytest.mark.parametrize(("mechanism", "layout"), CASES)
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user; otherwise every test here runs unprivileged already")
def test_no_way_leads_into_the_home_of_an_ordinary_user(open_folder: Path, make_place: Any, mechanism: str, layout: str) -> None:
    needs(mechanism)
    home, workspace = LAYOUTS[layout]
    place = make_place(open_folder, home=home, workspace=workspace)
    command = break_out(place, os.getpid())
    for path in (open_folder, *open_folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    done = subprocess.run(
        [system_python(), HERE / "shell_process.py", "GO", place.home, place.workspace, mechanism, command],
        check=False,
        capture_output=True,
        text=True,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        env={
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path and not path.startswith(sys.base_prefix)),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    assert done.stderr == ""
    ready, result = map(json.loads, done.stdout.splitlines())
    assert (ready["confined"], result["outcome"], set(result["text"].split()) - beyond(mechanism)) == (True, "ok", {"tried"})
    assert place.key.read_text() == "key-material-5c0ffee5"


def test_the_attempts_would_work_if_nothing_confined_them(place: Any, run: Any) -> None:
    """What the tests above rest on: unconfined, the same process gets in."""
    worked = run(Shell(confine="off"), place.scene(), command=break_out(place, os.getpid())).text.split()
    assert {"try_direct", "try_listing", "try_symlink", "try_link_made_before", "try_hard_link", "try_write", "try_signal", "try_environment"} <= set(
        worked
    )


@pytest.mark.parametrize("mechanism", ["landlock", "bubblewrap"])
def test_ordinary_work_is_not_hindered(tmp_path: Path, make_place: Any, run: Any, mechanism: Any) -> None:
    needs(mechanism)
    place = make_place(tmp_path, home="a/home", workspace="b/ws")
    command = """
    mkdir d && echo x > d/f && mv d/f d/g && ln d/g h && ln -s h l && cat l && rm -r d
    ls /usr/bin/env && echo > /dev/null && head -c1 /dev/zero | wc -c && sort < h
    """
    assert run(Shell(mechanisms=(mechanism,)), place.scene(), command=command).text == "x\n/usr/bin/env\n1\nx\n"


@pytest.mark.skipif(os.getuid() != 0, reason="about what root may do")
def test_root_keeps_its_power_over_files(place: Any, run: Any) -> None:
    needs("landlock")
    command = "touch f && chown 65534 f && chmod 600 f && echo x >> f && cat f"
    assert run(Shell(), place.scene(), command=command).text == "x\n"


def test_beside_the_home_files_can_be_made_where_bubblewrap_works(place: Any, run: Any) -> None:
    """Landlock could not allow that: so with the home below the temporary or the user's folder, bubblewrap goes first."""
    needs("bubblewrap")
    assert run(Shell(), place.scene(), command=f"touch '{place.root}/beside'").outcome == "ok"
    assert (place.root / "beside").exists()


def test_a_workspace_inside_the_home_is_written_for_real(tmp_path: Path, make_place: Any, run: Any) -> None:
    needs("bubblewrap")
    place = make_place(tmp_path, home="home", workspace="home/work")
    assert run(Shell(), place.scene(), command="echo kept > file; ls ..").text == "work\n"
    assert (place.workspace / "file").read_text() == "kept\n"


@pytest.mark.parametrize("name", ["keys", "keys/sub", "sessions", ".hidden"])
def test_a_workspace_among_holdfasts_own_folders_is_denied(tmp_path: Path, make_place: Any, encode: Any, name: str) -> None:
    place = make_place(tmp_path, workspace=f"home/{name}")
    with pytest.raises(CannotBind) as refused:
        Shell().bind(Shell().validate(encode(command="ls")), place.scene())
    assert refused.value.code == "hard_deny"


def test_the_home_as_workspace_is_denied(tmp_path: Path, make_place: Any, encode: Any) -> None:
    place = make_place(tmp_path, home="home", workspace="home")
    with pytest.raises(CannotBind) as refused:
        Shell().bind(Shell().validate(encode(command="ls")), place.scene())
    assert refused.value.code == "hard_deny"


def test_an_unconfined_command_says_so_first_and_can_be_refused(place: Any, encode: Any) -> None:
    arguments = Shell().validate(encode(command="ls"))
    for shell in (Shell(mechanisms=()), Shell(confine="off")):
        binding = shell.bind(arguments, place.scene())
        assert (binding.confined, binding.display.splitlines()[0].startswith("UNCONFINED: ")) == (False, True)
    with pytest.raises(CannotBind) as refused:
        Shell(confine="require", mechanisms=()).bind(arguments, place.scene())
    assert refused.value.code == "unconfined"


def test_a_confined_approval_never_runs_unconfined(place: Any, encode: Any) -> None:
    import asyncio

    confined = Shell()
    arguments = confined.validate(encode(command="ls"))
    binding = confined.bind(arguments, place.scene())
    assert binding.confined
    with pytest.raises(CannotBind):
        asyncio.run(Shell(mechanisms=()).prepare(arguments, binding, place.scene(), idempotency_key="k"))


@pytest.mark.parametrize(
    ("mechanisms", "overlap", "expected_overlap", "bubblewrap", "chosen"),
    [
        (("landlock", "bubblewrap"), False, False, True, "landlock"),
        (("landlock", "bubblewrap"), False, True, True, "bubblewrap"),
        (("landlock", "bubblewrap"), True, False, True, "bubblewrap"),
        (("landlock", "bubblewrap"), False, True, False, "landlock"),
        (("landlock", "bubblewrap"), True, False, False, None),
        (("bubblewrap",), False, False, True, "bubblewrap"),
        (("bubblewrap",), False, False, False, None),
        ((), False, False, True, None),
    ],
)
def test_the_mechanism_is_chosen_by_the_layout(
    place: Any, monkeypatch: pytest.MonkeyPatch, mechanisms: Any, overlap: bool, expected_overlap: bool, bubblewrap: bool, chosen: str | None
) -> None:
    needs("landlock")
    monkeypatch.setattr(confinement, "working_bubblewrap", lambda: "/usr/bin/bwrap" if bubblewrap else None)
    guard = guard_of(place.scene())
    folders = [str(place.root if overlap else place.workspace)]
    expected = [str(place.root)] if expected_overlap else []
    assert choose(guard, folders, mechanisms, expected=expected).mechanism == chosen


def test_the_report_says_what_would_confine(place: Any) -> None:
    report = confinement_report(str(place.home), str(place.workspace))
    assert report.confined == (report.mechanism is not None)
    assert not confinement_report(str(place.root / "none"), None).confined


def test_without_a_home_there_is_nothing_to_protect(place: Any, run: Any, encode: Any) -> None:
    scene = place.scene(home=None)
    assert Shell().bind(Shell().validate(encode(command="ls")), scene).confined
    assert run(Shell(), scene, command="echo ok").text == "ok\n"
