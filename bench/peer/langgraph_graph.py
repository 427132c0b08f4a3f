"""
LangGraph, whatever saver it has: a graph of a model and a tool over a list of messages, and the
work done with it.
"""

import time

from work import (
    APPENDS,
    LENGTHS,
    LOADS,
    PARKED,
    TEXT,
    TURN_LENGTHS,
    TURNS,
    many,
    median_us,
    ran,
    timed,
)


def graph(saver, ask):
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.types import interrupt

    def model(state):
        last = state["messages"][-1]
        if last.type == "tool" or last.content != "look":
            return {"messages": [AIMessage("It is up, and has been up since the night before.")]}
        return {
            "messages": [
                AIMessage(
                    "",
                    tool_calls=[{"name": "service_status", "args": {"service": "api"}, "id": "c1"}],
                )
            ]
        }

    def tool(_state):
        if ask and interrupt("may I?") != "yes":
            return {"messages": [ToolMessage("denied", tool_call_id="c1")]}
        ran()
        return {"messages": [ToolMessage("api is up", tool_call_id="c1")]}

    made = StateGraph(MessagesState)
    made.add_node("model", model)
    made.add_node("tool", tool)
    made.add_edge(START, "model")
    made.add_conditional_edges(
        "model", lambda state: "tool" if getattr(state["messages"][-1], "tool_calls", None) else END
    )
    made.add_edge("tool", "model")
    return made.compile(checkpointer=saver)


def thread(name):
    return {"configurable": {"thread_id": name}}


def talk(saver):
    """Appends, turns and loads."""
    from langchain_core.messages import AIMessage

    found = {"append": {}}
    made = graph(saver, ask=False)

    for length in LENGTHS:
        name = filled(made, f"append{length}", length)
        times = APPENDS if length < 10_000 else 10  # each takes a good part of a second there
        seconds = [
            timed(
                lambda name=name: made.update_state(
                    name, {"messages": [AIMessage(TEXT)]}, as_node="model"
                )
            )
            for _ in range(times)
        ]
        found["append"][length] = median_us(seconds)
    found["turn"] = turns(made)
    found["load"] = median_us(
        [
            timed(lambda: made.get_state(thread("append1000")).values["messages"])
            for _ in range(LOADS)
        ]
    )
    return found


def filled(made, name, length):
    from langchain_core.messages import AIMessage, HumanMessage

    said = [(HumanMessage if number % 2 == 0 else AIMessage)(TEXT) for number in range(length)]
    made.update_state(thread(name), {"messages": said}, as_node="model")
    return thread(name)


def turns(made):
    """Microseconds of a turn with one tool call, by the number of messages before it."""
    from langchain_core.messages import HumanMessage

    found = {}
    for length in TURN_LENGTHS:
        name = filled(made, f"turn{length}", length)
        look = {"messages": [HumanMessage("look")]}
        found[length] = median_us(
            [timed(lambda name=name, look=look: made.invoke(look, name)) for _ in range(TURNS)]
        )
    return found


def park(saver):
    """Pauses, and a list of what waits: the saver knows the pending writes of every thread."""
    from langchain_core.messages import HumanMessage

    asking = graph(saver, ask=True)
    found = {
        "pause": median_us(
            [
                timed(
                    lambda n=n: asking.invoke({"messages": [HumanMessage("look")]}, thread(f"p{n}"))
                )
                for n in range(PARKED)
            ]
        )
    }
    started = time.perf_counter()
    waiting = {
        each.config["configurable"]["thread_id"]
        for each in saver.list(None)
        if any(w[1] == "__interrupt__" for w in each.pending_writes or ())
    }
    assert len(waiting) == PARKED
    found["list"] = (time.perf_counter() - started) * 1e6
    return found


async def crowd(saver):
    from langchain_core.messages import AIMessage

    made = graph(saver, ask=False)

    async def append(number):
        await made.aupdate_state(
            thread(f"s{number}"), {"messages": [AIMessage(TEXT)]}, as_node="model"
        )

    return await many(append)


def go_on(saver):
    from langgraph.types import Command

    graph(saver, ask=True).invoke(Command(resume="yes"), thread("p0"))
