"""Readers that come late, leave and come back at any point: all of it, once, and then the end."""

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from runmesh.v1 import event_pb2, gateway_pb2

from stores import Stores
from tests.integration.host.calls import (
    END,
    Answer,
    Caller,
    calling,
    collect,
    collect_until,
    say,
    scripted,
    whole,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.network import Network
from tests.integration.host.replays import Delivered

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
WATCHERS = 50


async def test_caller_whose_connection_breaks_gets_the_rest_once(
    caller: Caller, host: HostProcess, stores: Stores, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    event = scripted(
        say("one "), say("two "), {"await": str(go)}, say("three "),
        {"send": [whole("one two three ")]}, say("four"), END,
        conversation_id="broken", bot_id="coming back",
    )  # fmt: skip
    async with (
        Network(host.addresses["grpc"]) as network,
        calling(network.address, host.key) as far,
    ):
        call = far.open(event, "scripted")
        seen = await collect_until(call, lambda so_far: len(so_far.results) == 2)
        network.cut()
        go.touch()
        rest = await collect(caller.watching(seen.run_id, 2))
    rest.check_numbers(2)
    assert seen.shown == "one two "
    assert rest.messages == ["one two three ", "four"]
    assert rest.kinds[-1] == "run_completed"
    assert (rest.items[0], rest.items[-1]) == ("accepted", "ended")
    assert rest.ended.status == COMPLETED
    # Nobody read while it was said, and all of it is kept.
    kept = await stores.ledger.results(seen.run_id, after_sequence=0, limit=100)
    assert [each.sequence for each in kept] == [
        each.sequence for each in rest.results if not each.HasField("message_delta")
    ]
    page = await stores.transcript.page(rest.ended.conversation_key, newest_first=False)
    assert [each.text for each in page.items][1:] == rest.messages
    assert await collect(caller.watching(seen.run_id, 2)) == await caller.watch(seen.run_id, 2)


def a_long_story(dice: random.Random, **fields: Any) -> event_pb2.EventEnvelope:
    """An event whose run says many messages in pieces of any size, with other results between."""
    steps: list[dict[str, Any]] = []
    for number in range(8):
        message_id = f"m{number}" if dice.random() < 0.5 else ""
        pieces = [f"{number}.{piece} " * dice.randint(1, 40) for piece in range(dice.randint(1, 9))]
        for piece in pieces:
            steps.append({"send": [{"messageDelta": {"messageId": message_id, "text": piece}}]})
            if dice.random() < 0.3:
                steps.append({"sleep": dice.random() * 0.05})
        if dice.random() < 0.5:
            steps.append({"send": [{"toolCallStarted": {"callId": str(number), "toolName": "t"}}]})
        steps.append({"send": [whole("".join(pieces), message_id)]})
    return scripted(*steps, say("and "), say("so on"), END, **fields)


async def come_and_go(caller: Caller, run_id: str, dice: random.Random) -> list[tuple[int, Answer]]:
    """Watches a run to its end, and leaves every now and then.

    Returns what was shown each time, with the number after which.
    """
    parts: list[tuple[int, Answer]] = []
    after, ended = 0, False
    while not ended:
        call = caller.watching(run_id, after)
        part = await collect_until(
            call, partial(_has_had, count=dice.choice([1, 2, 3, 5, 8, 1000]))
        )
        call.cancel()
        parts.append((after, part))
        after = part.results[-1].sequence if part.results else after
        ended = part.items[-1] == "ended"
        await asyncio.sleep(dice.random() * 0.05)
    return parts


def _has_had(answer: Answer, count: int) -> bool:
    return len(answer.items) >= count or answer.items[-1:] == ["ended"]


@pytest.mark.parametrize("seed", range(3))
async def test_fifty_who_come_and_go_miss_nothing_and_get_nothing_twice(
    caller: Caller, seed: int
) -> None:
    dice = random.Random(seed)
    call = caller.open(a_long_story(dice), "scripted")
    live = await collect_until(call, lambda so_far: bool(so_far.items))
    going = [
        asyncio.create_task(come_and_go(caller, live.run_id, random.Random(f"{seed} {number}")))
        for number in range(WATCHERS)
    ]
    live = await collect(call, live)
    delivered = Delivered(live)
    for parts in await asyncio.gather(*going):
        for after, part in parts[:-1]:
            delivered.check(part.results, after, to_the_end=False)
        after, rest = parts[-1]
        delivered.check(rest.results, after)
        assert rest.ended == live.ended
    # And so it is for those who come when all is over, after any number.
    for after in range(delivered.last + 1):
        replay = await caller.watch(live.run_id, after)
        delivered.check(replay.results, after)
        assert (replay.items[0], replay.items[-1]) == ("accepted", "ended")
        assert replay.ended == live.ended


@pytest.mark.parametrize("seed", range(3))
async def test_whoever_joins_after_any_number_lacks_nothing(caller: Caller, seed: int) -> None:
    dice = random.Random(f"join {seed}")
    call = caller.open(a_long_story(dice), "scripted")
    live = await collect_until(call, lambda so_far: bool(so_far.results))
    joined: list[tuple[int, asyncio.Task[Answer]]] = []
    while "ended" not in live.items:
        # Any number up to what was shown by now, and one that is still to come.
        after = dice.randint(0, live.results[-1].sequence + 1)
        joined.append((after, asyncio.create_task(caller.watch(live.run_id, after))))
        await collect_until(call, partial(_has_had, count=len(live.items) + 1), live)
    delivered = Delivered(live)
    for after, watching in joined:
        delivered.check((await watching).results, after)
