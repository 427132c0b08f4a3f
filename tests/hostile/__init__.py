"""Tests that attack: crashes, faults, foreign writers, hostile input."""
