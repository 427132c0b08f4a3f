"""
The facts of a server: settings that keep the promises, and the history that a node knows it by.
"""

from typing import NamedTuple

from holdfast.adapters.postgres.server import Wire
from holdfast.errors import ReadOnly, Unusable

OLDEST_VERSION = 140000


class ServerFacts(NamedTuple):
    """
    The facts by which a node knows that this is the server that it knew. `lsn` is synced: a crash
    takes back what is only written, and that is not a loss.
    """

    system: str
    timeline: str
    lsn: int

    @property
    def history(self) -> str:
        return f"{self.system}/{self.timeline}"


def check_server(wire: Wire) -> ServerFacts:
    """Refuse a server that can't keep the promises. Return its facts."""
    (settings,) = wire.rows(
        "select current_setting('server_version_num')::int, current_setting('fsync'), "
        "current_setting('full_page_writes'), current_setting('synchronous_commit'), "
        "pg_is_in_recovery(), getdatabaseencoding()::text, current_setting('transaction_read_only')"
    )
    _refuse(ServerSettings(*settings))
    (facts,) = wire.rows(
        "select (select system_identifier from pg_control_system())::text, "
        "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), "
        "pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint"
    )
    return ServerFacts(*facts)


class ServerSettings(NamedTuple):
    version: int
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    is_recovering: bool
    encoding: str
    read_only: str


def _refuse(found: ServerSettings) -> None:
    if found.version < OLDEST_VERSION:
        raise Unusable(
            f"PostgreSQL {found.version // 10000} is too old",
            code="storage",
            hint="14 is the oldest that is supported",
        )
    if found.is_recovering:
        raise ReadOnly(
            "this server is a standby and takes no writes",
            hint="name the primary in [storage] url, or add target_session_attrs=read-write",
        )
    if found.read_only == "on":
        raise ReadOnly(
            "this login may only read: default_transaction_read_only is on for it",
            hint="alter role LOGIN reset default_transaction_read_only, or look at the database's "
            "and the server's settings",
        )
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        if getattr(found, name) == "off":
            raise Unusable(
                f"{name} is off on this server, so nothing would be durable",
                code="storage",
                hint=f"set {name} = on",
            )
    if found.encoding != "UTF8":
        raise Unusable(
            f"the database is encoded as {found.encoding}",
            code="storage",
            hint="make one with encoding UTF8",
        )
