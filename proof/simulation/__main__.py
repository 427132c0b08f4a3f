"""Endless seeded faults: `python -m proof.simulation --help`."""

import sys

from proof.simulation.command import main

sys.exit(main())
