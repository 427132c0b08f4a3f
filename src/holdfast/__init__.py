"""A durable, fail-closed session runtime for AI agents."""
