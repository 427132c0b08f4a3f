"""Our numbers, as ratios of one run on one machine."""
