"""The HTTP client that comes with the extra `mcp`, imported at first use."""

from typing import Any

from holdfast.errors import Unusable, install_hint


def http_library() -> Any:
    """Import the HTTP client that comes with the extra. Raise Unusable with the next step."""
    try:
        import httpx2
    except ImportError as exc:
        raise Unusable(
            "servers with an address need the extra mcp", hint=install_hint("mcp")
        ) from exc
    return httpx2
