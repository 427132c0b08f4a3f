"""`holdfast approvals`: list, show and answer the open prompts."""

from holdfast.cli.commands.approvals.list_show import register as register
