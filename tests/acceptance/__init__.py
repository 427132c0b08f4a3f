"""Tests of the three entry points, as users meet them."""
