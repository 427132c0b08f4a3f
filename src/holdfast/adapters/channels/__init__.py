"""Ways out to people: see `holdfast.ports.delivery`."""
