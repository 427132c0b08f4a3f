"""`holdfast config`: the settings, their problems, and the rule that decides a call."""

from holdfast.cli.commands.config.command import problems_of as problems_of
from holdfast.cli.commands.config.command import register as register
from holdfast.cli.commands.config.command import sections_of as sections_of
