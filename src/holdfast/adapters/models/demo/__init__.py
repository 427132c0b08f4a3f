"""The offline demo model."""
