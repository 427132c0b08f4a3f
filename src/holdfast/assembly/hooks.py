"""From `[hooks]` to the webhooks that a server receives."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.errors import Unusable
from holdfast.settings import Settings
from holdfast.webhook_signature import secret_bytes

if TYPE_CHECKING:
    from holdfast.gateway.server.inbound_hook import InboundHook


def inbound_hooks(settings: Settings) -> "Mapping[str, InboundHook]":
    """Raise `Unusable` for a webhook whose secret is missing or not usable."""
    from holdfast.gateway.server.inbound_hook import InboundHook

    return {
        name: InboundHook(
            keys=webhook_keys(f"[hooks.{name}]", hook.secret_env),
            person=hook.person,
            session=hook.session or f"hooks/{name}",
            text=hook.text or f"The webhook {name} arrived. Its body is quoted.",
            agent=hook.agent,
            team=hook.team,
        )
        for name, hook in settings.hooks.items()
    }


def webhook_keys(place: str, variable: str) -> tuple[bytes, ...]:
    """The keys in a variable: one, or two with a space between them while a key is changed."""
    value = os.environ.get(variable, "")
    keys = [secret_bytes(each) for each in value.split()]
    if not keys or any(key is None for key in keys):
        state = "is not set" if not value else "does not hold a secret of Standard Webhooks"
        raise Unusable(
            f"{place}: {variable} {state}",
            code="no_key",
            hint=f"set {variable} to whsec_ and 32 random bytes in base64: "
            'printf "whsec_%s" "$(head -c 32 /dev/urandom | base64)"',
        )
    return tuple(key for key in keys if key is not None)
