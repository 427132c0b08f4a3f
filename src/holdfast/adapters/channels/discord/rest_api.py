"""
Discord's HTTP API: one request, and what its answer makes certain.

discord.py's own requests are not used. They are sent again up to five times, and wait for rate
limits by themselves; neither can be switched off.
"""

from typing import Any

from holdfast.adapters.channels.http_request import HttpAnswer, ask, json_of
from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered

API = "https://discord.com/api/v10"
REQUEST_SECONDS = 15.0
_TOO_MANY, _CLIENT, _SERVER = 429, 400, 500


class DiscordApi:
    """Errors are as those of `ask`."""

    def __init__(self, token: str, *, api: str = API) -> None:
        self._api = api.rstrip("/")
        self._headers = {
            "Authorization": f"Bot {token}",
            "User-Agent": "DiscordBot (Holdfast, 1)",
        }

    async def call(self, method: str, path: str, body: object = None) -> Any:
        return _result(
            await ask(
                "Discord",
                method,
                self._api + path,
                seconds=REQUEST_SECONDS,
                headers=self._headers,
                body=body,
            )
        )


def _result(given: HttpAnswer) -> Any:
    """An answer below 400 may have no content. `message` of an error is Discord's own text."""
    answer, status = json_of(given.body), given.status
    if status < _CLIENT and (answer is not None or not given.body):
        return answer
    if status < _CLIENT:
        raise DeliveryInDoubt(f"Discord answered {status} with something that is not JSON")
    detail = answer if isinstance(answer, dict) else {}
    said = f"{str(detail.get('message', 'no reason'))[:200]} ({detail.get('code', 0)})"
    text = f"Discord answered {status}: {said}"
    if status == _TOO_MANY:
        raise NotDelivered(text, may_pass=True, wait_seconds=_wait(detail, given.headers))
    if status >= _SERVER:
        raise DeliveryInDoubt(text)
    raise NotDelivered(text, may_pass=False)


def _wait(detail: dict[str, Any], headers: dict[str, str]) -> float:
    """The body has a fraction of a second. A proxy in front answers with the header alone."""
    for given in (detail.get("retry_after"), headers.get("retry-after")):
        try:
            return max(0.0, min(3_600.0, float(str(given))))
        except ValueError:
            continue
    return 1.0
