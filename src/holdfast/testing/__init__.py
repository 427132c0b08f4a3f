"""What ships for tests, ours and yours: the stores' conformance suite, a clock by hand, worlds to break things in."""
