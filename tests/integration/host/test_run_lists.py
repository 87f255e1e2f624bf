"""ListRuns: filters, pages and their tokens."""

import asyncio

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from runmesh.v1 import gateway_pb2

from tests.integration.host.calls import Caller, agent, message
from tests.integration.host.refusals import refused

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
FAILED = gateway_pb2.RUN_STATUS_FAILED


@pytest.fixture
async def listed(caller: Caller) -> list[gateway_pb2.Run]:
    """Seven runs of an agent of their own, oldest first; of them one has failed."""
    await caller.apply(agent("listed"), agent("listed-failing", config={"failure": "error"}))
    runs = [
        (await caller.dispatch(message(f"run {number}", bot_id="lists"), "listed")).ended
        for number in range(6)
    ]
    runs.append((await caller.dispatch(message("fails", bot_id="lists"), "listed-failing")).ended)
    return runs


def ids(runs: object) -> list[str]:
    return [run.run_id for run in runs]  # type: ignore[attr-defined]


async def test_runs_are_listed_newest_first(caller: Caller, listed: list[gateway_pb2.Run]) -> None:
    answer = await caller.list(page_size=7)
    assert list(answer.runs) == listed[::-1]


async def test_filters_narrow_together(caller: Caller, listed: list[gateway_pb2.Run]) -> None:
    since = listed[0].created_at
    of_agent = await caller.list(agent_id="listed", created_after=since)
    assert ids(of_agent.runs) == ids(listed[5::-1])
    failed = await caller.list(statuses=[FAILED], created_after=since)
    assert ids(failed.runs) == [listed[6].run_id]
    both = await caller.list(statuses=[FAILED, COMPLETED], created_after=since)
    assert len(both.runs) == 7
    neither = await caller.list(agent_id="listed", statuses=[FAILED], created_after=since)
    assert not neither.runs


async def test_time_bounds_include_the_first_and_exclude_the_last(
    caller: Caller, listed: list[gateway_pb2.Run]
) -> None:
    answer = await caller.list(
        created_after=listed[2].created_at, created_before=listed[5].created_at
    )
    assert ids(answer.runs) == ids(listed[4:1:-1])


async def test_runs_of_one_conversation_are_told_from_those_of_another_bot(caller: Caller) -> None:
    runs = [
        (await caller.dispatch(message(bot_id=bot, conversation_id="1", thread_id=thread))).ended
        for bot, thread in (("a", ""), ("b", ""), ("a", "t"))
    ]
    assert len({run.conversation_key for run in runs}) == 3
    for run in runs:
        answer = await caller.list(
            conversation_key=run.conversation_key, created_after=runs[0].created_at
        )
        assert ids(answer.runs) == [run.run_id]


async def test_pages_give_every_run_once_while_new_ones_arrive(
    caller: Caller, listed: list[gateway_pb2.Run]
) -> None:
    seen: list[str] = []
    token = ""
    while True:
        page = await caller.list(agent_id="listed", page_size=2, page_token=token)
        seen += ids(page.runs)
        await caller.dispatch(message("arrives"), "listed")
        token = page.next_page_token
        if len(seen) >= 6 or not token:
            break
    assert seen[:6] == ids(listed[5::-1])
    assert len(set(seen)) == len(seen)


async def test_last_page_has_no_token(caller: Caller, listed: list[gateway_pb2.Run]) -> None:
    since = listed[0].created_at
    page = await caller.list(agent_id="listed", created_after=since, page_size=6)
    assert len(page.runs) == 6
    assert page.next_page_token == ""


@pytest.mark.parametrize(
    "token", ["x", "!!!!", "eyJhIjogMX0", "A" * 1024, "W10"], ids=lambda token: token[:8]
)
async def test_page_token_of_somebody_else_is_refused(caller: Caller, token: str) -> None:
    refusal = await refused(caller.list(page_token=token))
    assert refusal.code == refusal.reason == "INVALID_ARGUMENT"
    assert list(refusal.fields) == ["page_token"]


async def test_page_token_is_good_only_for_the_query_that_made_it(
    caller: Caller, listed: list[gateway_pb2.Run]
) -> None:
    page = await caller.list(agent_id="listed", page_size=2)
    assert page.next_page_token
    late = Timestamp(seconds=4102444800)
    others: list[dict[str, object]] = [
        {},
        {"agent_id": "listed-failing"},
        {"agent_id": "listed", "statuses": [FAILED]},
        {"agent_id": "listed", "created_before": late},
    ]
    refusals = await asyncio.gather(
        *(refused(caller.list(page_token=page.next_page_token, **other)) for other in others)
    )
    for refusal in refusals:
        assert refusal.code == "INVALID_ARGUMENT"
        assert list(refusal.fields) == ["page_token"]
    # How many are asked for is no part of the query.
    rest = await caller.list(agent_id="listed", page_size=100, page_token=page.next_page_token)
    assert rest.runs


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1])
async def test_page_of_an_impossible_size_is_refused(caller: Caller, size: int) -> None:
    refusal = await refused(caller.list(page_size=size))
    assert refusal.code == "INVALID_ARGUMENT"
    assert list(refusal.fields) == ["page_size"]
    assert str(size) in refusal.fields["page_size"]
