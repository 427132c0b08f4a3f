"""
The page's files, read from the package once. Names are looked up and never joined to a path, so
nothing else can be read under `/assets/`.

The policy lets the page run its own modules, style itself and connect to this server, and nothing
else. Trusted types without a policy forbid turning text into markup.
"""

from functools import cache
from importlib.resources import files

from blake3 import blake3
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import Refused

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
    """Return content, media type and entity tag by name."""
    found = {}
    for each in files("holdfast.gateway").joinpath("page").iterdir():
        suffix = each.name[each.name.rfind(".") :]
        if suffix in _TYPES:
            content = each.read_bytes()
            found[each.name] = (content, _TYPES[suffix], f'"{blake3(content).hexdigest()[:32]}"')
    return found


async def index(request: Request) -> Response:
    return _file(request, "index.html")


async def asset(request: Request) -> Response:
    name: str = request.path_params["name"]
    if name == "index.html":
        raise Refused("there is no such file", code="unknown")
    return _file(request, name)


def _file(request: Request, name: str) -> Response:
    found = page_files().get(name)
    if found is None:
        raise Refused("there is no such file", code="unknown")
    content, kind, tag = found
    headers = {"content-security-policy": CSP, "cache-control": "no-cache", "etag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers={**headers, "content-type": kind})
