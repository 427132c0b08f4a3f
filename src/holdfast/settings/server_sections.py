"""`[mcp.NAME]`: the keys that exclude or need each other."""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.settings import values
from holdfast.settings.problems import Path, Problem, quoted

_STDIO_KEYS = ("env", "network", "read", "write")
_IDENTITY_KEYS = ("identity_file", "identity_issuer", "identity_client_id")
_CLIENT_KEYS = ("issuer", "client_id", "client_secret_env", "client_key_env", "scopes")
_LOGIN_KEYS = ("login", *_CLIENT_KEYS, *_IDENTITY_KEYS)
_URL_KEYS = ("token_env", *_LOGIN_KEYS)


def unfit_servers(
    found: Mapping[Path, Mapping[str, Any]], tree: Mapping[str, Any]
) -> Iterator[Problem]:
    """
    Report each server whose name no tool can begin with, or that is not exactly one thing. `tree`
    is the file as written: a key with a wrong value is there, and has a problem of its own.
    """
    for path, keys in found.items():
        if path[0] != "mcp" or path == ("mcp",):
            continue
        section = f"[{'.'.join(map(quoted, path))}]"
        if not values.is_server_name(path[1]):
            yield Problem(
                path,
                f"{section}: {values.shown(path[1])} is not a name of a server",
                "use a-z, 0-9, '_' and '-', at most 32 of them; 'holdfast', 'claude-code' and "
                "'codex' are taken",
            )
        if set(tree["mcp"][path[1]]) != set(keys):
            continue
        if ("command" in keys) == ("url" in keys):
            yield Problem(
                path,
                f"{section} must have exactly one of command and url",
                'add command = ["PROGRAM", "ARGUMENT"] or url = "https://..."',
            )
        elif misplaced := [key for key in _STDIO_KEYS if key in keys and "url" in keys]:
            yield Problem((*path, misplaced[0]), f"{misplaced[0]} in {section}: needs command")
        elif misplaced := [key for key in _URL_KEYS if key in keys and "url" not in keys]:
            yield Problem((*path, misplaced[0]), f"{misplaced[0]} in {section}: needs url; see env")
        else:
            yield from _unfit_login(path, section, keys)


def _unfit_login(path: Path, section: str, keys: Mapping[str, Any]) -> Iterator[Problem]:
    """Report a server whose login names too much, or too little. A secret needs an issuer."""
    extra = [key for key in _LOGIN_KEYS if key in keys]
    proofs = [key for key in ("client_secret_env", "client_key_env") if key in keys]
    identity = [key for key in _IDENTITY_KEYS if key in keys]
    is_client = keys.get("login") == "client"
    lacking = [key for key in ("client_id", "issuer") if key not in keys]
    if "token_env" in keys and extra:
        yield Problem((*path, extra[0]), f"{extra[0]} in {section}: token_env is a token already")
    elif len(proofs) > 1:
        yield Problem((*path, proofs[1]), f"{section}: a client has a secret or a key, not both")
    elif lacking and (proofs or is_client):
        why = 'add client_id = "ID" and issuer = "https://...": a secret goes there alone'
        yield Problem(path, f"{section}: {(*proofs, 'login')[0]} needs {lacking[0]}", why)
    elif is_client and not proofs and not identity:
        why = 'add client_secret_env = "VARIABLE", client_key_env or identity_file'
        yield Problem(path, f"{section}: login needs the client's secret, key or identity", why)
    elif identity and (not is_client or identity[0] != "identity_file"):
        why = 'needs login = "client" and identity_file'
        yield Problem((*path, identity[0]), f"{identity[0]} in {section}: {why}")
