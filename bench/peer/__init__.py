"""Peers: each file runs in the peers' environment, and imports nothing of ours."""
