"""`holdfast channels`: the chats of holdfast.toml, whether each can be used, and who is known."""

from holdfast.cli.commands.channels.command import register as register
