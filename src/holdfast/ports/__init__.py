"""The interfaces that the runtime needs, as Protocols with their contract in prose."""
