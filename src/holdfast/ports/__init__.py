"""What the runtime needs of the world, as Protocols with their contract in prose."""
