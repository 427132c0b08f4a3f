"""Tests of adapters against the real disk, processes and models."""
