"""
The page's files, read from the package once. Names are looked up and never joined to a path, so
nothing else can be read under `/assets/`. One file is made here: `core/state_words.js`, the words
that the page shares with the command line.

The policy lets the page run its own modules, style itself and connect to this server, and nothing
else. Trusted types without a policy forbid turning text into markup.
"""

from functools import cache
from importlib.resources import files

from blake3 import blake3

from holdfast.errors import Refused
from holdfast.gateway.http.request import HttpRequest
from holdfast.gateway.http.response import HttpResponse
from holdfast.gateway.http.router import OPEN, AnyRoute, ApiCall, Route
from holdfast.state_words import state_words_json

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "require-trusted-types-for 'script'; trusted-types 'none'; frame-ancestors 'none'; base-uri "
    "'none'; form-action 'none'"
)
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def page_files() -> dict[str, tuple[bytes, str, str]]:
    """Return content, media type and entity tag by name, which has at most one folder in it."""
    found = {"core/state_words.js": b"export default " + state_words_json() + b";\n"}
    for each in files("holdfast.gateway").joinpath("page").iterdir():
        inside = each.iterdir() if each.is_dir() else ()
        found |= {f"{each.name}/{deep.name}": deep.read_bytes() for deep in inside}
        if each.is_file():
            found[each.name] = each.read_bytes()
    return {
        name: (content, kind, f'"{blake3(content).hexdigest()[:32]}"')
        for name, content in found.items()
        if (kind := _TYPES.get(name[name.rfind(".") :])) is not None
    }


def page_routes() -> list[AnyRoute]:
    return [
        Route(method="GET", path="/", scope=OPEN, handle=_index),
        Route(method="GET", path="/assets/{name}", scope=OPEN, handle=_asset),
        Route(method="GET", path="/assets/{folder}/{name}", scope=OPEN, handle=_asset),
    ]


async def _index(call: ApiCall[None]) -> HttpResponse:
    return _file(call.request, "index.html")


async def _asset(call: ApiCall[None]) -> HttpResponse:
    parts = call.request.path_parts
    name = "/".join(parts[each] for each in ("folder", "name") if each in parts)
    if name == "index.html":
        raise Refused("no such file", code="unknown", hint="the page is at /")
    return _file(call.request, name)


def _file(request: HttpRequest, name: str) -> HttpResponse:
    found = page_files().get(name)
    if found is None:
        raise Refused("no such file", code="unknown", hint="the page is at /")
    content, kind, tag = found
    headers = {"content-security-policy": CSP, "cache-control": "no-cache", "etag": tag}
    if request.header_values("if-none-match") == [tag]:
        return HttpResponse(status=304, headers=headers)
    return HttpResponse(content, media_type=kind, headers=headers)
