"""Slack over its Web API, with events over a socket or over signed HTTP."""
