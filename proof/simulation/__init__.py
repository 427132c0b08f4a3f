"""Seeded simulations of a session and of a whole home under faults."""
