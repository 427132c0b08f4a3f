"""Channels that deliver messages to people: see `holdfast.ports.delivery`."""
