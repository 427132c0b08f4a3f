"""`holdfast doctor`: check the machine, the home and its sessions, and say what to do next."""

from holdfast.cli.commands.doctor.command import register as register
