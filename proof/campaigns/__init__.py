"""Fault campaigns over real processes: kills, failing and lying system calls."""
