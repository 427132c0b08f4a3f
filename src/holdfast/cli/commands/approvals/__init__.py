"""`holdfast approvals`: list, show and answer the prompts that wait."""

from holdfast.cli.commands.approvals.list_show import register as register
