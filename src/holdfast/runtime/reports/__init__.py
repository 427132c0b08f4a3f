"""The values that people and programs are shown, computed from state and journal."""
