"""The home's own files: keys, journal, registry, seal, reserve, backup."""
