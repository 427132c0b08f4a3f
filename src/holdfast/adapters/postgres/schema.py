"""
The schema of a home: numbered migrations, each applied once, with its SHA-256 in the database.

`pre` runs before the new program, `post` after the last old node has left. A node whose program
does not know the schema's version refuses to write.
"""

import hashlib
import re
from importlib import resources
from typing import NamedTuple

from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.server_errors import Lost
from holdfast.errors import Busy, Unusable

_NAME = re.compile(r"([0-9]{4})_(pre|post)_([a-z0-9_]+)\.sql\Z")
SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
# Any number: it only keeps two operators from migrating at once. The primary key decides.
_MIGRATION_LOCK = 7_410_551


class Migration(NamedTuple):
    version: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    folder = resources.files("holdfast.adapters.postgres") / "migrations"
    found = []
    for entry in folder.iterdir():
        match = _NAME.match(entry.name)
        if match:
            found.append(Migration(int(match[1]), entry.name, entry.read_text(encoding="utf-8")))
    return sorted(found)


def newest() -> int:
    return migrations()[-1].version


def check_name(schema: str) -> None:
    if not SCHEMA_NAME.match(schema) or schema.startswith("pg_"):
        raise Unusable(
            f"{schema!r} can't be the schema of a home",
            code="storage",
            hint="use small letters, digits and _, at most 63",
        )


def version(wire: Wire, schema: str) -> int:
    """Return the schema's version; 0 if there is none."""
    check_name(schema)
    (found,) = wire.rows("select to_regclass(%s) is not null", (f'"{schema}".schema_version',))
    if not found[0]:
        return 0
    checked_name = f'"{schema}".schema_version'
    (row,) = wire.rows(f"select coalesce(max(version), 0) from {checked_name}")  # noqa: S608  checked
    return int(row[0])


def check_version(wire: Wire, schema: str) -> None:
    """Refuse to write to a schema of another program."""
    found, ours = version(wire, schema), newest()
    if found == 0:
        raise Unusable(
            f"the database has no home in the schema {schema!r}",
            code="storage",
            hint="`holdfast storage init` makes one",
        )
    if found < ours:
        raise Unusable(
            f"the schema {schema!r} has version {found}; this program needs {ours}",
            code="storage",
            hint="`holdfast storage migrate`",
        )
    if found > ours:
        raise Unusable(
            f"the schema {schema!r} has version {found}; this program knows {ours}",
            code="newer_version",
            hint="upgrade Holdfast on this node",
        )


def migrate(wire: Wire, schema: str) -> list[str]:
    """Apply what is missing, each in one transaction; return the names."""
    check_name(schema)
    applied = []
    try:
        for each in migrations():
            with wire.transaction():
                wire.rows("select pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
                if version(wire, schema) >= each.version:
                    continue
                wire.script(
                    f'create schema if not exists "{schema}"; '
                    f'set local search_path to "{schema}", pg_temp; {each.text}; '
                    f'revoke all on all functions in schema "{schema}" from public'
                )
                wire.rows(
                    "insert into hf.schema_version (version, name, sha256) values (%s, %s, %s)",
                    (each.version, each.name, each.sha256),
                )
                applied.append(each.name)
        if applied and _has_role(wire, app_role(schema)):
            create_roles(wire, schema)  # what is new is granted too
    except Lost as exc:
        raise Busy(
            f"the connection was lost during a migration: {exc}",
            hint="`holdfast storage status` says what was applied; run it again",
        ) from exc
    return applied


def app_role(schema: str) -> str:
    return f"{schema}_app"


def create_roles(wire: Wire, schema: str) -> str:
    """
    Make the role that the node's login needs, and return its name. It reads, and it calls the
    functions; it can't insert, update, delete or truncate anything itself.
    """
    check_name(schema)
    role = app_role(schema)
    with wire.transaction():
        if not _has_role(wire, role):
            wire.script(f'create role "{role}" nologin')
        wire.script(
            f'grant usage on schema "{schema}" to "{role}"; '
            f'grant select on all tables in schema "{schema}" to "{role}"; '
            f'grant execute on all functions in schema "{schema}" to "{role}"'
        )
    return role


def _has_role(wire: Wire, role: str) -> bool:
    return wire.one("select 1 from pg_roles where rolname = %s", (role,)) is not None


def sql_text(schema: str) -> str:
    """Everything that `migrate` runs, for an operator who runs it otherwise."""
    check_name(schema)
    start = f'create schema if not exists "{schema}";\nset search_path to "{schema}", pg_temp;\n'
    end = f'revoke all on all functions in schema "{schema}" from public;\n'
    return "\n".join([start, *map(_applied_text, migrations()), end])


def _applied_text(each: Migration) -> str:
    values = f"({each.version}, '{each.name}', '{each.sha256}')"
    note = f"insert into schema_version (version, name, sha256) values {values};"  # noqa: S608  ours
    return f"-- {each.name}\n{each.text}\n{note}\n"
