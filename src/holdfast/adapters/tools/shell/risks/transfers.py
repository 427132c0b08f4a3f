"""Programs that send data to another machine: by their options and by the direction of a copy."""

import re
from collections.abc import Sequence

from holdfast.session.authority.plan import RiskKind

_LOCAL = re.compile(r"(https?://)?(localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0)([:/]|$)")
_CURL_SENDS = re.compile(
    r"-[a-zA-Z]*[dFT]\S*|--data.*|--json.*|--form.*|--upload-file.*|--post-.*|--body-.*|--url-query.*"
)
_METHODS = re.compile(r"(?:-X|--request|--method)[= ]?(?P<method>[A-Z]+)")
_REMOTE = re.compile(r"(?:[\w.-]+@)?[\w.-]{2,}:(?!//).*|(?:rsync|sftp|scp|ftp)://.*")
_FILE_IN_ADDRESS = re.compile(r"(\$\(|`)[^)`]*\b(cat|base64|head|tail|env|printenv)\b|\$\(<")
SENDS = "sends data to another machine."


def transfer_effects(
    name: str, words: Sequence[str], *, is_fed: bool
) -> list[tuple[RiskKind, str]]:
    """
    Return the effects of one command. `is_fed` is set if its input comes from a pipe or a file.

    >>> transfer_effects("curl", ("-F", "f=@a.csv", "https://example.com"), is_fed=False)
    [('upload', 'sends data to another machine.')]
    >>> transfer_effects("scp", ("host:/a", "."), is_fed=False)
    []
    """
    match name:
        case "curl" | "wget" | "http" | "https" | "xh":
            return _web(name, words)
        case "scp" | "rsync" | "rcp" | "sftp":
            return _copy(name, words, is_fed=is_fed)
        case "nc" | "ncat" | "netcat" | "socat":
            looks = any(re.fullmatch("-[a-z]*z[a-z]*", word) for word in words)
            return [] if looks else [("upload", SENDS)]
        case "ssh" | "nslookup" | "dig" | "host" if is_fed:
            return [("upload", SENDS)]
        case _:
            return []


def _web(name: str, words: Sequence[str]) -> list[tuple[RiskKind, str]]:
    text = " ".join(words)
    found: list[tuple[RiskKind, str]] = []
    method = _METHODS.search(text)
    if (
        (method and method["method"] == "DELETE")
        or (name not in ("curl", "wget") and "DELETE" in words)
        or "/_delete_by_query" in text
    ):
        found.append(("destructive", "asks a server to delete something. This cannot be undone."))
    sends = any(_CURL_SENDS.fullmatch(word) for word in words if word.startswith("-"))
    if name == "wget":
        sends = any(word.startswith(("--post", "--body")) for word in words)
    sends = sends or any(_FILE_IN_ADDRESS.search(word) for word in words)
    changes = method is not None and method["method"] in ("POST", "PUT", "PATCH")
    if name not in ("curl", "wget"):
        sends = sends or any(word in ("POST", "PUT", "PATCH") for word in words)
    is_local = any(_LOCAL.match(word) for word in words)
    if (sends or changes) and not is_local:
        found.append(("upload", SENDS))
    return found


def _copy(name: str, words: Sequence[str], *, is_fed: bool) -> list[tuple[RiskKind, str]]:
    operands = [word for word in words if not word.startswith("-")]
    if name == "sftp":
        return [("upload", SENDS)] if is_fed or "-b" in words else []
    return [("upload", SENDS)] if operands and _REMOTE.fullmatch(operands[-1]) else []
