"""A server's refusal of a request that came without the right token (RFC 6750, RFC 9728)."""

import re

import msgspec

_UNAUTHORIZED, _FORBIDDEN = 401, 403
_PART = re.compile(r'([a-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))', re.IGNORECASE)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}\Z")  # RFC 6749, appendix A.4
_SCOPES_MAX = 64
_HEADER_CHARS_MAX = 8192


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """The server's word: it did not take the request, and this is what it wants instead."""

    status: int
    is_worded: bool = True  # whether the server named the scheme, as it must
    metadata: str | None = None  # where the server describes itself
    scopes: tuple[str, ...] = ()

    @property
    def wants_scopes(self) -> bool:
        """Whether the token was good, and does not reach far enough."""
        return self.status == _FORBIDDEN


def challenge_from(status: int, header: str | None) -> Challenge | None:
    """Return None for an answer that is not such a refusal."""
    text = (header or "")[:_HEADER_CHARS_MAX]
    scheme, _, rest = text.partition(" ")
    is_worded = scheme.lower() == "bearer"
    found = _PART.findall(rest) if is_worded else []
    parts = {name.lower(): quoted or plain for name, quoted, plain in found}
    lacks_scope = status == _FORBIDDEN and parts.get("error") == "insufficient_scope"
    if status != _UNAUTHORIZED and not lacks_scope:
        return None
    return Challenge(
        status=status,
        is_worded=is_worded,
        metadata=parts.get("resource_metadata"),
        scopes=scopes_from(parts.get("scope")),
    )


def scopes_from(value: object) -> tuple[str, ...]:
    """Read scopes from a text with blanks, or from a list. Leave out what cannot be a scope."""
    words = value.split(" ") if isinstance(value, str) else value
    if not isinstance(words, list):
        return ()
    fit = (each for each in words if isinstance(each, str) and _SCOPE.match(each))
    return tuple(dict.fromkeys(fit))[:_SCOPES_MAX]
