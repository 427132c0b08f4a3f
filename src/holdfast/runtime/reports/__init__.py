"""Reports for people and programs, computed from state and journal."""
