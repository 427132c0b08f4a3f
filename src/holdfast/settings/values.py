"""
Read each kind of value: from the TOML value to the program's value, or raise `Wrong` with a
sentence for people.

Pure. A reader never guesses: "5" is not a number, true is not a number, "7 days" is not a duration.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from holdfast.errors import Refused
from holdfast.ids import session_id
from holdfast.runtime.context import CODING_AGENTS

Reader = Callable[[Any], Any]

_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhd])\Z")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}\Z")  # RFC 6749, appendix A.4
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_DELEGATE = re.compile(
    r"[A-Za-z0-9_-]{1,48}\Z"
)  # after `delegate_`, within the length that providers allow for a tool's name
DELEGATE_NAME_HINT = "use letters, digits, '_' and '-', 48 at most"
_MODULE_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,255}:[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_PLACE = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_SERVER = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")
_SERVER_TOOL = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\.(?:\*|[A-Za-z0-9_][A-Za-z0-9_./-]{0,127})\Z")
# The tools of Holdfast itself, for clients of the protocol, and those of coding agents.
RESERVED_SERVERS = frozenset({"holdfast", *CODING_AGENTS})
_NAME_CHARS_MAX = 128
YEAR_SECONDS = 365 * 24 * 3600
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}\Z")
_HEADERS_MAX = 16  # a gateway asks for one or two
_HEADER_CHARS_MAX = 512
_KEY_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"})
_WIRE_HEADERS = frozenset({"host", "content-length", "content-type", "transfer-encoding"})


class Wrong(Exception):
    """An error in a value. `at` is the place inside it, for tables and lists."""

    def __init__(self, text: str, *, at: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.at = at


def duration_seconds(value: Any) -> int:
    """
    >>> duration_seconds("12h")
    43200
    """
    match = _DURATION.match(value) if isinstance(value, str) else None
    if match is None:
        raise Wrong(f'must be a duration such as "7d", "12h", "30m" or "45s", not {shown(value)}')
    return int(match.group(1)) * _UNITS[match.group(2)]


def duration_text(seconds: float | None) -> str | None:
    """
    The inverse of `duration_seconds`, in the largest unit that is exact.

    >>> duration_text(43200), duration_text(None)
    ('12h', None)
    """
    if seconds is None:
        return None
    whole = round(seconds)
    unit = next(each for each in reversed(_UNITS) if whole % _UNITS[each] == 0)
    return f"{whole // _UNITS[unit]}{unit}"


def duration(seconds_max: int) -> Reader:
    def read(value: Any) -> int:
        seconds = duration_seconds(value)
        if seconds > seconds_max:
            raise Wrong(f"{value} is longer than {duration_text(seconds_max)}")
        return seconds

    return read


def whole_number(least: int, most: int) -> Reader:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Wrong(f"must be a whole number from {least} to {most}, not {shown(value)}")
        return value

    return read


def dollars(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1_000_000:  # noqa: PLR2004  # NaN is in no range
        raise Wrong(f"must be a number of US dollars above 0, such as 2.50, not {shown(value)}")
    return float(value)


def temperature(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 2:  # noqa: PLR2004  # the range of all providers; NaN is in no range
        raise Wrong(f"must be a number from 0 to 2, not {shown(value)}")
    return float(value)


def provider_model(value: Any) -> str:
    provider, colon, model = text(value).partition(":")
    if not (provider and colon and model) or not model.isprintable() or " " in value:
        raise Wrong(f'must be PROVIDER:MODEL, such as "openai-chat:qwen3", not {shown(value)}')
    return text(value)


def headers(value: Any) -> tuple[tuple[str, str], ...]:
    """Read a table of HTTP headers. Refuse one that holds a key: others may read this file."""
    if not isinstance(value, Mapping):
        raise Wrong(f'must be a table such as {{ X-Team = "ops" }}, not {shown(value)}')
    if len(value) > _HEADERS_MAX:
        raise Wrong(f"has {len(value)} headers; {_HEADERS_MAX} are the most")
    for key, each in value.items():
        if not _HEADER.match(key):
            raise Wrong(f"{shown(key)} is not the name of a header", at=(key,))
        if key.lower() in _KEY_HEADERS:
            raise Wrong(
                f"{key} would hold a key: put it into a variable, and name that with key_env",
                at=(key,),
            )
        if key.lower() in _WIRE_HEADERS:
            raise Wrong(f"{key} is set by the client itself", at=(key,))
        if not text(each).isascii() or not each.isprintable() or len(each) > _HEADER_CHARS_MAX:
            raise Wrong(
                f"{key}: must be one line of ASCII, at most {_HEADER_CHARS_MAX} characters",
                at=(key,),
            )
    return tuple(value.items())


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"must be true or false, not {shown(value)}")
    return value


def one_of(*choices: str) -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise Wrong(f"must be {_joined(choices)}, not {shown(value)}")
        return value

    return read


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong(f"must be text in quotes, not {shown(value)}")
    return value


def some_text(value: Any) -> str:
    if not text(value).strip():
        raise Wrong("must not be empty")
    return text(value)


def is_name(value: str) -> bool:
    """
    Return whether people and programs can tell the name from every other: normal form C, nothing
    invisible, no space at its ends.

    >>> is_name("Zoë"), is_name("Zoe\\u0308"), is_name("alice "), is_name("ali\\u200bce")
    (True, False, False, False)
    """
    return (
        0 < len(value) <= _NAME_CHARS_MAX
        and unicodedata.is_normalized("NFC", value)
        and value == value.strip()
        and all(letter == " " or unicodedata.category(letter)[0] not in "CZ" for letter in value)
    )


def name(value: Any) -> str:
    if not is_name(text(value)):
        raise Wrong(
            f"{shown(value)} is not a name: it must be in Unicode normal form C, without invisible "
            "characters or spaces at its ends"
        )
    return text(value)


def session_name(value: Any) -> str:
    try:
        return session_id(text(value))
    except Refused as exc:
        raise Wrong(exc.message) from exc


def list_of(read_one: Reader, *, least: int = 0) -> Reader:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Wrong(f"must be a list in brackets, not {shown(value)}")
        found = tuple(read_one(each) for each in value)
        if len(found) < least:
            raise Wrong("must not be empty")
        twice = next((each for each, count in Counter(found).items() if count > 1), None)
        if twice is not None:
            raise Wrong(f"has {shown(twice)} twice")
        return found

    return read


def words(value: Any) -> tuple[str, ...]:
    """Read a command as a list. Arguments may repeat."""
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(each, str) for each in value)
        or not value[0].strip()
    ):
        raise Wrong(
            f'must be a list of words such as ["notify-send", "Holdfast"], not {shown(value)}'
        )
    return tuple(value)


def variable(value: Any) -> str:
    if not _VARIABLE.match(text(value)):
        raise Wrong(f"{shown(value)} is not the name of an environment variable")
    return text(value)


def agents_tool(value: Any) -> str:
    if not any(kind.match(text(value)) for kind in (_TOOL, _MODULE_TOOL, _SERVER_TOOL)):
        raise Wrong(
            f"{shown(value)} is not a tool: use the name of a built-in one, MODULE:FUNCTION, or "
            "SERVER.TOOL of a server in [mcp]"
        )
    return text(value)


def is_delegate_name(value: str) -> bool:
    return _DELEGATE.match(value) is not None


def delegate(value: Any) -> str:
    if not is_delegate_name(text(value)):
        raise Wrong(f"{shown(value)} is not a name that a model can call: {DELEGATE_NAME_HINT}")
    return text(value)


def is_tool_name(value: str) -> bool:
    return value == "*" or any(kind.match(value) for kind in (_TOOL, _SERVER_TOOL))


def is_server_name(value: str) -> bool:
    return value not in RESERVED_SERVERS and _SERVER.match(value) is not None


def server_url(value: Any) -> str:
    """Require https. Allow plain http only to this machine."""
    address = web_address(value, such_as="https://crm.example.com/mcp")
    if "#" in address:
        raise Wrong("must not have a fragment: no server sees it")
    if not is_private(address):
        raise Wrong("must be https: anybody between here and there could change the tools")
    return address


def issuer(value: Any) -> str:
    """Require https, as secrets go there. Allow plain http only to this machine."""
    address = base_url(value)
    if not is_private(address):
        raise Wrong("must be https: anybody between here and there could read the secret")
    return address


def scope(value: Any) -> str:
    if not _SCOPE.match(text(value)):
        raise Wrong(f"{shown(value)} is not a scope: it must have no blanks and no quotes")
    return text(value)


def webhook(value: Any) -> str:
    """Require https. Allow plain http only to this machine."""
    address = web_address(value, such_as="https://example.org/hook")
    if not is_private(address):
        raise Wrong("must be https: anybody between here and there could read who is asked what")
    return address


def page(value: Any) -> str:
    """Require https for a link that people open. Allow plain http only to this machine."""
    address = web_address(value, such_as="https://holdfast.example.com")
    if not is_private(address):
        raise Wrong("must be https: anybody between here and there could answer prompts")
    return address


def teams(value: Any) -> Mapping[str, str]:
    """Read a table of a platform's channel ids, each with the name of the team that reads it."""
    if not isinstance(value, Mapping):
        raise Wrong(f'must be a table such as {{ "C0OPS" = "ops" }}, not {shown(value)}')
    for key, each in value.items():
        if not _PLACE.match(key):
            raise Wrong(f"{shown(key)} is not an id of a channel", at=(key,))
        name(each)
    return dict(value)


def web_address(value: Any, *, such_as: str) -> str:
    address = text(value)
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if (
        parts.scheme not in {"http", "https"}
        or not host
        or any(letter.isspace() for letter in address)
    ):
        raise Wrong(f"must be an address such as {such_as}, not {shown(value)}")
    if parts.username is not None or parts.password is not None:
        raise Wrong("must not hold a password: addresses end up in logs")
    return address


def base_url(value: Any) -> str:
    address = web_address(value, such_as="http://127.0.0.1:1234/v1")
    if "?" in address or "#" in address:
        raise Wrong("must end with a path: the client adds its own to it")
    return address


def collector(value: Any) -> str:
    """Require https, as spans name sessions and models. Allow plain http only to this machine."""
    address = base_url(value)
    if not is_private(address):
        raise Wrong("must be https: anybody between here and there could read what agents do")
    return address


def header_name(value: Any) -> str:
    if not _HEADER.match(text(value)) or value.lower() in _WIRE_HEADERS:
        raise Wrong(f"{shown(value)} is not the name of a header that can hold a key")
    return text(value)


def is_private(address: str) -> bool:
    """Return whether nobody between here and there can read what goes to a valid address."""
    parts = urlsplit(address)
    return parts.scheme == "https" or _is_this_machine(parts.hostname or "")


def readable_path(value: Any) -> str:
    """
    Read a path that commands may read. It must not reopen a folder that they get as a private one.

    >>> readable_path("/home/alice/.cargo/")
    '/home/alice/.cargo'
    """
    path = some_text(value)
    parts = [part for part in path.split("/") if part]
    if not path.startswith("/") or ".." in parts or "." in parts or "\0" in path:
        raise Wrong(f"must be an absolute path without . and .., not {shown(value)}")
    if (
        not parts
        or parts[0] in {"proc", "sys", "dev"}
        or parts in (["run"], ["tmp"], ["var"], ["home"])
    ):
        raise Wrong(f"is too wide for a command to read: {shown(value)}; name a folder of programs")
    return "/" + "/".join(parts)


def host(value: Any) -> str:
    address = some_text(value)
    if any(letter.isspace() or letter in "/:@" for letter in address) and not _is_address(address):
        raise Wrong(f"must be a host name or an address, not {shown(value)}")
    return address


def _is_this_machine(host_name: str) -> bool:
    return host_name == "localhost" or (
        _is_address(host_name) and ip_address(host_name).is_loopback
    )


def _is_address(value: str) -> bool:
    try:
        ip_address(value)
    except ValueError:
        return False
    return True


def shown(value: Any) -> str:
    """Return the value as the file would show it: short and without invisible characters."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return ascii(value[:60] + "..." if len(value) > 60 else value)  # noqa: PLR2004
        case Mapping():
            return "a table"
        case list():
            return "a list"
        case _:
            return str(value)[:60]


def _joined(choices: tuple[str, ...]) -> str:
    quoted = [f'"{each}"' for each in choices]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else quoted[0]
