"""Events in, results out: what every caller relies on."""

import asyncio
from itertools import pairwise
from pathlib import Path

from runmesh.v1 import gateway_pb2

from stores import Stores
from tests.integration.host.calls import (
    END,
    Caller,
    agent,
    calling,
    collect,
    collect_until,
    message,
    say,
    scripted,
)
from tests.integration.host.host_process import HostProcess

ACCEPTED = gateway_pb2.RUN_STATUS_ACCEPTED
RUNNING = gateway_pb2.RUN_STATUS_RUNNING
COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
FAMILY = "hello, 世界 👩‍👩‍👧"


async def test_dispatch_says_the_accepted_run_first_and_the_ended_run_last(caller: Caller) -> None:
    answer = await caller.dispatch(message(FAMILY))
    assert answer.items[0] == "accepted"
    assert answer.items[-1] == "ended"
    assert set(answer.items[1:-1]) == {"results"}
    assert answer.accepted.status in {ACCEPTED, RUNNING}
    assert answer.ended.status == COMPLETED
    assert answer.ended.run_id == answer.run_id
    assert answer.ended.binding_id == "default-messages"
    assert answer.kinds == ["message_delta", "message_completed", "run_completed"]
    assert answer.shown == FAMILY
    assert answer.messages == [FAMILY]


async def test_delivered_numbers_count_up_from_one_without_a_gap(caller: Caller) -> None:
    answer = await caller.dispatch(message("one two three four five six"))
    covered = [(each.first_sequence, each.sequence) for each in answer.results]
    assert covered[0][0] == 1
    for (first, last), (next_first, _) in pairwise(covered):
        assert first <= last
        assert next_first == last + 1
    assert answer.ended.last_sequence == covered[-1][1]
    assert {each.run_id for each in answer.results} == {answer.run_id}


async def test_results_come_while_the_run_is_under_way(caller: Caller, tmp_path: Path) -> None:
    go = tmp_path / "go"
    call = caller.open(
        scripted(say("first "), {"await": str(go)}, say("second"), END), agent_id="scripted"
    )
    answer = await collect_until(call, lambda so_far: so_far.shown == "first ")
    run = await caller.get(answer.run_id)
    assert run.status == RUNNING
    assert run.last_sequence == 1
    assert run.HasField("first_delta_at")
    assert not run.HasField("ended_at")
    go.touch()
    answer = await collect(call, answer)
    assert answer.shown == "first second"


async def test_deltas_that_no_message_completes_are_completed_by_the_host(caller: Caller) -> None:
    answer = await caller.dispatch(scripted(say("half "), say("and half"), END), "scripted")
    assert answer.kinds == ["message_delta", "message_completed", "run_completed"]
    assert answer.messages == ["half and half"]
    assert not answer.results[-2].message_completed.incomplete


async def test_times_of_a_run_follow_its_life(caller: Caller) -> None:
    answer = await caller.dispatch(message())
    run = answer.ended
    times = [run.created_at, run.started_at, run.first_delta_at, run.ended_at]
    assert [each.ToNanoseconds() for each in times] == sorted(
        each.ToNanoseconds() for each in times
    )
    assert all(each.seconds for each in times)
    assert run.deadline.ToSeconds() - run.started_at.ToSeconds() in {299, 300, 301}
    assert run.instance_id
    assert await caller.get(run.run_id) == run


async def test_named_agent_runs_whatever_the_bindings_say(caller: Caller) -> None:
    answer = await caller.dispatch(scripted(say("scripted"), END), "scripted")
    assert answer.ended.agent_id == "scripted"
    assert answer.ended.binding_id == ""
    assert answer.text == "scripted"


async def test_submitted_event_is_answered_at_once_and_its_run_goes_on(
    caller: Caller, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    run = await caller.submit(scripted({"await": str(go)}, say("done"), END), "scripted")
    assert run.status in {ACCEPTED, RUNNING}
    assert not run.duplicate
    go.touch()
    answer = await caller.watch(run.run_id)
    assert answer.ended.status == COMPLETED
    assert answer.text == "done"


async def test_whoever_has_seen_a_run_end_can_read_all_that_it_said(
    caller: Caller, stores: Stores
) -> None:
    answer = await caller.dispatch(message("kept", conversation_id="c-kept", bot_id="b-kept"))
    stored = await stores.ledger.results(answer.run_id)
    assert [each.kind for each in stored] == ["message_completed", "run_completed"]
    page = await stores.transcript.page(answer.ended.conversation_key, newest_first=False)
    assert [(each.role, each.text) for each in page.items] == [
        ("user", "kept"),
        ("assistant", "kept"),
    ]


async def test_event_that_says_nothing_becomes_no_message_of_a_user(
    caller: Caller, stores: Stores
) -> None:
    answer = await caller.dispatch(
        message(None, type="group.member_joined", conversation_id="c-joined", bot_id="b-joined"),
        "default",
    )
    assert answer.ended.status == COMPLETED
    page = await stores.transcript.page(answer.ended.conversation_key)
    assert [each.role for each in page.items] == ["assistant"]


async def test_own_socket_of_the_host_serves_the_same(caller: Caller, host: HostProcess) -> None:
    async with calling(host.addresses["socket"], host.key) as beside:
        answer = await beside.dispatch(message("by socket"))
    assert (await caller.watch(answer.run_id)).text == "by socket"


async def test_many_runs_at_once_each_get_their_own_results(caller: Caller) -> None:
    texts = [f"message number {number} of many" for number in range(40)]
    answers = await asyncio.gather(*(caller.dispatch(message(text)) for text in texts))
    assert [each.shown for each in answers] == texts
    assert len({each.run_id for each in answers}) == len(texts)
    for answer in answers:
        assert {each.run_id for each in answer.results} == {answer.run_id}


async def test_agent_that_does_not_stream_gives_whole_messages(caller: Caller) -> None:
    await caller.apply(agent("whole", delivery={"streaming": False}))
    answer = await caller.dispatch(message("in one piece"), "whole")
    assert answer.kinds == ["message_completed", "run_completed"]
    assert answer.messages == ["in one piece"]
    assert (await caller.watch(answer.run_id)).kinds == answer.kinds
