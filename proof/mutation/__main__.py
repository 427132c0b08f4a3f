"""Mutants, and the tests that notice them: `python -m proof.mutation --help`."""

import sys

from proof.mutation.command import main

sys.exit(main())
