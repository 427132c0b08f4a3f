"""Unguessable ids: created outside the core, and journalled before they mean anything."""

import base64
import secrets
from collections.abc import Callable

from holdfast.ids import InstanceId

RandomBytes = Callable[[int], bytes]


def new_instance(random_bytes: RandomBytes = secrets.token_bytes) -> InstanceId:
    """130 unguessable bits: one instance of a session."""
    return InstanceId(base64.b32encode(random_bytes(17)).decode().lower()[:26])
