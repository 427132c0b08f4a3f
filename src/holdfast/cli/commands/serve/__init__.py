"""`holdfast serve`: the gateway, its one-time codes, and a unit to run it under its own user."""

from holdfast.cli.commands.serve.command import register as register
