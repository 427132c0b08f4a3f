"""Tools that are known by their JSON schema alone. Other code runs them, never this folder."""
