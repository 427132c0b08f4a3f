"""LangGraph with its PostgreSQL saver, on the server whose address BENCH_POSTGRES has."""

import asyncio
import json
import os

from langgraph_graph import crowd, go_on, graph, park, talk, turns
from work import PARKED, asked, imported, main

ADDRESS = os.environ["BENCH_POSTGRES"]
POOL = 16  # connections that 64 tasks share


def imports():
    import langgraph.checkpoint.postgres
    import langgraph.checkpoint.postgres.aio
    import langgraph.graph
    import langgraph.types  # noqa: F401
    import psycopg_pool  # noqa: F401


def work(_folder):
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(_database("talk")) as saver:
        saver.setup()
        found = talk(saver)
        found["durability"] = _durability(saver.conn)
    found["many"] = asyncio.run(_many(_database("many")))
    with PostgresSaver.from_conn_string(_database("parked")) as saver:
        saver.setup()
        before = _size(saver.conn)
        found |= park(saver)
        found["parked_bytes"] = (_size(saver.conn) - before) / PARKED
    return found


async def _many(address):
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    settings = {
        "autocommit": True,
        "prepare_threshold": 0,
        "row_factory": dict_row,
    }  # as the saver's own from_conn_string has them
    async with AsyncConnectionPool(
        address, min_size=POOL, max_size=POOL, kwargs=settings, timeout=120
    ) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        return await crowd(saver)


def resume(_folder):
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(f"{ADDRESS} dbname=parked") as saver:
        go_on(saver)


def _database(name):
    import psycopg

    with psycopg.connect(f"{ADDRESS} dbname=postgres", autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    return f"{ADDRESS} dbname={name}"


def _size(db):
    return next(
        iter(db.execute("SELECT pg_database_size(current_database()) AS bytes").fetchone().values())
    )


def _durability(db):
    """As the server itself has it, not as it was asked to."""
    told = {
        name: next(iter(db.execute(f"SHOW {name}").fetchone().values()))
        for name in ("server_version", "synchronous_commit", "fsync")
    }
    version = told["server_version"].split()[0]
    return f"PostgreSQL {version} on a Unix socket, synchronous_commit={told['synchronous_commit']}, fsync={told['fsync']}; a commit at every step of the graph"


def turns_alone():
    """For a run that has its own server: `python bench/peer/langgraph_postgres.py turns FOLDER`."""
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(_database("turns")) as saver:
        saver.setup()
        print(json.dumps({"turn": turns(graph(saver, ask=False))}), flush=True)


if __name__ == "__main__":
    imported(imports)
    if asked() == "turns":
        turns_alone()
    else:
        main(work, resume)
