"""
Numbers of one process and its database for `GET /metrics`: appends, the connections that read, the
lease, notices.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore


def gauges_of(store: "PostgresStore") -> Mapping[str, tuple[str, float]]:
    lanes, readers, lease = store.lanes, store.readers, store.lease
    return {
        "storage_commits_total": (
            "Statements that appended, for any number of sessions.",
            sum(each.commits for each in lanes),
        ),
        "storage_appends_total": (
            "Appends that were acknowledged.",
            sum(each.appends for each in lanes),
        ),
        "storage_retries_total": (
            "Appends that were decided again because another writer was faster.",
            sum(each.retries for each in lanes),
        ),
        "storage_resolved_total": (
            "Statements whose answer was lost with the connection, and that were sent again.",
            store.resolved,
        ),
        "storage_in_doubt_total": (
            "Appends whose outcome is not known.",
            sum(each.in_doubt for each in lanes),
        ),
        "storage_fenced_total": (
            "Appends of a driver that had lost its claim.",
            sum(each.fenced for each in lanes),
        ),
        "storage_lane_waiting": (
            "Appends that wait for the next statement.",
            sum(each.waiting for each in lanes),
        ),
        "storage_connections": ("Connections that read now or did before.", readers.connections),
        "storage_reads_waiting": ("Reads under way, and those that wait.", readers.waiting),
        "storage_lease_seconds": (
            "How long this process may still drive without the database; 0 without a lease.",
            lease.seconds_left,
        ),
        "storage_claims": ("Sessions that this process may drive now.", len(store.held_claims)),
        "storage_notices_heard": (
            "1 if other processes wake this one, 0 if it looks once a second.",
            float(store.notices.hears),
        ),
    }
