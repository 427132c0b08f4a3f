"""Recall for a turn, and the operator's view of memory."""
