"""The promises of the run ledger."""

import asyncio
from dataclasses import replace

import pytest

from stores import Stores, open_stores
from stores.errors import ConstraintViolated, EventConflict, InvalidRecord, RunNotWritable
from stores.records import Failure, RunEnd, RunFacts, RunQuery, RunStatus, RunWarning, Usage
from tests.conformance.stores.samples import (
    NOON,
    a_checkpoint,
    a_result,
    a_run,
    accepted,
    an_end,
    an_entry,
    an_event,
    an_item,
    at,
)


async def test_accepting_stores_event_run_and_item(stores: Stores) -> None:
    event = an_event()
    acceptance = await stores.ledger.accept(event, a_run(), an_item()).committed
    assert acceptance.duplicate is False
    assert acceptance.run == a_run()
    assert await stores.ledger.get("run-1") == a_run()
    assert await stores.events.get_for_run("run-1") == replace(event, run_id="run-1")
    assert (await stores.transcript.page("talk")).items == (an_item(position=1),)


async def test_every_field_of_a_run_comes_back(stores: Stores) -> None:
    run = a_run(
        status=RunStatus.QUEUED,
        binding_id="binding",
        instance_id="instance",
        queued_at=at(1),
        started_at=at(2),
        first_delta_at=at(3),
        ended_at=at(4),
        deadline=at(5),
        usage=(Usage("m1", 1, 2, 3, 4, 5), Usage("m2", 2**53 + 1, 0)),
        failure=Failure("runner.crashed", "it said: 世界", retryable=True, details={"exit": "137"}),
        warnings=(RunWarning("gap", "2 to 4", at(2)),),
        reserved_sequence=2**63 - 1,
        agent_revision=-(2**63),
        steered_into="run-0",
        replay_of="run-00",
    )
    await stores.ledger.accept(an_event(), run).committed
    assert await stores.ledger.get("run-1") == run


async def test_unknown_run_is_none(stores: Stores) -> None:
    assert await stores.ledger.get("run-1") is None
    assert await stores.ledger.results("run-1") == []
    assert await stores.ledger.checkpoints("run-1") == []
    assert await stores.events.get_for_run("run-1") is None


async def test_redelivery_is_answered_with_the_run_it_has(stores: Stores) -> None:
    await stores.ledger.accept(an_event(), a_run(), an_item()).committed
    await stores.ledger.advance("run-1", RunStatus.RUNNING, at=at(1))
    again = a_run("run-2", an_event())
    acceptance = await stores.ledger.accept(an_event(), again, an_item("item-2")).committed
    assert acceptance.duplicate is True
    assert acceptance.run.run_id == "run-1"
    assert acceptance.run.status is RunStatus.RUNNING
    assert await stores.ledger.get("run-2") is None
    assert await stores.transcript.latest_position("talk") == 1


async def test_same_event_with_other_content_is_a_conflict(stores: Stores) -> None:
    await stores.ledger.accept(an_event(), a_run()).committed
    other = an_event(digest=b"another digest")
    with pytest.raises(EventConflict) as caught:
        await stores.ledger.accept(other, a_run("run-2", other)).committed
    assert caught.value.run_id == "run-1"
    assert await stores.ledger.get("run-2") is None


@pytest.mark.parametrize("field", ["workspace", "bot", "source", "event_id"])
async def test_an_event_is_known_by_its_whole_key(stores: Stores, field: str) -> None:
    await stores.ledger.accept(an_event(), a_run()).committed
    other = an_event(digest=b"another digest", **{field: "another"})
    acceptance = await stores.ledger.accept(other, a_run("run-2", other)).committed
    assert acceptance.duplicate is False


async def test_event_logged_without_a_run_gets_one_when_redelivered(stores: Stores) -> None:
    await stores.events.append(an_event())
    acceptance = await stores.ledger.accept(an_event(), a_run(), an_item()).committed
    assert acceptance.duplicate is False
    event = await stores.events.get("acme", "helper", "api", "event-1")
    assert event is not None
    assert event.run_id == "run-1"
    assert await stores.transcript.latest_position("talk") == 1


async def test_acceptance_tells_the_position_before_the_events_own_item(stores: Stores) -> None:
    first = await stores.ledger.accept(an_event(), a_run(), an_item()).committed
    assert first.latest_cursor_position is None
    for number in (2, 3):
        event = an_event(f"event-{number}")
        item = an_item(f"item-{number}")
        later = await stores.ledger.accept(event, a_run(f"run-{number}", event), item).committed
        assert later.latest_cursor_position == number - 1
    silent = an_event("event-4")
    without_item = await stores.ledger.accept(silent, a_run("run-4", silent)).committed
    assert without_item.latest_cursor_position == 3
    stored = await stores.ledger.get("run-3")
    assert stored is not None
    assert stored.latest_cursor_position == 2


async def test_acceptance_is_told_before_it_is_durable_and_again_when_it_is(
    stores: Stores,
) -> None:
    accepting = stores.ledger.accept(an_event(), a_run(), an_item())
    told: list[object] = []
    accepting.prepared.add_done_callback(told.append)
    accepting.committed.add_done_callback(told.append)
    assert await accepting == await accepting.prepared
    await asyncio.sleep(0)
    assert told == [accepting.prepared, accepting.committed]


async def test_refused_acceptance_is_told_by_both_futures(stores: Stores) -> None:
    await stores.ledger.accept(an_event(), a_run()).committed
    other = an_event(digest=b"another digest")
    accepting = stores.ledger.accept(other, a_run("run-2", other))
    for future in (accepting.prepared, accepting.committed):
        with pytest.raises(EventConflict):
            await future


async def test_run_of_another_event_is_refused_at_once(stores: Stores) -> None:
    with pytest.raises(InvalidRecord, match="field event_id must be its event's"):
        _ = stores.ledger.accept(an_event("event-1"), a_run("run-1", an_event("event-2")))


async def test_taken_run_id_fails_and_leaves_no_event(stores: Stores) -> None:
    await accepted(stores, "run-1")
    event = an_event("event-2")
    with pytest.raises(ConstraintViolated):
        await stores.ledger.accept(event, a_run("run-1", event), an_item()).committed
    assert await stores.events.get("acme", "helper", "api", "event-2") is None
    assert await stores.transcript.latest_position("talk") is None


async def test_status_moves_forward_with_its_times(stores: Stores) -> None:
    await accepted(stores)
    assert await stores.ledger.advance("run-1", RunStatus.QUEUED, at=at(1))
    assert await stores.ledger.advance(
        "run-1",
        RunStatus.RUNNING,
        at=at(2),
        instance_id="instance",
        deadline=at(300),
        reserved_sequence=1_000,
    )
    run = await stores.ledger.get("run-1")
    assert run == a_run(
        status=RunStatus.RUNNING,
        queued_at=at(1),
        started_at=at(2),
        instance_id="instance",
        deadline=at(300),
        reserved_sequence=1_000,
    )


async def test_status_never_moves_back_or_twice(stores: Stores) -> None:
    await accepted(stores)
    assert await stores.ledger.advance("run-1", RunStatus.RUNNING, at=at(1))
    assert not await stores.ledger.advance("run-1", RunStatus.RUNNING, at=at(2))
    assert not await stores.ledger.advance("run-1", RunStatus.QUEUED, at=at(2))
    run = await stores.ledger.get("run-1")
    assert run == a_run(status=RunStatus.RUNNING, started_at=at(1))


async def test_advance_leaves_what_it_is_not_given(stores: Stores) -> None:
    await accepted(stores, instance_id="instance", deadline=at(5), reserved_sequence=10)
    await stores.ledger.advance("run-1", RunStatus.RUNNING, at=at(1), reserved_sequence=5)
    run = await stores.ledger.get("run-1")
    assert run is not None
    assert (run.instance_id, run.deadline, run.reserved_sequence) == ("instance", at(5), 10)


async def test_run_that_was_taken_up_by_another_ends_with_its_name(stores: Stores) -> None:
    accepted = await stores.ledger.accept(an_event("event-1"), a_run(steered_into="run-0"))
    assert accepted.run.steered_into == "run-0"
    await stores.ledger.finish(an_end())
    run = await stores.ledger.get("run-1")
    assert run is not None
    assert (run.status, run.steered_into) == (RunStatus.COMPLETED, "run-0")


async def test_run_that_ends_before_it_was_taken_up_was_taken_up_by_none(stores: Stores) -> None:
    await stores.ledger.accept(an_event("event-1"), a_run(steered_into="run-0"))
    await stores.ledger.finish(an_end(status=RunStatus.CANCELLED))
    run = await stores.ledger.get("run-1")
    assert run is not None
    assert (run.status, run.steered_into) == (RunStatus.CANCELLED, None)


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.RUNNING])
async def test_run_that_waits_its_turn_or_has_it_was_taken_up_by_none(
    stores: Stores, status: RunStatus
) -> None:
    await stores.ledger.accept(an_event("event-1"), a_run(steered_into="run-0"))
    assert await stores.ledger.advance("run-1", status, at=at(1))
    run = await stores.ledger.get("run-1")
    assert run is not None
    assert (run.status, run.steered_into) == (status, None)


async def test_advance_of_an_unknown_run_is_false(stores: Stores) -> None:
    assert not await stores.ledger.advance("run-1", RunStatus.QUEUED, at=NOON)


@pytest.mark.parametrize("status", [RunStatus.ACCEPTED, RunStatus.COMPLETED, RunStatus.FAILED])
async def test_advance_to_a_first_or_last_status_is_refused(
    stores: Stores, status: RunStatus
) -> None:
    with pytest.raises(InvalidRecord, match="must be QUEUED or RUNNING"):
        _ = stores.ledger.advance("run-1", status, at=NOON)


@pytest.mark.parametrize("status", [status for status in RunStatus if status.is_terminal])
async def test_an_ended_run_takes_nothing_more(stores: Stores, status: RunStatus) -> None:
    await accepted(stores)
    assert await stores.ledger.finish(an_end(status=status))
    ended = await stores.ledger.get("run-1")
    facts = RunFacts(run_id="run-1", results=(a_result("run-1", 10),), items=(an_item(),))
    assert not await stores.ledger.advance("run-1", RunStatus.RUNNING, at=at(10))
    assert not await stores.ledger.finish(
        an_end(status=RunStatus.FAILED, failure=Failure("a", "b")), facts
    )
    assert not await stores.ledger.claim("run-1", "start-1", "host", "start-2")
    with pytest.raises(RunNotWritable) as caught:
        await stores.ledger.record(facts)
    assert caught.value.reason == "ended"
    assert await stores.ledger.get("run-1") == ended
    assert await stores.ledger.results("run-1") == []
    assert await stores.transcript.latest_position("talk") is None


async def test_facts_are_stored_together(stores: Stores) -> None:
    await accepted(stores)
    warning = RunWarning("gap", "2 to 4", at(2))
    facts = RunFacts(
        run_id="run-1",
        results=(a_result("run-1", 7, first_sequence=3, runner_sequence=5), a_result("run-1", 2)),
        items=(an_item("item-1"), an_item("item-2", conversation_key="aside"), an_item("item-3")),
        entries=(an_entry(sequence=7), an_entry(kind="error")),
        checkpoints=(a_checkpoint(),),
        reserved_sequence=500,
        first_delta_at=at(1),
        usage=(Usage("model", 10, 20),),
        warnings=(warning,),
    )
    await stores.ledger.record(facts)
    assert await stores.ledger.results("run-1") == [facts.results[1], facts.results[0]]
    assert [item.transcript_id for item in (await stores.transcript.page("talk")).items] == [
        "item-3",
        "item-1",
    ]
    assert (await stores.transcript.page("aside")).items == (
        an_item("item-2", conversation_key="aside", position=1),
    )
    entries = await stores.events.entries("run-1")
    assert [replace(entry, position=0) for entry in entries] == list(facts.entries)
    assert await stores.ledger.checkpoints("run-1") == [a_checkpoint()]
    assert await stores.ledger.get("run-1") == a_run(
        last_sequence=7,
        reserved_sequence=500,
        first_delta_at=at(1),
        usage=facts.usage,
        warnings=(warning,),
    )


async def test_one_bad_fact_keeps_all_of_its_piece_out(stores: Stores) -> None:
    await accepted(stores)
    await stores.ledger.record(RunFacts(run_id="run-1", results=(a_result("run-1", 1),)))
    bad = RunFacts(
        run_id="run-1",
        results=(a_result("run-1", 2), a_result("run-1", 1)),
        items=(an_item(),),
        entries=(an_entry(),),
        reserved_sequence=9,
    )
    with pytest.raises(ConstraintViolated):
        await stores.ledger.record(bad)
    assert await stores.ledger.results("run-1") == [a_result("run-1", 1)]
    assert await stores.transcript.latest_position("talk") is None
    assert await stores.events.entries("run-1") == []
    assert await stores.ledger.get("run-1") == a_run(last_sequence=1)


async def test_facts_of_an_unknown_run_are_refused(stores: Stores) -> None:
    with pytest.raises(RunNotWritable) as caught:
        await stores.ledger.record(RunFacts(run_id="run-1", entries=(an_entry(),)))
    assert caught.value.reason == "unknown"


async def test_facts_that_name_another_run_are_refused_at_once(stores: Stores) -> None:
    with pytest.raises(InvalidRecord, match="run_id"):
        _ = stores.ledger.record(RunFacts(run_id="run-1", results=(a_result("run-2", 1),)))


async def test_reserved_numbers_and_the_first_delta_are_kept(stores: Stores) -> None:
    await accepted(stores)
    await stores.ledger.record(
        RunFacts(run_id="run-1", reserved_sequence=100, first_delta_at=at(1))
    )
    await stores.ledger.record(RunFacts(run_id="run-1", reserved_sequence=50, first_delta_at=at(9)))
    run = await stores.ledger.get("run-1")
    assert run == a_run(reserved_sequence=100, first_delta_at=at(1))


async def test_usage_is_replaced_and_warnings_are_added(stores: Stores) -> None:
    await accepted(stores)
    warnings = [RunWarning("code", f"warning {number}", at(number)) for number in range(3)]
    await stores.ledger.record(
        RunFacts(run_id="run-1", usage=(Usage("m", 1, 1),), warnings=(warnings[0],))
    )
    await stores.ledger.record(RunFacts(run_id="run-1", warnings=(warnings[1],)))
    await stores.ledger.finish(an_end(usage=(Usage("m", 5, 5),), warnings=(warnings[2],)))
    run = await stores.ledger.get("run-1")
    assert run is not None
    assert run.usage == (Usage("m", 5, 5),)
    assert run.warnings == tuple(warnings)


async def test_end_without_usage_leaves_what_was_reported(stores: Stores) -> None:
    await accepted(stores)
    await stores.ledger.record(RunFacts(run_id="run-1", usage=(Usage("m", 1, 1),)))
    await stores.ledger.finish(an_end())
    run = await stores.ledger.get("run-1")
    assert run is not None
    assert run.usage == (Usage("m", 1, 1),)


async def test_finishing_stores_the_end_and_the_last_facts(stores: Stores) -> None:
    await accepted(stores)
    await stores.ledger.record(
        RunFacts(run_id="run-1", checkpoints=(a_checkpoint(),), reserved_sequence=5)
    )
    failure = Failure("runner.crashed", "gone", retryable=True, details={"signal": "9"})
    end = an_end(status=RunStatus.FAILED, failure=failure)
    facts = RunFacts(run_id="run-1", results=(a_result("run-1", 9),), items=(an_item(),))
    assert await stores.ledger.finish(end, facts)
    assert await stores.ledger.get("run-1") == a_run(
        status=RunStatus.FAILED,
        ended_at=at(9),
        failure=failure,
        last_sequence=9,
        reserved_sequence=9,
    )
    assert await stores.ledger.results("run-1") == [a_result("run-1", 9)]
    assert await stores.transcript.latest_position("talk") == 1
    assert await stores.ledger.checkpoints("run-1") == []


async def test_last_facts_may_hold_what_the_run_used(stores: Stores) -> None:
    await accepted(stores)
    usage = (Usage("model", 10, 20),)
    facts = RunFacts(run_id="run-1", usage=usage, first_delta_at=at(1), reserved_sequence=50)
    await stores.ledger.finish(an_end(), facts)
    assert await stores.ledger.get("run-1") == a_run(
        status=RunStatus.COMPLETED,
        ended_at=at(9),
        last_sequence=9,
        reserved_sequence=50,
        first_delta_at=at(1),
        usage=usage,
    )


async def test_finishing_an_unknown_run_is_false(stores: Stores) -> None:
    assert not await stores.ledger.finish(an_end())


async def test_end_that_does_not_fit_is_refused_at_once(stores: Stores) -> None:
    with pytest.raises(InvalidRecord, match="status must be terminal, is RUNNING"):
        _ = stores.ledger.finish(an_end(status=RunStatus.RUNNING))
    with pytest.raises(InvalidRecord, match="must be the end's"):
        _ = stores.ledger.finish(an_end("run-1"), RunFacts(run_id="run-2"))


async def test_checkpoints_hold_a_message_piece_by_piece(stores: Stores) -> None:
    await accepted(stores)
    await accepted(stores, "run-2")
    first = a_checkpoint(text="a", sequence=1)
    other = a_checkpoint(message_id="message-2", sequence=2)
    later = a_checkpoint(text="b", sequence=3)
    foreign = a_checkpoint("run-2")
    for checkpoint in (first, other, later, foreign):
        await stores.ledger.record(RunFacts(run_id=checkpoint.run_id, checkpoints=(checkpoint,)))
    assert await stores.ledger.checkpoints("run-1") == [first, other, later]
    await stores.ledger.record(RunFacts(run_id="run-1", dropped_checkpoints=("message-2",)))
    assert await stores.ledger.checkpoints("run-1") == [first, later]
    await stores.ledger.finish(an_end())
    assert await stores.ledger.checkpoints("run-1") == []
    assert await stores.ledger.checkpoints("run-2") == [foreign]


async def test_results_are_read_from_after_a_number(stores: Stores) -> None:
    await accepted(stores)
    results = tuple(a_result("run-1", number) for number in (1, 5, 20, 300))
    await stores.ledger.record(RunFacts(run_id="run-1", results=results))
    assert await stores.ledger.results("run-1", after_sequence=1, limit=2) == list(results[1:3])
    assert await stores.ledger.results("run-1", after_sequence=300) == []


async def test_a_run_is_claimed_once(stores: Stores) -> None:
    await accepted(stores)
    await stores.ledger.advance("run-1", RunStatus.QUEUED, at=at(1))
    claims = [
        stores.ledger.claim("run-1", "start-1", "host", f"start-{number}") for number in (2, 3)
    ]
    assert [list(claimed) for claimed in await asyncio.gather(*claims)] == [["run-1"], []]
    run = await stores.ledger.get("run-1")
    assert run is not None
    assert (run.host_id, run.host_incarnation) == ("host", "start-2")


async def test_waiting_runs_of_a_session_are_claimed_together(stores: Stores) -> None:
    for number in (3, 1, 2):
        await accepted(stores, f"run-{number}", event_id=f"event-{number}", created_at=at(number))
    await accepted(stores, "run-4", event_id="event-4", session_key="another")
    await accepted(stores, "run-5", event_id="event-5", host_incarnation="start-8")
    await stores.ledger.advance("run-2", RunStatus.RUNNING, at=at(9))
    # Whoever asks for a later one gets those before it as well, and nobody gets them again.
    assert list(await stores.ledger.claim("run-3", "start-1", "host", "start-2")) == [
        "run-1",
        "run-3",
    ]
    assert not await stores.ledger.claim("run-1", "start-1", "other", "start-3")
    assert list(await stores.ledger.claim("run-4", "start-1", "other", "start-3")) == ["run-4"]


async def test_a_run_that_does_not_wait_is_not_claimed(stores: Stores) -> None:
    await accepted(stores)
    await stores.ledger.advance("run-1", RunStatus.RUNNING, at=at(1))
    assert not await stores.ledger.claim("run-1", "start-1", "host", "start-2")
    assert not await stores.ledger.claim("run-2", "start-1", "host", "start-2")


async def test_a_host_that_lost_a_run_writes_nothing_to_it(stores: Stores) -> None:
    await accepted(stores)
    await stores.ledger.claim("run-1", "start-1", "host", "start-2")
    late = RunFacts(run_id="run-1", host_incarnation="start-1", entries=(an_entry(),))
    with pytest.raises(RunNotWritable) as caught:
        await stores.ledger.record(late)
    assert caught.value.reason == "other_host"
    assert not await stores.ledger.advance(
        "run-1", RunStatus.RUNNING, at=at(1), host_incarnation="start-1"
    )
    assert not await stores.ledger.finish(an_end(host_incarnation="start-1"))
    assert await stores.ledger.finish(an_end(host_incarnation="start-2"))


async def test_runs_of_lost_hosts_are_found(stores: Stores) -> None:
    await stores.hosts.register("host", "start-2", at(60))
    await stores.hosts.register("late", "start-1", at(10))
    await accepted(stores, "run-1", host_incarnation="start-1", created_at=at(3))
    await accepted(stores, "run-2", host_incarnation="start-2")
    await accepted(stores, "run-3", host_id="gone", created_at=at(2))
    await accepted(stores, "run-4", host_id="late", created_at=at(1))
    await accepted(stores, "run-5", host_id="gone")
    await stores.ledger.finish(an_end("run-5"))
    lost = await stores.ledger.active_of_lost_hosts(at(10.000001))
    assert [run.run_id for run in lost] == ["run-4", "run-3", "run-1"]
    assert lost[2].agent_snapshot == b"the agent as it was"
    lost = await stores.ledger.active_of_lost_hosts(at(10))
    assert [run.run_id for run in lost] == ["run-3", "run-1"]


async def test_two_hosts_start_an_event_once(stores: Stores, database_url: str) -> None:
    other = await open_stores(database_url)
    futures = []
    for number in range(40):
        event = an_event(f"event-{number}")
        for owner, name in ((stores, "a"), (other, "b")):
            run = a_run(f"run-{number}-{name}", event)
            item = an_item(f"item-{number}-{name}")
            futures.append(owner.ledger.accept(event, run, item).committed)
        await asyncio.sleep(0)
    acceptances = await asyncio.gather(*futures)
    await other.close()
    assert sum(acceptance.duplicate for acceptance in acceptances) == 40
    for first, second in zip(acceptances[::2], acceptances[1::2], strict=True):
        assert first.run.run_id == second.run.run_id
    assert await stores.transcript.latest_position("talk") == 40


async def test_two_hosts_end_a_run_once(stores: Stores, database_url: str) -> None:
    other = await open_stores(database_url)
    for number in range(20):
        await accepted(stores, f"run-{number}")
    ends = [
        RunEnd(run_id=f"run-{n}", status=RunStatus.FAILED, ended_at=NOON, last_sequence=1)
        for n in range(20)
    ]
    futures = [owner.ledger.finish(end) for end in ends for owner in (stores, other)]
    applied = await asyncio.gather(*futures)
    await other.close()
    assert [sum(pair) for pair in zip(applied[::2], applied[1::2], strict=True)] == [1] * 20


async def test_futures_may_be_ignored(stores: Stores) -> None:
    _ = stores.ledger.accept(an_event(), a_run())
    _ = stores.ledger.advance("run-1", RunStatus.RUNNING, at=at(1))
    _ = stores.ledger.record(RunFacts(run_id="run-1", results=(a_result("run-1", 1),)))
    _ = stores.ledger.finish(an_end())
    await stores.journal.flush()
    page = await stores.ledger.list(RunQuery())
    assert [run.status for run in page.items] == [RunStatus.COMPLETED]
    assert len(await stores.ledger.results("run-1")) == 1
