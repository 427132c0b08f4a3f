"""Live text and records for followers. Hints are never history."""
