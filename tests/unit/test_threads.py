"""How a thread's report reaches the task that waits for it."""

import asyncio
import threading

import pytest

from holdfast.threads import Completion, LoopWaker, ThreadPool


def report_from_thread(completion: Completion) -> None:
    thread = threading.Thread(target=completion.report)
    thread.start()
    thread.join()


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def wait_for(completion: Completion, seen: list[object]) -> None:
    try:
        await completion
    except asyncio.CancelledError as exc:
        seen.append(exc)
        raise
    seen.append("reported")


def test_a_task_goes_on_when_a_thread_reports() -> None:
    async def main() -> list[object]:
        completion, seen = Completion(), list[object]()
        task = asyncio.ensure_future(wait_for(completion, seen))
        await rounds(3)
        assert seen == []
        report_from_thread(completion)
        await task
        return seen

    assert asyncio.run(main()) == ["reported"]


def test_a_completion_that_was_reported_before_is_not_waited_for() -> None:
    async def main() -> None:
        here = Completion()
        here.report()
        await here
        elsewhere = Completion()
        report_from_thread(elsewhere)
        await rounds(3)
        await elsewhere

    asyncio.run(main())


def test_a_report_from_the_loops_own_thread_does_not_step_into_another_task() -> None:
    """Two tasks in one thread: the one that reports is in the middle of its own step."""

    async def main() -> list[object]:
        completion, seen = Completion(), list[object]()
        task = asyncio.ensure_future(wait_for(completion, seen))
        await rounds(1)
        completion.report()
        assert seen == []
        await task
        return seen

    assert asyncio.run(main()) == ["reported"]


@pytest.mark.parametrize("times", [1, 3])
def test_a_cancellation_waits_for_the_report_and_is_raised_once(times: int) -> None:
    async def main() -> list[object]:
        completion, seen = Completion(), list[object]()
        task = asyncio.ensure_future(wait_for(completion, seen))
        await rounds(1)
        for _ in range(times):
            assert task.cancel()
            await rounds(2)
        assert (task.done(), seen) == (False, [])
        report_from_thread(completion)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        return seen

    assert [type(each) for each in asyncio.run(main())] == [asyncio.CancelledError]


def test_a_timeout_waits_for_the_report_and_is_raised_then() -> None:
    async def main() -> None:
        completion = Completion()
        asyncio.get_running_loop().call_later(0.05, report_from_thread, completion)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await completion
        assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_thread_that_reports_at_once_runs_in_the_tasks_own_context() -> None:
    async def main() -> str:
        pool = ThreadPool(1, "test")
        try:
            await pool.call_to_end(lambda: None)
            return asyncio.current_task().get_name()  # type: ignore[union-attr]
        finally:
            pool.stop()

    async def named() -> str:
        return await asyncio.create_task(main(), name="this one")

    assert asyncio.run(named()) == "this one"


def test_a_callback_that_raises_keeps_no_other_from_the_loop() -> None:
    """Ctrl-C may arrive in any of them."""

    def stops() -> None:
        raise KeyboardInterrupt

    loop, called = asyncio.new_event_loop(), list[str]()
    try:
        waker = LoopWaker(loop)
        waker.wake(stops)
        waker.wake(lambda: called.append("the next one"))
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        loop.call_soon(loop.stop)
        loop.run_forever()
    finally:
        loop.close()
    assert called == ["the next one"]
