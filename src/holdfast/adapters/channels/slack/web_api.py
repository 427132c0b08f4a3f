"""
Slack's Web API through its own library, with the library's resending switched off: a reset
connection made it post a message twice.
"""

import logging
from typing import TYPE_CHECKING, Any

from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

REQUEST_SECONDS = 15
API = "https://slack.com/api/"
_TOO_MANY, _SERVER = 429, 500
# The method may have had its effect before it failed.
_UNSURE = frozenset({"internal_error", "fatal_error", "request_timeout", "service_unavailable"})
_MAY_PASS = frozenset({"ratelimited", "rate_limited"})


def quiet_logger() -> logging.Logger:
    """The library logs requests with their texts, and traces with addresses that hold a ticket."""
    logger = logging.getLogger("holdfast.slack")
    logger.propagate, logger.handlers = False, [logging.NullHandler()]
    logger.setLevel(logging.CRITICAL)
    return logger


class SlackApi:
    """
    `NotDelivered`: the request certainly had no effect. `DeliveryInDoubt`: nobody knows.
    """

    def __init__(self, token: str, *, api: str = API) -> None:
        self._token, self._api = token, api
        self._client: AsyncWebClient | None = None

    @property
    def client(self) -> "AsyncWebClient":
        from slack_sdk.web.async_client import AsyncWebClient

        if self._client is None:
            self._client = AsyncWebClient(
                self._token,
                base_url=self._api,
                timeout=REQUEST_SECONDS,
                retry_handlers=[],
                logger=quiet_logger(),
            )
        return self._client

    async def call(self, method: str, **fields: Any) -> dict[str, Any]:
        import aiohttp
        from slack_sdk.errors import SlackApiError, SlackClientError

        body = {name: value for name, value in fields.items() if value is not None}
        try:
            # Methods that read take parameters, and those that write take JSON.
            if method.startswith("chat."):
                answer = await self.client.api_call(method, json=body)
            else:
                answer = await self.client.api_call(method, params=body)
        except SlackApiError as exc:
            raise _error(exc.response) from None
        except aiohttp.ClientConnectorError as exc:
            raise NotDelivered(
                f"no connection to Slack: {exc.os_error.strerror or 'refused'}", may_pass=True
            ) from None
        except (TimeoutError, aiohttp.ClientError, SlackClientError, OSError) as exc:
            raise DeliveryInDoubt(f"Slack gave no answer: {type(exc).__name__}") from None
        data = answer.data
        return data if isinstance(data, dict) else {}


def _error(response: Any) -> NotDelivered | DeliveryInDoubt:
    """`response` is the library's, or aiohttp's own where the body was not JSON."""
    status = int(getattr(response, "status_code", getattr(response, "status", 0)))
    data = getattr(response, "data", None)
    code = str(data.get("error", "no reason"))[:100] if isinstance(data, dict) else "no reason"
    text = f"Slack answered {status}: {code}"
    if status == _TOO_MANY or code in _MAY_PASS:
        wait = str(response.headers.get("Retry-After", "1"))
        return NotDelivered(
            text, may_pass=True, wait_seconds=float(wait) if wait.isdecimal() else 1.0
        )
    if status >= _SERVER or code in _UNSURE or not isinstance(data, dict):
        return DeliveryInDoubt(text)
    return NotDelivered(text, may_pass=False)
