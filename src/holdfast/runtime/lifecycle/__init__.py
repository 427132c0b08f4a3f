"""New instances of sessions and their end: unseal, fork, restore, import, export, delete, prune."""
