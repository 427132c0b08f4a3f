"""`holdfast chat`: a conversation in the terminal, with inline approval."""

from holdfast.cli.commands.chat.command import register as register
