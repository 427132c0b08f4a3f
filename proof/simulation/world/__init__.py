"""The simulated world: people, models, tools, jobs, memory, ports."""
