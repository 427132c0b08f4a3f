"""The shell tool: parsing, confinement, launcher, processes."""
