"""Ids that nobody can guess: minted at the rim, and journalled before they mean anything."""

import base64
import secrets

from holdfast.ids import InstanceId


def new_instance() -> InstanceId:
    """130 bits that nobody can guess: one life of a session."""
    return InstanceId(base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26])
