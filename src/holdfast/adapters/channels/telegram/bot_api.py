"""
The Bot API over HTTP: one request, and what its answer makes certain.

aiogram is not used: 3.31 wants pydantic below 2.14, and the models and MCP extras are past it. Five
methods of JSON over HTTP are all that a channel needs.
"""

from typing import Any

from holdfast.adapters.channels.http_request import HttpAnswer, ask, json_of
from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered

API = "https://api.telegram.org"
REQUEST_SECONDS = 20.0
_TOO_MANY = 429
_SERVER = 500


class BotApi:
    """Errors are as those of `ask`. The token is part of every address."""

    def __init__(self, token: str, *, api: str = API) -> None:
        self._address = f"{api.rstrip('/')}/bot{token}/"

    async def call(self, method: str, /, *, seconds: float = REQUEST_SECONDS, **fields: Any) -> Any:
        body = {name: value for name, value in fields.items() if value is not None}
        return _result(
            await ask("Telegram", "POST", self._address + method, seconds=seconds, body=body)
        )


def _result(given: HttpAnswer) -> Any:
    answer, status = json_of(given.body), given.status
    if isinstance(answer, dict) and answer.get("ok") is True:
        return answer.get("result")
    detail = answer if isinstance(answer, dict) else {}
    text = f"Telegram answered {status}: {str(detail.get('description', 'no reason'))[:200]}"
    if status == _TOO_MANY:
        parameters = detail.get("parameters")
        wait = parameters.get("retry_after", 1) if isinstance(parameters, dict) else 1
        raise NotDelivered(text, may_pass=True, wait_seconds=float(wait))
    if status >= _SERVER or not detail:
        raise DeliveryInDoubt(text)
    raise NotDelivered(text, may_pass=False)
