"""Every parser, guided by coverage: `python -m proof.fuzz --help`."""

import sys

from proof.fuzz.command import main

sys.exit(main())
