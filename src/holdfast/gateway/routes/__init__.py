"""One module per resource: its handlers, and its routes with their scopes and types."""
