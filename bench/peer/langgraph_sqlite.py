"""LangGraph with its SQLite saver."""

import asyncio

from langgraph_graph import crowd, go_on, park, talk
from work import PARKED, imported, main, on_disk, pragmas


def imports():
    import langgraph.checkpoint.sqlite
    import langgraph.checkpoint.sqlite.aio
    import langgraph.graph
    import langgraph.types  # noqa: F401


def work(folder):
    from langgraph.checkpoint.sqlite import SqliteSaver

    path = str(folder / "langgraph.db")
    with SqliteSaver.from_conn_string(path) as saver:
        found = talk(saver)
    found["many"] = asyncio.run(_many(str(folder / "many.db")))
    parked = folder / "parked"
    parked.mkdir()
    with SqliteSaver.from_conn_string(str(parked / "p.db")) as saver:
        found |= park(saver)
    found["parked_bytes"] = on_disk(parked) / PARKED
    found["durability"] = pragmas(path) + "; a sync at every step of the graph"
    return found


async def _many(path):
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        return await crowd(saver)


def resume(folder):
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(folder / "parked" / "p.db")) as saver:
        go_on(saver)


if __name__ == "__main__":
    imported(imports)
    main(work, resume)
