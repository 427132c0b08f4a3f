"""`holdfast demo`: the story in one minute, with a real kill -9 of a real process."""

from holdfast.cli.commands.demo.command import register as register
