"""
Which level a command runs at, what the prompt says of it, and what an isolated command has and has
not.
"""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.adapters.tools.adversary import needs

from holdfast.adapters.tools.home_guard import guard_of
from holdfast.adapters.tools.shell.confinement import isolation, view
from holdfast.adapters.tools.shell.confinement import levels as confinement
from holdfast.adapters.tools.shell.confinement.isolation import Isolation, Obstacle, obstacle_from
from holdfast.adapters.tools.shell.confinement.level_text import network_note
from holdfast.adapters.tools.shell.confinement.levels import choose, confinement_report
from holdfast.adapters.tools.shell.confinement.view import Bind
from holdfast.adapters.tools.shell.launcher_pipes import LaunchPlan
from holdfast.adapters.tools.shell.shell import Shell
from holdfast.ports.tools import CannotBind

MECHANISMS = ["landlock", "bubblewrap"]


def bound(encode: Any, scene: Any, shell: Shell, **arguments: Any) -> Any:
    return shell.bind(shell.validate(encode(**arguments)), scene)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_ordinary_work_is_not_hindered(
    tmp_path: Path, make_place: Any, run: Any, mechanism: Any
) -> None:
    needs(mechanism)
    place = make_place(tmp_path, home="a/home", workspace="b/ws")
    command = """
    mkdir d && echo x > d/f && mv d/f d/g && ln d/g h && ln -s h l && cat l && rm -r d
    ls /usr/bin/env && echo > /dev/null && head -c1 /dev/zero | wc -c && sort < h
    cat <(echo y) && python3 -c 'import socket; socket.socketpair()' && test -w "$TMPDIR" && echo z
    """
    assert (
        run(Shell(mechanisms=(mechanism,)), place.scene(), command=command).text
        == "x\n/usr/bin/env\n1\nx\ny\nz\n"
    )


def test_an_isolated_command_may_change_modes_in_its_workspace(place: Any, run: Any) -> None:
    needs("bubblewrap")
    assert (
        run(Shell(), place.scene(), command="echo 'echo ran' > x; chmod +x x; ./x").text == "ran\n"
    )


def test_private_folders_of_an_isolated_command_vanish_with_it(place: Any, run: Any) -> None:
    needs("bubblewrap")
    made = run(
        Shell(),
        place.scene(),
        command="for f in /tmp /run /var/tmp /dev/shm ~; do echo x > $f/holdfast-x && ls $f/holdfast-x; done",
    )
    assert (made.outcome, len(made.text.splitlines())) == ("ok", 5)
    assert not any(Path(path).exists() for path in made.text.splitlines())


def test_a_loopback_of_its_own_works_without_network(place: Any, run: Any) -> None:
    needs("bubblewrap")
    code = "import socket as s; a=s.create_server(('127.0.0.1',0)); b=s.create_connection(a.getsockname()); print('met')"
    assert run(Shell(), place.scene(), command=f'python3 -c "{code}"').text == "met\n"


def test_a_workspace_inside_the_home_is_written_for_real(
    tmp_path: Path, make_place: Any, run: Any
) -> None:
    needs("bubblewrap")
    place = make_place(tmp_path, home="home", workspace="home/work")
    assert run(Shell(), place.scene(), command="echo kept > file; ls ..").text == "work\n"
    assert (place.workspace / "file").read_text() == "kept\n"


def test_a_second_name_of_the_home_is_covered_too(place: Any) -> None:
    """
    A bind mount in the workspace leads to the home: in a mount namespace of its own, where the test
    may make one.
    """
    needs("bubblewrap")
    if os.getuid() != 0:
        pytest.skip("only root may mount")
    alias = place.workspace / "alias"
    alias.mkdir()
    script = Path(__file__).with_name("shell_process.py")
    command = f"ls -A alias; cat alias/keys/1.key; touch alias/x; mv alias elsewhere; cat '{place.key}'; echo tried"
    words = [sys.executable, script, "GO", place.home, place.workspace, "bubblewrap", command]
    run_there = f"mount --bind '{place.home}' '{alias}' && exec \"$@\""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", run_there, "sh", *words],
        check=True,
        capture_output=True,
        text=True,
    )
    result = msgspec.json.decode(done.stdout.splitlines()[1])
    assert "key-material" not in result["text"]
    assert result["text"].endswith("tried\n")
    assert list(place.home.iterdir()) == [place.home / "keys"]


@pytest.mark.parametrize("name", ["keys", "keys/sub", "sessions", ".hidden"])
def test_a_workspace_among_holdfasts_own_folders_is_denied(
    tmp_path: Path, make_place: Any, encode: Any, name: str
) -> None:
    place = make_place(tmp_path, workspace=f"home/{name}")
    with pytest.raises(CannotBind) as refused:
        bound(encode, place.scene(), Shell(), command="ls")
    assert refused.value.code == "hard_deny"


def test_the_home_as_workspace_is_denied(tmp_path: Path, make_place: Any, encode: Any) -> None:
    place = make_place(tmp_path, home="home", workspace="home")
    with pytest.raises(CannotBind) as refused:
        bound(encode, place.scene(), Shell(), command="ls")
    assert refused.value.code == "hard_deny"


def test_our_own_program_in_the_workspace_is_read_only(
    place: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A project often has Holdfast in a virtual environment of its own: what is written there would
    run next to the keys.
    """
    needs("bubblewrap")
    packages = place.workspace / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    monkeypatch.setattr(view, "program_folders", lambda: (str(place.workspace / ".venv"),))
    attempts = "echo x > .venv/lib/site-packages/x.pth; mv .venv aside; rm -rf .venv; chmod -R 777 .venv; ls .venv; touch beside"
    assert run(Shell(), place.scene(), command=attempts).text.splitlines()[-1] == "lib"
    assert (list(packages.iterdir()), (place.workspace / "beside").exists()) == ([], True)


def test_where_landlock_can_not_protect_our_program_a_command_is_unconfined(
    place: Any, encode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "program_folders", lambda: (str(place.workspace / ".venv"),))
    binding = bound(encode, place.scene(), Shell(mechanisms=("landlock",)), command="ls")
    assert binding.level == "unconfined"
    assert "which Holdfast's own program is loaded from" in binding.display.splitlines()[0]


def test_our_program_is_found_where_it_is() -> None:
    folders = view.program_folders()
    assert any(Path(confinement.__file__).is_relative_to(folder) for folder in folders)
    assert any(Path(msgspec.__file__).is_relative_to(folder) for folder in folders)


def test_paths_of_settings_may_be_read_and_not_written(place: Any, run: Any) -> None:
    tools = place.root / "toolchain"
    tools.mkdir()
    (tools / "compiler").write_text("#!/bin/sh\necho compiled\n")
    (tools / "compiler").chmod(0o755)
    for mechanism in MECHANISMS:
        needs(mechanism)
        shell = Shell(mechanisms=(mechanism,), read=(str(tools), str(place.root / "missing")))  # type: ignore[arg-type]
        assert run(shell, place.scene(), command=f"'{tools}/compiler'").text == "compiled\n"
        assert run(shell, place.scene(), command=f"echo x > '{tools}/new'").outcome == "error"
        assert (
            run(Shell(mechanisms=(mechanism,)), place.scene(), command=f"ls '{tools}'").outcome
            == "error"
        )  # type: ignore[arg-type]


def test_a_readable_path_never_shows_the_home(place: Any, run: Any) -> None:
    needs("bubblewrap")
    shell = Shell(read=(str(place.root), str(place.home)))
    returned = run(
        shell,
        place.scene(),
        command=f"ls '{place.root}' && ls -A '{place.home}' && cat '{place.key}'",
    )
    assert (returned.outcome, returned.text.splitlines()[:2], "key-material" in returned.text) == (
        "error",
        ["home", "ws"],
        False,
    )


def test_a_bind_of_the_call_lies_over_everything_else(place: Any) -> None:
    """The part that runs the approved bytes of a script from a private copy."""
    needs("bubblewrap")
    (place.workspace / "x.sh").write_text("echo changed")
    (place.home / "copy").write_text("echo approved")
    words = isolation.isolation_words(
        view.FileView(
            guard=guard_of(place.scene()),
            folders=(str(place.workspace),),
            binds=(
                Bind(str(place.home / "copy"), str(place.workspace / "x.sh")),
                Bind(str(place.home / "copy"), "/run/holdfast/x.sh"),
                Bind(str(place.workspace), "/run/holdfast/ws", read_only=False),
            ),
        )
    )
    fd = isolation.data_descriptor(isolation.filter_of("isolated", network=False))
    script = f"sh '{place.workspace}/x.sh'; sh /run/holdfast/x.sh; echo x >> /run/holdfast/x.sh || echo kept; touch /run/holdfast/ws/new"
    command = [str(fd) if word == view.FILTER else word for word in words]
    done = subprocess.run(
        [*command, "sh", "-c", script], check=True, capture_output=True, text=True, pass_fds=(fd,)
    )
    os.close(fd)
    assert (done.stdout, (place.workspace / "new").exists()) == ("approved\napproved\nkept\n", True)


# --- the folder of a command


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_workspace_that_is_swapped_is_never_shown_to_a_command(
    place: Any, encode: Any, mechanism: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The command runs elsewhere, so its own folder is as it was; the workspace is found by name once
    more, when it is mounted.
    """
    needs(mechanism)
    outside, user = place.root / "outside", place.root / "user"
    outside.mkdir()
    user.mkdir()
    (user / "log").write_text("one-time-code-417")
    shell, scene = Shell(mechanisms=(mechanism,)), place.scene()
    arguments = shell.validate(encode(command=f"cat '{place.workspace}/log'", cwd=str(outside)))
    binding = shell.bind(arguments, scene)
    place.workspace.rename(place.root / "aside")
    user.rename(place.workspace)

    async def prepare() -> None:
        await (await shell.prepare(arguments, binding, scene, idempotency_key="k")).abandon()

    with pytest.raises(CannotBind, match="has changed since this was approved"):
        asyncio.run(prepare())
    # Swapped after our own last look: the launcher's look, from inside, is left.
    monkeypatch.setattr(
        "holdfast.adapters.tools.shell.bound_files.identified", lambda _: binding.folders
    )
    with pytest.raises(CannotBind, match="has changed since this was approved"):
        asyncio.run(prepare())


def test_a_folder_outside_the_workspace_that_was_approved_can_be_changed(
    place: Any, encode: Any, run: Any
) -> None:
    needs("bubblewrap")
    outside = place.root / "outside"
    outside.mkdir()
    assert (
        "run outside the workspace, in"
        in bound(encode, place.scene(), Shell(), command="ls", cwd=str(outside)).display
    )
    assert (
        run(Shell(), place.scene(), command="touch made; pwd", cwd=str(outside)).text
        == f"{outside}\n"
    )
    assert (outside / "made").exists()
    assert (
        run(Shell(), place.scene(), command="touch x && echo made", cwd="/usr").outcome == "error"
    )


@pytest.mark.parametrize("folder", ["/", "/proc", "/sys", "/dev"])
def test_a_folder_that_undoes_the_view_is_not_isolated(
    place: Any, encode: Any, folder: str
) -> None:
    """The prompt says so first; where isolation is required it is refused."""
    binding = bound(encode, place.scene(workspace=folder), Shell(), command="ls")
    assert (binding.level, binding.display.startswith("UNCONFINED: ")) == ("unconfined", True)
    with pytest.raises(CannotBind) as refused:
        bound(encode, place.scene(workspace=folder), Shell(confine="require"), command="ls")
    assert refused.value.code == "unconfined"


@pytest.mark.parametrize("folder", ["/", "/proc", "/proc/self", "/sys", "/dev", "/dev/pts"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_call_does_not_choose_to_be_unconfined_by_its_folder(
    place: Any, encode: Any, mechanism: Any, folder: str
) -> None:
    """The model names the folder. A worse level than the workspace's is refused, not shown."""
    needs(mechanism)
    if not Path(folder).is_dir():
        pytest.skip(f"no {folder}")
    with pytest.raises(CannotBind, match="name a folder of the workspace") as refused:
        bound(encode, place.scene(), Shell(mechanisms=(mechanism,)), command="ls", cwd=folder)
    assert refused.value.code == "unconfined"


def test_a_folder_around_the_home_does_not_lower_the_level_either(place: Any, encode: Any) -> None:
    """Landlock can't leave the home out of it."""
    needs("landlock")
    with pytest.raises(CannotBind, match="can't be limited"):
        bound(
            encode,
            place.scene(),
            Shell(mechanisms=("landlock",)),
            command="ls",
            cwd=str(Path(place.scene().home).parent),
        )


def test_the_names_of_the_users_keys_are_not_in_the_view(place: Any, run: Any) -> None:
    needs("bubblewrap")
    if not Path("/proc/keys").exists():
        pytest.skip("this kernel has no keys")
    command = "cat /proc/keys /proc/key-users 2>/dev/null | wc -c"
    assert run(Shell(), place.scene(), command=command).text == "0\n"


def test_a_folder_that_can_not_be_entered_is_an_outcome_of_the_call(
    place: Any, encode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the command, and every later one that went on with the turn."""

    def refuse(_: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("holdfast.adapters.tools.home_guard.identities_upward", refuse)
    outside = place.root / "outside"
    outside.mkdir()
    with pytest.raises(CannotBind, match="permission denied"):
        bound(encode, place.scene(), Shell(), command="ls", cwd=str(outside))


def test_a_workspace_that_holds_everything_of_the_user_is_named(
    place: Any, encode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "holdfast.adapters.tools.shell.confinement.level_text.user_folder",
        lambda: str(place.workspace),
    )
    display = bound(encode, place.scene(), Shell(), command="ls").display
    assert (
        f"{place.workspace} holds everything of the user: all of it can be read and changed"
        in display
    )


# --- the level


@pytest.mark.parametrize(
    ("mechanisms", "overlap", "works", "level"),
    [
        (("landlock", "bubblewrap"), False, True, "isolated"),
        (("landlock", "bubblewrap"), True, True, "isolated"),
        (("landlock", "bubblewrap"), False, False, "limited"),
        (("landlock", "bubblewrap"), True, False, "unconfined"),
        (("bubblewrap",), False, True, "isolated"),
        (("bubblewrap",), False, False, "unconfined"),
        (("landlock",), False, True, "limited"),
        ((), False, True, "unconfined"),
    ],
)
def test_the_level_is_the_best_that_works(
    place: Any,
    monkeypatch: pytest.MonkeyPatch,
    mechanisms: Any,
    overlap: bool,
    works: bool,
    level: str,
) -> None:
    needs("landlock")
    found = (
        Isolation("/usr/bin/bwrap", ("/usr/bin/bwrap",))
        if works
        else Obstacle(cause="the cause", remedy="the remedy")
    )
    monkeypatch.setattr(confinement, "find_isolation", lambda: found)
    chosen = choose(
        guard_of(place.scene()), [str(place.root if overlap else place.workspace)], mechanisms
    )
    assert chosen.level == level
    assert (chosen.obstacle is None) == (level == "isolated")


def test_every_prompt_begins_with_its_level(place: Any, encode: Any) -> None:
    needs("landlock,bubblewrap")
    isolated = bound(encode, place.scene(), Shell(), command="ls")
    limited = bound(encode, place.scene(), Shell(mechanisms=("landlock",)), command="ls")
    bare = bound(encode, place.scene(), Shell(mechanisms=()), command="ls")
    off = bound(encode, place.scene(), Shell(confine="off"), command="ls")
    assert [each.level for each in (isolated, limited, bare, off)] == [
        "isolated",
        "limited",
        "unconfined",
        "unconfined",
    ]
    first = [
        each.display.splitlines()[0].partition(":")[0] for each in (isolated, limited, bare, off)
    ]
    assert first == ["isolated", "limited", "UNCONFINED", "UNCONFINED"]
    assert len({each.digest() for each in (isolated, limited, bare, off)}) == 4


def test_a_worse_level_names_its_cause_and_the_remedy(
    place: Any, encode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        confinement,
        "find_isolation",
        lambda: Obstacle(
            cause="bubblewrap is not installed", remedy="install the package bubblewrap"
        ),
    )
    words = "bubblewrap is not installed. To mend it, install the package bubblewrap."
    assert (
        f"not isolated, because {words}"
        in bound(encode, place.scene(), Shell(), command="ls").display.splitlines()
    )
    report = confinement_report(str(place.home), str(place.workspace))
    assert (report.level, report.reason, report.remedy) == (
        "limited",
        "bubblewrap is not installed",
        "install the package bubblewrap",
    )


def test_required_isolation_accepts_no_other_level(place: Any, encode: Any) -> None:
    for mechanisms in ((), ("landlock",)):
        with pytest.raises(CannotBind) as refused:
            bound(
                encode, place.scene(), Shell(confine="require", mechanisms=mechanisms), command="ls"
            )
        assert refused.value.code == "unconfined"
    needs("bubblewrap")
    assert bound(encode, place.scene(), Shell(confine="require"), command="ls").level == "isolated"


@pytest.mark.parametrize("mechanisms", [(), ("landlock",)])
def test_an_approval_of_one_level_never_runs_at_another(
    place: Any, encode: Any, mechanisms: Any
) -> None:
    needs("landlock,bubblewrap")
    isolated = Shell()
    arguments = isolated.validate(encode(command="ls"))
    binding = isolated.bind(arguments, place.scene())
    assert binding.level == "isolated"
    with pytest.raises(CannotBind, match="approved as isolated"):
        asyncio.run(
            Shell(mechanisms=mechanisms).prepare(
                arguments, binding, place.scene(), idempotency_key="k"
            )
        )


def test_the_report_says_at_which_level_a_command_would_run(place: Any) -> None:
    needs("bubblewrap")
    report = confinement_report(str(place.home), str(place.workspace))
    assert (report.level, report.reason, report.remedy) == ("isolated", "", "")
    assert confinement_report(str(place.root / "none"), None).level == "unconfined"


def test_without_a_home_a_command_is_isolated_all_the_same(
    place: Any, run: Any, encode: Any
) -> None:
    needs("bubblewrap")
    scene = place.scene(home=None)
    assert bound(encode, scene, Shell(), command="ls").level == "isolated"
    assert run(Shell(), scene, command="echo ok").text == "ok\n"


# --- causes and remedies


@pytest.mark.parametrize(
    ("said", "settings", "cause", "remedy"),
    [
        (
            "No permissions to create new namespace",
            {"user/max_user_namespaces": "0"},
            "user namespaces are switched off",
            "sysctl",
        ),
        (
            "Creating new namespace failed",
            {"kernel/unprivileged_userns_clone": "0"},
            "user namespaces are switched off",
            "sysctl",
        ),
        (
            "setting up uid map: Permission denied",
            {"user/max_user_namespaces": "9", "kernel/apparmor_restrict_unprivileged_userns": "1"},
            "AppArmor",
            "apparmor-profiles",
        ),
        (
            "Can't mount proc on /newroot/proc: Operation not permitted",
            {"user/max_user_namespaces": "9"},
            "/proc is masked",
            "systempaths",
        ),
        (
            "Creating new namespace failed: Operation not permitted",
            {"user/max_user_namespaces": "9"},
            "seccomp",
            "seccomp=unconfined",
        ),
        ("something else", {}, "bubblewrap does not work here", "bwrap --ro-bind"),
    ],
)
def test_each_obstacle_has_a_cause_and_a_remedy(
    said: str, settings: dict[str, str], cause: str, remedy: str
) -> None:
    found = obstacle_from(f"bwrap: {said}", lambda name: settings.get(name, ""))
    assert cause in found.cause
    assert said in found.cause
    assert remedy in found.remedy


def test_isolation_is_found_out_by_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bubblewrap that is there and fails is an obstacle, and so is one that is not there."""
    (tmp_path / "bwrap").write_text(
        "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n"
    )
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr(isolation, "SEARCH_PATH", str(tmp_path))
    found = isolation.find_isolation.__wrapped__()
    assert isinstance(found, Obstacle)
    assert "Permission denied" in found.cause
    monkeypatch.setattr(isolation, "SEARCH_PATH", str(tmp_path / "none"))
    assert isolation.find_isolation.__wrapped__() == Obstacle(
        cause="bubblewrap is not installed", remedy="install the package bubblewrap"
    )


def test_user_namespaces_that_are_switched_off_are_named_for_real() -> None:
    """
    In a namespace where no further one may be made, bubblewrap itself fails, and the kernel's
    setting says why.
    """
    needs("bubblewrap")
    code = "from holdfast.adapters.tools.shell.confinement.isolation import find_isolation as f; print(f().cause)"
    off = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        off,
        "sh",
        sys.executable,
        "-c",
        code,
    ]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if "Permission denied" in done.stderr or "unshare failed" in done.stderr:
        pytest.skip("user namespaces can't be nested here")
    assert done.stdout.startswith("user namespaces are switched off"), done.stderr


# --- the network


def test_the_network_is_asked_for_and_shown(place: Any, encode: Any) -> None:
    needs("bubblewrap")
    without = bound(encode, place.scene(), Shell(), command="ls")
    asked = bound(encode, place.scene(), Shell(), command="ls", network=True)
    always = bound(encode, place.scene(), Shell(network="always"), command="ls")
    assert [(each.network, "loopback" in each.display) for each in (without, asked, always)] == [
        (False, False),
        (True, True),
        (False, True),
    ]
    assert len({each.digest() for each in (without, asked, always)}) == 3
    with pytest.raises(CannotBind) as refused:
        bound(encode, place.scene(), Shell(network="never"), command="ls", network=True)
    assert refused.value.code == "no_network"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_network_is_there_if_it_was_asked_for_and_only_then(
    place: Any, run: Any, mechanism: Any
) -> None:
    needs(mechanism)
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = (
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 20)"
        )
        command = f'python3 -c "{code}"'
        assert (
            run(Shell(mechanisms=(mechanism,)), place.scene(), command=command).outcome == "error"
        )
        assert (
            run(
                Shell(mechanisms=(mechanism,)), place.scene(), command=command, network=True
            ).outcome
            == "ok"
        )
        assert (
            run(
                Shell(mechanisms=(mechanism,), network="always"), place.scene(), command=command
            ).outcome
            == "ok"
        )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_command_that_failed_for_lack_of_network_says_so_to_the_model(
    place: Any, run: Any, mechanism: Any
) -> None:
    needs(mechanism)
    command = (
        "python3 -c \"import urllib.request as r; r.urlopen('http://192.0.2.1/', timeout=20)\""
    )
    returned = run(Shell(mechanisms=(mechanism,)), place.scene(), command=command)
    assert returned.outcome == "error"
    assert returned.text.endswith(
        "[this command had no network; if it needs one, call shell again with network true]"
    )
    assert (
        "had no network"
        not in run(Shell(mechanisms=(mechanism,)), place.scene(), command="exit 3").text
    )
    assert (
        "had no network"
        not in run(
            Shell(confine="off"), place.scene(), command="echo Network is unreachable; exit 1"
        ).text
    )


@pytest.mark.parametrize(
    "output",
    [
        "curl: (6) Could not resolve host: example.com",
        "fatal: unable to access 'https://x/': Could not resolve host: x",
        "ssh: Could not resolve hostname x: Temporary failure in name resolution",
        "ping: connect: Network is unreachable",
        "npm error code EAI_AGAIN",
        "Error: getaddrinfo ENOTFOUND registry",
        "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
        "Failed to establish a new connection: [Errno 101]",
        "go: dial tcp: lookup proxy: network is unreachable",
        "wget: unable to resolve host address 'x'",
        "PermissionError: [Errno 13] Permission denied  socket: Permission denied",
    ],
)
def test_signs_of_a_missing_network_are_known(output: str) -> None:
    assert network_note(output)
    assert not network_note("assert 1 == 2")


def test_a_plan_is_complete() -> None:
    """
    Everything that decides how far a command reaches is in the plan that its launcher is told.
    """
    assert {"mode", "prefix", "allowed", "filter", "environment"} <= set(
        LaunchPlan.__struct_fields__
    )


def test_where_home_and_workspace_overlap_the_message_says_to_move_the_home(
    make_place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest remedy is named, not a newer kernel."""
    place = make_place(tmp_path, home="ws/state")
    monkeypatch.setattr(
        confinement, "find_isolation", lambda: Obstacle(cause="no bubblewrap", remedy="install it")
    )
    report = confinement_report(str(place.home), str(place.workspace))
    assert report.level == "unconfined"
    assert "are one inside the other" in report.reason
    assert report.remedy.startswith(f"move the home out of {place.workspace}")
