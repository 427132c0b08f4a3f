"""The world: what keeps the ports' contracts. Never imports the runtime or the gateway."""
