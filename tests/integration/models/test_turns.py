"""Turns: so many calls at once, so many a minute, in the order of their arrival."""

import asyncio

import pytest

from host_service.errors import Overloaded
from host_service.models.answers import Question
from host_service.models.turns import Turns
from tests.integration.models.asking import Asking
from tests.integration.models.torture_server import Reply, Request, TortureServer, said

CALLS = 20


async def test_no_more_calls_at_once_than_may_be(server: TortureServer, asking: Asking) -> None:
    asking.change("chat", max_concurrency=3)
    gates = [asyncio.Event() for _ in range(CALLS)]
    order: list[int] = []

    def reply(request: Request) -> Reply:
        number = int(request.body["messages"][0]["content"])
        order.append(number)
        return said(str(number), until=gates[number])

    server.answer(reply)
    calls = []
    for number in range(CALLS):
        calls.append(asyncio.create_task(asking.ask(Question.of_text(str(number)))))
        # In line one after the other: that is what order means.
        await asyncio.sleep(0)
    for number in range(CALLS):
        await server.arrived(min(number + 3, CALLS))
        assert len(server.requests) == min(number + 3, CALLS)
        gates[order[number]].set()
        await calls[order[number]]
    assert server.most_at_once == 3
    # The first three may reach the server in any order; nobody else overtakes.
    assert sorted(order[:3]) + order[3:] == list(range(CALLS))


async def test_who_is_cancelled_in_the_line_leaves_it(
    server: TortureServer, asking: Asking
) -> None:
    asking.change("chat", max_concurrency=1)
    go = asyncio.Event()
    server.answer(said("first", until=go), said("third"))
    first = asyncio.create_task(asking.ask())
    await server.arrived()
    second, third = (asyncio.create_task(asking.ask()) for _ in range(2))
    await asyncio.sleep(0)
    second.cancel()
    go.set()
    assert [(await each).text for each in (first, third)] == ["first", "third"]
    assert len(server.requests) == 2


async def test_failed_call_gives_its_place_back(server: TortureServer, asking: Asking) -> None:
    asking.change("chat", max_concurrency=1)
    server.answer(Reply(status=400), said("next"))
    await asking.refusal()
    assert (await asking.ask()).text == "next"


async def test_line_has_an_end(server: TortureServer, asking: Asking) -> None:
    asking.limit(model_waiting_calls=1)
    asking.change("chat", max_concurrency=1)
    go = asyncio.Event()
    server.answer(said("a", until=go))
    first = asyncio.create_task(asking.ask())
    await server.arrived()
    second = asyncio.create_task(asking.ask())
    # Both have looked their address up, and made their client, when the second waits.
    while not asking.calls._channels._turns["chat"]._waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    with pytest.raises(Overloaded):
        await asking.ask()
    go.set()
    await asyncio.gather(first, second)


class Clock:
    """A time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sent: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        await asyncio.sleep(0)


async def test_no_more_calls_a_minute_than_may_be() -> None:
    clock = Clock()
    turns = Turns(model_id="m", most_waiting=100, monotonic=lambda: clock.now, sleep=clock.sleep)
    turns.allow(at_once=0, a_minute=5)

    async def send() -> None:
        async with turns.turn():
            await turns.sending()
            clock.sent.append(clock.now - 1000)

    await asyncio.gather(*(send() for _ in range(CALLS)))
    assert clock.sent == [0.0] * 5 + [60.0] * 5 + [120.0] * 5 + [180.0] * 5


async def test_more_may_be_allowed_to_those_who_wait() -> None:
    turns = Turns(model_id="m", most_waiting=100)
    turns.allow(at_once=1, a_minute=0)
    inside, leave = asyncio.Semaphore(0), asyncio.Event()

    async def hold() -> None:
        async with turns.turn():
            inside.release()
            await leave.wait()

    holding = [asyncio.create_task(hold()) for _ in range(3)]
    await inside.acquire()
    assert inside.locked()
    turns.allow(at_once=3, a_minute=0)
    await inside.acquire()
    await inside.acquire()
    leave.set()
    await asyncio.gather(*holding)
