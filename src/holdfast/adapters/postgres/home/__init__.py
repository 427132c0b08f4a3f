"""The home in the database and this node's folder: creation, start, registry, keys and anchors."""
