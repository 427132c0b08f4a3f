"""Simulations, properties, scenarios, conformance suites and golden journals."""
