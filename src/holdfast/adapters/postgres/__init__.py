"""
A home in PostgreSQL: rows hold the stored lines, and the node's folder holds keys and anchors.

Safety needs one row lock, one unique key and one comparison. Nothing that a row says is believed
before its line verifies here.
"""

from holdfast.adapters.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
