"""The address and the token with which a command reaches a running gateway as a client."""

import os
import re
import stat
from pathlib import Path

from holdfast.cli.shared.options import Options
from holdfast.errors import Unusable

TOKEN_VARIABLE = "HOLDFAST_TOKEN"  # noqa: S105  the name of a variable
URL_VARIABLE = "HOLDFAST_URL"
DEFAULT_URL = "http://127.0.0.1:8321"
_LOCAL = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?\Z")
_TOKEN_BYTES_MAX = 1_000
_HINT = (
    "`holdfast tokens add NAME --as YOU --scopes send` makes one; write it to a file with mode 0600"
)


def client_token(file: Path | None) -> str:
    """Return the token. A file that others may read is refused."""
    from holdfast.token_form import is_token

    if file is None:
        text, where = os.environ.get(TOKEN_VARIABLE, ""), f"${TOKEN_VARIABLE}"
        if not text:
            raise Unusable(
                f"no token: neither --token-file nor ${TOKEN_VARIABLE} is given",
                code="no_token",
                hint=_HINT,
            )
    else:
        where, text = str(file), _read(file)
    if not is_token(text.strip()):
        raise Unusable(f"{where} does not hold a token", code="no_token", hint=_HINT)
    return text.strip()


def _read(file: Path) -> str:
    try:
        # A FIFO without a writer would keep us waiting, and a hook that waits fails open.
        fd = os.open(file.expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as opened:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise Unusable(f"{file} is not a file", code="no_token", hint=_HINT)
            if stat.S_IMODE(mode) & 0o077:
                raise Unusable(
                    f"others may read {file}", code="unsafe_path", hint=f"chmod 600 {file}"
                )
            return opened.read(_TOKEN_BYTES_MAX).decode(errors="replace")
    except OSError as exc:
        raise Unusable(f"{file}: {exc.strerror}", code="no_token", hint="name another") from exc


def gateway_url(options: Options, url: str | None) -> str:
    given = url or os.environ.get(URL_VARIABLE) or served(options) or DEFAULT_URL
    address = given.rstrip("/")
    if not address.startswith("https://") and not _LOCAL.match(address):
        raise Unusable(
            f"{given!r} is neither https nor on this machine, and the token would travel in clear",
            code="malformed",
            hint=f"such as {DEFAULT_URL}",
        )
    return address


def served(options: Options) -> str | None:
    """Return the address of this user's own server, if there is one."""
    from holdfast.assembly.home_path import home_path
    from holdfast.gateway.server.serve_lock import served_at

    return served_at(home_path(options.home))
