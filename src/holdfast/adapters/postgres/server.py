"""
The way to the server: connections and their statements.

A connection is used by one thread, with autocommit, and has no state of its own. Every error of the
driver is translated by `server_errors`, once.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.adapters.postgres import silence
from holdfast.adapters.postgres.server_errors import (
    Lost,
    first_line,
    translated,
    unreachable,
)
from holdfast.errors import InDoubt, Unusable, install_hint

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 10  # a dead address is reported, not waited for
LOCK_WAIT_MS = 10_000  # as over files: then Busy
IDLE_MS = 5_000  # a process that is stopped while it holds a row keeps others no longer
_SQLSTATE = ord("C")  # libpq's PG_DIAG_SQLSTATE
_NOT_PREPARED = b"26000"
STATEMENT_MS = 60_000  # longer than any statement of ours; a stuck server is then reported


class DatabaseAddress(NamedTuple):
    """Where a home is: the address without a password, and the schema."""

    url: str
    schema: str
    allow_plaintext: bool = False
    listen_url: str | None = None  # the server itself, where `url` is a pooler

    @property
    def name(self) -> str:
        return f"postgres:{self.schema}"

    @property
    def direct(self) -> "DatabaseAddress":
        """The same home past a pooler."""
        return self._replace(url=self.listen_url or self.url)


def connect(place: DatabaseAddress) -> "Wire":
    """Connect, or raise Busy or Unusable with the cause and the next step. Writes nothing."""
    psycopg = driver()
    options = _protected(place) | _noticing_loss(place)
    try:
        connection = psycopg.connect(
            place.url,
            **options,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            application_name="holdfast",
            prepare_threshold=1,
        )
    except psycopg.ProgrammingError as exc:
        raise Unusable(
            f"[storage] url is not a PostgreSQL address: {first_line(exc)}",
            code="storage",
            hint='it looks like "postgresql:///holdfast?host=/run/postgresql"',
        ) from exc
    except psycopg.OperationalError as exc:
        raise unreachable(exc) from exc
    try:
        is_pooled = _is_pooled(connection)
        if is_pooled:
            connection.prepare_threshold = None  # the next statement may meet another process
        else:
            _set_bounds(connection)
    except psycopg.Error as exc:
        error = translated(exc, connection)
        connection.close()
        # Nothing was asked yet, so a connection that is lost here leaves nothing open.
        raise (unreachable(exc) if isinstance(error, Lost) else error) from exc
    return Wire(connection, place.schema, is_pooled=is_pooled)


def _is_pooled(connection: Any) -> bool:
    """A pooler names itself in the handshake, and another process answers the statement."""
    (pid,) = connection.execute("select pg_backend_pid()", prepare=False).fetchone()
    return bool(pid != connection.info.backend_pid)


def _set_bounds(connection: Any) -> None:
    """Through a pooler nothing is set: it would be set for others. Functions bound themselves."""
    connection.execute(
        "select set_config('lock_timeout', %s, false), "
        "set_config('statement_timeout', %s, false), "
        "set_config('idle_in_transaction_session_timeout', %s, false)",
        (str(LOCK_WAIT_MS), str(STATEMENT_MS), str(IDLE_MS)),
        prepare=False,
    )


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def _protected(place: DatabaseAddress) -> dict[str, str]:
    """
    Require TLS with a checked name, except for sockets and loopback. A password in the settings is
    refused: libpq has better places for it.
    """
    psycopg = driver()
    try:
        named = psycopg.conninfo.conninfo_to_dict(place.url)
    except psycopg.ProgrammingError:
        return {}  # connecting says what is wrong with it
    if named.get("password"):
        raise Unusable(
            "[storage] url has a password in it",
            code="storage",
            hint="keep it in ~/.pgpass (0600) or a service file, and take it out of holdfast.toml",
        )
    hosts = [each for each in str(named.get("host") or "").split(",") if each]
    is_local = all(each.startswith(("/", "@")) or each in _LOOPBACK for each in hosts)
    if is_local or place.allow_plaintext or named.get("service"):
        return {}
    if "sslmode" not in named:
        return {"sslmode": "verify-full"}
    if named["sslmode"] != "verify-full":
        raise Unusable(
            f"[storage] url has sslmode={named['sslmode']}, which does not check the server's name",
            code="storage",
            hint="use sslmode=verify-full, or set storage.allow_plaintext = true in a network that "
            "only you can read",
        )
    return {}


# A machine that lost its power says nothing. The kernel asks it after ten seconds of silence, and
# gives an unanswered statement up after fifteen; by default it would take hours.
_NOTICING = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "tcp_user_timeout": "15000",
}


def _noticing_loss(place: DatabaseAddress) -> dict[str, str]:
    """Settings of the connection that the address does not name itself."""
    psycopg = driver()
    try:
        named = psycopg.conninfo.conninfo_to_dict(place.url)
    except psycopg.ProgrammingError:
        return {}  # connecting says what is wrong with it
    return {name: value for name, value in _NOTICING.items() if name not in named}


class PreparedStatement(NamedTuple):
    """A statement of ours, and the types of its values. `$1` is the first."""

    name: str
    sql: str
    types: tuple[int, ...]


class Wire:
    """One connection. Only one thread uses it at a time."""

    def __init__(
        self, connection: "psycopg.Connection[Any]", schema: str, *, is_pooled: bool
    ) -> None:
        self._connection = connection
        self._schema = schema
        self.is_pooled = is_pooled
        self._not_replicated: str | None = None
        self._used: set[PreparedStatement] = set()
        self._prepared: set[PreparedStatement] = set()
        connection.add_notice_handler(self._hear)

    def _hear(self, notice: Any) -> None:
        # The server reports success for a commit whose wait for the standby was cancelled, with
        # this warning alone.
        text = notice.message_primary or ""
        if notice.sqlstate == "01000" and "synchronous replication" in text:
            self._not_replicated = text

    def rows(
        self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        """
        Run one statement and return its rows. Raise our errors, or `Lost`. In the text, `hf.`
        stands for the home's schema: a search path does not survive a pooler.
        """
        psycopg = driver()
        self._not_replicated = None
        silence.begin(self._connection)
        try:
            found = self._connection.execute(_qualified(sql, self._schema), values, binary=True)
            rows = found.fetchall() if found.description is not None else []
        except psycopg.Error as exc:
            raise translated(exc, self._connection) from exc
        finally:
            silence.end(self._connection)
        self._check_replicated()
        return rows

    def _check_replicated(self) -> None:
        if self._not_replicated is not None:
            raise InDoubt(
                f"it is written, and no standby has it: {self._not_replicated}",
                hint="reopen the session",
            )

    def ask(
        self, statement: PreparedStatement, values: Sequence[bytes | None]
    ) -> list[bytes | None]:
        """Run one statement that returns one row, as `ask_rows` does."""
        return self.ask_rows(statement, values)[0]

    def ask_rows(
        self, statement: PreparedStatement, values: Sequence[bytes | None]
    ) -> list[list[bytes | None]]:
        """
        Run one statement and return its rows. Values and rows are in the server's binary format:
        the driver's own way costs as much as everything else that an append does in the node. Raise
        as `rows` does.
        """
        psycopg = driver()
        self._not_replicated = None
        silence.begin(self._connection)
        try:
            result = self._executed(statement, values)
            if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
                raise psycopg.errors.error_from_result(result)
        except psycopg.Error as exc:
            raise translated(exc, self._connection) from exc
        except MemoryError as exc:  # the driver's word for a connection that takes no statement
            raise Lost("the connection takes no statement") from exc
        finally:
            silence.end(self._connection)
        self._check_replicated()
        columns = range(result.nfields)
        return [
            [result.get_value(row, column) for column in columns] for row in range(result.ntuples)
        ]

    def _executed(self, statement: PreparedStatement, values: Sequence[bytes | None]) -> Any:
        """
        The second use prepares the statement: a short command would pay for more than it gets back.
        Through a pooler nothing is prepared, since the next statement may meet another process. In
        a transaction neither, since the driver forgets all of them after one that failed.
        """
        server: Any = self._connection.pgconn
        binary = [1] * len(values)
        is_first = statement not in self._used
        if is_first or self.is_pooled or self.is_in_transaction:
            self._used.add(statement)
            sql = _qualified(statement.sql, self._schema).encode()
            return server.exec_params(sql, values, statement.types, binary, 1)
        name = statement.name.encode()
        if statement in self._prepared:
            result = server.exec_prepared(name, values, binary, 1)
            if result.error_field(_SQLSTATE) != _NOT_PREPARED:
                return result
        sql = _qualified(statement.sql, self._schema).encode()
        result = server.prepare(name, sql, statement.types)
        if result.error_field(_SQLSTATE) is not None:
            return result
        self._prepared.add(statement)
        return server.exec_prepared(name, values, binary, 1)

    def script(self, sql: str) -> None:
        """Run several statements of ours without values."""
        psycopg = driver()
        try:
            self._connection.execute(sql)
        except psycopg.Error as exc:
            raise translated(exc, self._connection) from exc

    def one(self, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        found = self.rows(sql, values)
        return found[0] if found else None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Several statements, kept together. `Lost` here may mean that they were kept."""
        psycopg = driver()
        try:
            with self._connection.transaction():
                yield
                silence.begin(self._connection)  # the commit comes now
        except psycopg.Error as exc:
            raise translated(exc, self._connection) from exc
        finally:
            silence.end(self._connection)

    # --- Notices

    def listen(self, channel: str) -> None:
        self.script(f'listen "{channel}"')

    def take_notices(self) -> list[tuple[bool, str]]:
        """Return what has arrived, without waiting: whether it is our own, and its text."""
        psycopg = driver()
        own = self._connection.info.backend_pid
        try:
            found = list(self._connection.notifies(timeout=0))
        except psycopg.Error as exc:
            raise translated(exc, self._connection) from exc
        return [(each.pid == own, each.payload) for each in found]

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def is_in_transaction(self) -> bool:
        return bool(self._connection.info.transaction_status)

    @property
    def is_usable(self) -> bool:
        return not (self._connection.closed or self._connection.broken)

    def close(self) -> None:
        self._connection.close()


@functools.cache
def _qualified(sql: str, schema: str) -> str:
    return sql.replace("hf.", f'"{schema}".')


def driver() -> Any:
    try:
        import psycopg
    except ImportError as exc:
        raise Unusable(
            "[storage] names PostgreSQL, and psycopg is not installed",
            code="storage",
            hint=install_hint("postgres"),
        ) from exc
    return psycopg
