"""LangGraph with its SQLite saver: a graph of a model and a tool over a list of messages."""

import asyncio
import time

from work import APPENDS, EACH, LENGTHS, PARKED, SESSIONS, TASKS, TEXT, TURN_LENGTHS, TURNS, imported, main, median_us, on_disk, pragmas, ran, timed


def imports():
    import langgraph.checkpoint.sqlite
    import langgraph.checkpoint.sqlite.aio
    import langgraph.graph
    import langgraph.types  # noqa: F401


def graph(saver, ask):
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.types import interrupt

    def model(state):
        last = state["messages"][-1]
        if last.type == "tool" or last.content != "look":
            return {"messages": [AIMessage("It is up, and has been up since the night before.")]}
        return {"messages": [AIMessage("", tool_calls=[{"name": "service_status", "args": {"service": "api"}, "id": "c1"}])]}

    def tool(_state):
        if ask and interrupt("may I?") != "yes":
            return {"messages": [ToolMessage("denied", tool_call_id="c1")]}
        ran()
        return {"messages": [ToolMessage("api is up", tool_call_id="c1")]}

    made = StateGraph(MessagesState)
    made.add_node("model", model)
    made.add_node("tool", tool)
    made.add_edge(START, "model")
    made.add_conditional_edges("model", lambda state: "tool" if getattr(state["messages"][-1], "tool_calls", None) else END)
    made.add_edge("tool", "model")
    return made.compile(checkpointer=saver)


def thread(name):
    return {"configurable": {"thread_id": name}}


def work(folder):
    import_seconds = imported(imports)
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.checkpoint.sqlite import SqliteSaver

    found = {"import": import_seconds, "append": {}, "turn": {}}
    path = str(folder / "langgraph.db")

    def messages(count):
        return [(HumanMessage if number % 2 == 0 else AIMessage)(TEXT) for number in range(count)]

    with SqliteSaver.from_conn_string(path) as saver:
        made = graph(saver, ask=False)
        for length in LENGTHS:
            name = thread(f"append{length}")
            made.update_state(name, {"messages": messages(length)}, as_node="model")
            times = APPENDS if length < 10_000 else 10
            seconds = [timed(lambda name=name: made.update_state(name, {"messages": [AIMessage(TEXT)]}, as_node="model")) for _ in range(times)]
            found["append"][length] = median_us(seconds)
        for length in TURN_LENGTHS:
            name = thread(f"turn{length}")
            made.update_state(name, {"messages": messages(length)}, as_node="model")
            look = {"messages": [HumanMessage("look")]}
            found["turn"][length] = median_us([timed(lambda name=name, look=look: made.invoke(look, name)) for _ in range(TURNS)])
        found["load"] = median_us([timed(lambda: made.get_state(thread("append1000")).values["messages"]) for _ in range(10)])
        found["durability"] = pragmas(path) + " (one sync a step)"
    found["many"] = asyncio.run(many(str(folder / "many.db")))
    parked = folder / "parked"
    parked.mkdir()
    with SqliteSaver.from_conn_string(str(parked / "p.db")) as saver:
        asking = graph(saver, ask=True)
        found["pause"] = median_us([timed(lambda n=n: asking.invoke({"messages": [HumanMessage("look")]}, thread(f"p{n}"))) for n in range(PARKED)])
        started = time.perf_counter()
        waiting = {
            each.config["configurable"]["thread_id"] for each in saver.list(None) if any(w[1] == "__interrupt__" for w in each.pending_writes or ())
        }
        assert len(waiting) == PARKED
        found["list"] = (time.perf_counter() - started) * 1e6
    found["parked_bytes"] = on_disk(parked) / PARKED
    return found


async def many(path):
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        made = graph(saver, ask=False)

        async def task(mine):
            for _ in range(EACH):
                for number in mine:
                    await made.aupdate_state(thread(f"s{number}"), {"messages": [AIMessage(TEXT)]}, as_node="model")

        started = time.perf_counter()
        await asyncio.gather(*(task(range(start, SESSIONS, TASKS)) for start in range(TASKS)))
        return SESSIONS * EACH / (time.perf_counter() - started)


def resume(folder):
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.types import Command

    with SqliteSaver.from_conn_string(str(folder / "parked" / "p.db")) as saver:
        graph(saver, ask=True).invoke(Command(resume="yes"), thread("p0"))


if __name__ == "__main__":
    main(work, resume)
