"""
Whether a token may see a session or a prompt. A session that the token may not see and a missing
session get the same answer.
"""

from holdfast.errors import Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.request import HttpRequest
from holdfast.gateway.server.tokens import Bearer
from holdfast.ids import SessionId, session_id


def session_in_path(request: HttpRequest) -> SessionId:
    parts = request.path_parts
    return session_id(f"{parts['channel']}/{parts['thread']}")


async def may_see(gateway: Gateway, session: SessionId, bearer: Bearer) -> bool:
    service = gateway.service
    return await service.live.is_seen(session, bearer.sees)


async def check_seen(gateway: Gateway, session: SessionId, bearer: Bearer) -> SessionId:
    if not await may_see(gateway, session, bearer):
        raise unknown_session()
    return session


def unknown_session() -> Refused:
    return Refused("no such session", code="unknown", hint="GET /v1/sessions lists yours")


def unknown_approval() -> Refused:
    return Refused(
        "no such approval", code="unknown", hint="GET /v1/approvals lists the prompts that wait"
    )
