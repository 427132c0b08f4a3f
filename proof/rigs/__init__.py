"""Homes and peer processes that the proofs run on."""
