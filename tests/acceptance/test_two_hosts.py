"""Two hosts on one PostgreSQL: an event that reaches both at the same moment runs once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from runmesh.v1 import event_pb2, gateway_pb2

from tests.integration.host.calls import (
    END,
    Caller,
    calling,
    collect,
    collect_until,
    message,
    say,
    scripted,
    whole,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_scripted_plugin
from tests.integration.host.refusals import refused
from tests.integration.host.replays import Delivered
from tests.postgresql import running_postgresql

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
EVENTS = 60
AGENTS = """\
agents:
- {id: default, runner_id: "plugin:runmesh/echo/default"}
- {id: scripted, runner_id: "plugin:acme/scripted/default"}
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[HostProcess]]:
    """Two hosts that have one database."""
    folder = tmp_path_factory.mktemp("two")
    write_scripted_plugin(folder / "plugins")
    with running_postgresql() as server, ExitStack() as stack:
        yield [
            stack.enter_context(
                HostProcess(
                    folder / name,
                    config=AGENTS,
                    plugins=folder / "plugins",
                    arguments=["--database", server.url],
                )
            )
            for name in ("one", "other")
        ]


@pytest.fixture
async def callers(hosts: list[HostProcess]) -> AsyncIterator[list[Caller]]:
    """A caller of each."""
    one, other = hosts
    async with (
        calling(one.addresses["grpc"], one.key) as first,
        calling(other.addresses["grpc"], other.key) as second,
    ):
        yield [first, second]


def calls_of(note: Path) -> int:
    return note.read_text().split().count("called")


async def test_event_that_reaches_both_at_once_runs_once(
    callers: list[Caller], tmp_path: Path
) -> None:
    async def deliver(caller: Caller, event: event_pb2.EventEnvelope, *, waits: bool) -> str:
        if not waits:
            return (await caller.submit(event, "scripted")).run_id
        answer = await caller.dispatch(event, "scripted")
        answer.check_numbers()
        assert answer.ended.status == COMPLETED
        assert answer.messages == [event.event_id]
        assert answer.kinds[-2:] == ["message_completed", "run_completed"]
        return answer.run_id

    async def deliver_to_both(number: int) -> set[str]:
        event = scripted(
            say(f"both-{number}"), END,
            note=tmp_path / str(number), event_id=f"both-{number}", conversation_id=str(number % 7),
        )  # fmt: skip
        turns = [(caller, waits) for caller in callers for waits in (True, False)]
        random.Random(number).shuffle(turns)
        return set(
            await asyncio.gather(*(deliver(each, event, waits=waits) for each, waits in turns))
        )

    told = await asyncio.gather(*map(deliver_to_both, range(EVENTS)))
    assert {len(run_ids) for run_ids in told} == {1}
    assert len(set.union(*told)) == EVENTS
    assert Counter(calls_of(tmp_path / str(number)) for number in range(EVENTS)) == {1: EVENTS}
    for caller in callers:
        runs = (await caller.list(agent_id="scripted", page_size=100)).runs
        assert {run.run_id for run in runs} == set.union(*told)


async def test_of_two_contents_at_both_one_runs_and_the_other_is_refused(
    callers: list[Caller],
) -> None:
    one, other = callers
    for number in range(10):
        said = await asyncio.gather(
            one.dispatch(message("left", event_id=f"either-{number}")),
            other.dispatch(message("right", event_id=f"either-{number}")),
            return_exceptions=True,
        )
        refused_at = [isinstance(each, BaseException) for each in said]
        assert sorted(refused_at) == [False, True]
        loser, text = (one, "left") if refused_at[0] else (other, "right")
        again = loser.dispatch(message(text, event_id=f"either-{number}"))
        assert (await refused(again)).reason == "ALREADY_EXISTS"


async def test_run_of_one_host_is_followed_at_the_other_from_any_number(
    callers: list[Caller], tmp_path: Path
) -> None:
    one, other = callers
    go = tmp_path / "go"
    event = scripted(
        say("first "), say("words "), {"send": [whole("first words ")]},
        {"send": [{"toolCallStarted": {"callId": "1", "toolName": "look"}}]},
        say("then "), {"await": str(go)}, say("more"), END,
    )  # fmt: skip
    call = one.open(event, "scripted")
    live = await collect_until(call, lambda so_far: "then" in so_far.shown)
    watching = [asyncio.create_task(other.watch(live.run_id, after)) for after in range(6)]
    await asyncio.sleep(0.1)
    go.touch()
    live = await collect(call, live)
    delivered = Delivered(live)
    for after, watched in enumerate(await asyncio.gather(*watching)):
        delivered.check(watched.results, after)
        assert watched.ended == live.ended
