"""
`serve` under a user of its own: the barrier between a home and the other programs of its users.

`--as-user NAME`, started by root, gives up root for good before the home is opened. `--print-unit`
prints a systemd unit that does the same. docs/operations/serve-as-own-user.md is the guide.
"""

import os
import pwd
import re
import shlex
import sys
from pathlib import Path

from holdfast.errors import Refused, Unusable

WORKSPACE = "workspace"
_UNIT_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_HOMES = ("/home/", "/root/")


def become(name: str) -> None:
    """Become this user, in one of their folders. Nothing may be open or running yet."""
    user = _user(name)
    if os.geteuid() == user.pw_uid != 0:
        return
    if os.geteuid() != 0:
        raise Refused(
            f"only root can serve as {name!r}, and you are uid {os.geteuid()}",
            code="no_authority",
            hint=f"sudo {shlex.join([_program(), 'serve', '--as-user', name])}",
        )
    if user.pw_uid == 0:
        raise Unusable(
            "root is not a user of its own",
            code="malformed",
            hint="`useradd --system --create-home holdfast` makes one",
        )
    os.initgroups(name, user.pw_gid)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    os.umask(0o077)
    _check_program(name)
    for variable in [
        each for each in os.environ if each.startswith(("SUDO_", "XDG_", "DBUS_", "SSH_"))
    ]:
        del os.environ[variable]  # it belongs to the user who started the process
    os.environ |= {"HOME": user.pw_dir, "USER": name, "LOGNAME": name}
    _enter(Path(user.pw_dir) / WORKSPACE)


def _check_program(name: str) -> None:
    """Check that the new user can read the program: parts of it are imported later."""
    for path in (os.__file__, __file__):
        if not os.access(path, os.R_OK):
            raise Unusable(
                f"{name} can't read this program: {path}",
                code="missing_part",
                hint=(
                    "install it where every user can read it: `python3 -m venv /opt/holdfast`, "
                    "then `/opt/holdfast/bin/pip install ...`"
                ),
            )


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise Unusable(
            f"the system has no user {name!r}",
            code="unknown_user",
            hint=f"sudo useradd --system --create-home --shell /usr/sbin/nologin {name}",
        ) from None


def _enter(folder: Path) -> None:
    """Enter the folder where tools work: neither root's folder nor the home."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chdir(folder)
    except OSError as exc:
        raise Unusable(
            f"{folder} can't be used as a workspace: {exc.strerror}",
            code="no_workspace",
            hint="give the user a folder of its own",
        ) from exc


def unit(name: str) -> str:
    """
    Return a systemd unit. It leaves open only the facilities that bubblewrap needs: user namespaces
    and a whole /proc.

    >>> "User=holdfast" in unit("holdfast")
    True
    """
    if not _UNIT_NAME.fullmatch(name):
        raise Unusable(
            f"{name!r} can't be the name of a user in a unit",
            code="malformed",
            hint="use small letters, digits, _ and -, with a letter first, 31 at most",
        )
    program = _program()
    lies_at_home = any(each.startswith(_HOMES) for each in (program, sys.prefix, sys.base_prefix))
    protect_home = (
        [
            "# The program lies below a home; install it below /opt or /usr, and write yes here.",
            "ProtectHome=read-only",
        ]
        if lies_at_home
        else ["ProtectHome=yes"]
    )
    return "\n".join(
        [
            (
                "# Written by `holdfast serve --print-unit`. docs/operations/serve-as-own-user.md"
                " is the guide."
            ),
            "[Unit]",
            "Description=Holdfast gateway",
            "After=network.target",
            "",
            "[Service]",
            f"User={name}",
            f"Group={name}",
            f"StateDirectory={name} {name}-{WORKSPACE}",
            "StateDirectoryMode=0700",
            f"WorkingDirectory=/var/lib/{name}-{WORKSPACE}",
            f"ExecStart={program} --home /var/lib/{name} serve",
            "Restart=on-failure",
            "KillMode=mixed",
            "TimeoutStopSec=30",
            "UMask=0077",
            "NoNewPrivileges=yes",
            "CapabilityBoundingSet=",
            "PrivateTmp=yes",
            "PrivateDevices=yes",
            "ProtectSystem=strict",
            *protect_home,
            "ProtectClock=yes",
            "ProtectKernelModules=yes",
            "RestrictSUIDSGID=yes",
            "RestrictRealtime=yes",
            "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
            "LockPersonality=yes",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        ]
    )


def _program() -> str:
    """Return the installed script beside this interpreter."""
    return str(Path(sys.executable).with_name("holdfast"))
