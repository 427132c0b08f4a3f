"""Code of other languages in a command: what SQL, Python and the like delete or send."""

import re

from holdfast.session.authority.plan import RiskKind

DATABASE_CLIENTS = frozenset(
    {"psql", "mysql", "mariadb", "sqlite3", "sqlcmd", "cqlsh", "clickhouse-client", "duckdb", "bq"}
    | {"mongo", "mongosh", "snowsql", "usql", "pgcli", "mycli", "influx", "cockroach"}
)
_SQL_DELETES = re.compile(
    r"\b(drop\s+(table|database|schema|view|index|role|user|type|function|keyspace|owned|if)"
    r"|truncate\b|delete\s+from|alter\s+table\s.*\bdrop\b|update\s+\S+\s+set\b(?!.*\bwhere\b)"
    r"|dropdatabase|deletemany|deleteone|\.drop\(|\.remove\(|revoke\b|dropuser)",
    re.IGNORECASE | re.DOTALL,
)
_SQL_PRIVILEGE = re.compile(
    r"\b(grant\s+.+\s+to|create\s+(user|role)|alter\s+(user|role))\b", re.IGNORECASE
)
_CODE_DELETES = re.compile(
    r"rmtree|os\.(remove|unlink|rmdir|removedirs|truncate)|\.unlink\(|rm_rf|rm_r\b|File\.delete"
    r"|unlinkSync|rmSync|rmdirSync|fs\.(rm|unlink)|FileUtils\.rm|\bunlink\b|Remove-Item"
    r"|(?i:drop\s+(table|database)|delete\s+from)"
)
_CODE_SENDS = re.compile(
    r"requests\.(post|put|patch)|\.post\(|urlopen\([^)]*data|socket\.(socket|create_connection)"
    r"|http\.client|fetch\([^)]*(POST|PUT)|smtplib|LWP|Net::HTTP|/dev/tcp/"
)
_CODE_RUNS = re.compile(
    r"\b(eval|exec|compile|__import__)\s*\(|os\.(system|popen|exec)|subprocess|child_process"
    r"|\bsystem\s*\(|`[^`]+`|base64.*decode|b64decode|\|\s*getline|\bprintf?\b[^;}]*\|\s*\""
)


def sql_effects(text: str) -> list[tuple[RiskKind, str]]:
    """
    >>> [kind for kind, _ in sql_effects("DELETE FROM orders")]
    ['destructive']
    """
    found: list[tuple[RiskKind, str]] = []
    if _SQL_DELETES.search(text):
        found.append(("destructive", "deletes or overwrites data in a database."))
    if _SQL_PRIVILEGE.search(text):
        found.append(("privilege", "changes who may do what in the database."))
    return found


def code_effects(text: str) -> list[tuple[RiskKind, str]]:
    """
    >>> [kind for kind, _ in code_effects("import shutil; shutil.rmtree('x')")]
    ['destructive']
    """
    found: list[tuple[RiskKind, str]] = []
    if _CODE_DELETES.search(text):
        found.append(("destructive", "runs code that deletes files or data."))
    if _CODE_SENDS.search(text):
        found.append(("upload", "runs code that sends data to another machine."))
    if _CODE_RUNS.search(text):
        found.append(("runtime_code", "runs code that starts programs or builds code as it runs."))
    return found
