"""Agents that another agent calls: their commands and their events."""
