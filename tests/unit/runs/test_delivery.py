"""Tests of `host_service.runs.delivery`: shown in order, kept as shown, and no store waited for."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from runmesh.v1 import result_pb2

from host_service.limits import Limits
from host_service.runs.checker import ProtocolFault
from host_service.runs.delivery import Delivery
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.outcome import Outcome, RunFault
from host_service.runs.services import RunServices
from stores import Stores
from stores.records import RunEnd, RunFacts, RunStatus, Usage
from tests.unit.runs.active import begun, results_of
from tests.unit.runs.samples import (
    NOON,
    RUNNER,
    a_delta,
    a_frame,
    a_message,
    a_result,
    an_agent,
    an_event,
)

CALL = {"tool_call_started": result_pb2.ToolCallStarted(call_id="c", tool_name="t")}
WELL = result_pb2.RunCompleted(finish_reason="stop")


def message(text: str, id: str = "") -> dict[str, Any]:
    return {"message_completed": result_pb2.MessageCompleted(message=a_message(text, id=id))}


async def test_results_are_shown_in_order_and_durable_ones_are_kept_as_they_were_shown(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    run = await begun(stores, services, orchestrator)
    reader = run.run.log.subscribe(patient=True)
    await run.sends(a_delta("Hel"), a_delta("lo"))
    await run.sends(CALL, a_delta("!"), message("Hello!"))
    shown = results_of(await reader.take())
    assert [each.sequence for each in shown] == [1, 2, 3, 4, 5]
    assert run.delivery.delivered == 5
    assert await run.stored() == [shown[2], shown[4]]
    assert not run.delivery.uncommitted
    record = await stores.ledger.get("run-1")
    assert record is not None
    assert record.last_sequence == 5
    entries = await stores.events.entries("run-1")
    assert [(each.kind, each.sequence) for each in entries] == [("tool_call_started", 3)]
    items = (await stores.transcript.page(an_event().conversation_key)).items
    assert [item.text for item in items] == ["Hello!", "hello"]


class _SilentLedger:
    """A ledger that never answers."""

    def __init__(self) -> None:
        self.recorded: list[RunFacts] = []

    def record(self, facts: RunFacts) -> asyncio.Future[None]:
        self.recorded.append(facts)
        return asyncio.get_running_loop().create_future()


def a_delivery(services: RunServices, ledger: Any, **changes: Any) -> Delivery:
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "runner_id": RUNNER,
        "event": an_event(),
        "shows_deltas": True,
        "reserved": Limits().reserved_numbers,
        "services": replace(services, ledger=ledger),
        "on_lost": lambda: None,
    }
    return Delivery(**(fields | changes))


async def deliver(delivery: Delivery, delta: result_pb2.MessageDelta, *, times: int) -> None:
    """Deliver the same delta again and again, one a frame."""
    for number in range(1, times + 1):
        await delivery.pass_on(a_frame([a_result(number, message_delta=delta)]))


async def test_neither_deltas_nor_durable_results_wait_for_a_store(services: RunServices) -> None:
    delivery = a_delivery(services, ledger := _SilentLedger())
    reader = delivery.log.subscribe(patient=True)
    results = [
        a_result(1, message_delta=a_delta("a")),
        a_result(2, **CALL),
        a_result(3, message_delta=a_delta("b")),
    ]
    async with asyncio.timeout(5):
        for result in results:
            await delivery.pass_on(a_frame([result]))
        assert len(results_of(await reader.take())) == 3
    assert len(ledger.recorded) == 1
    assert [each.sequence for each in delivery.uncommitted] == [2]


async def test_numbers_are_reserved_ahead_of_what_is_delivered(services: RunServices) -> None:
    limits = replace(Limits(), reserved_numbers=10)
    delivery = a_delivery(replace(services, limits=limits), ledger := _SilentLedger(), reserved=10)
    for number in range(1, 8):
        await delivery.pass_on(a_frame([a_result(number, message_delta=a_delta("x"))]))
        reserved = max((each.reserved_sequence or 0 for each in ledger.recorded), default=10)
        assert number <= reserved
    assert len(ledger.recorded) == 1
    assert ledger.recorded[0].reserved_sequence == 16


async def test_nothing_is_shown_under_a_number_that_is_not_reserved(services: RunServices) -> None:
    limits = replace(Limits(), reserved_numbers=10)
    delivery = a_delivery(replace(services, limits=limits), _SilentLedger(), reserved=10)
    reader = delivery.log.subscribe(patient=True)
    frame = a_frame([a_result(number, message_delta=a_delta("x")) for number in range(1, 12)])
    showing = asyncio.create_task(delivery.pass_on(frame))
    taking = asyncio.create_task(reader.take())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not showing.done()
    assert not taking.done()
    showing.cancel()
    taking.cancel()


async def test_agent_that_does_not_stream_shows_messages_whole(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    run = await begun(stores, services, orchestrator, agent=an_agent(streaming=False))
    reader = run.run.log.subscribe(patient=True)
    await run.sends(a_delta("Hel"), a_delta("lo"))
    await run.sends(a_delta("!"), CALL, message("Hello!"))
    shown = results_of(await reader.take())
    assert [each.WhichOneof("payload") for each in shown] == [
        "tool_call_started",
        "message_completed",
    ]
    # The first word counts from when it was said.
    assert run.run.view().first_delta_at is not None


async def test_first_delta_is_timed_once(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    run = await begun(stores, services, orchestrator)
    await run.sends(CALL)
    assert run.run.view().first_delta_at is None
    await run.sends(a_delta("a"))
    first = run.run.view().first_delta_at
    await run.sends(a_delta("b"))
    assert first is not None
    assert run.run.view().first_delta_at == first


async def test_run_whose_facts_cannot_be_stored_is_told_so(
    stores: Stores, services: RunServices
) -> None:
    lost = asyncio.Event()
    delivery = a_delivery(services, stores.ledger, on_lost=lost.set)
    # No such run was accepted.
    await delivery.pass_on(a_frame([a_result(1, **CALL)]))
    await asyncio.wait_for(lost.wait(), 5)


async def test_what_came_before_a_fault_is_delivered(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    run = await begun(stores, services, orchestrator)
    reader = run.run.log.subscribe(patient=True)
    stray = result_pb2.RunResult(run_id="run-2", sequence=3, message_delta=a_delta("x"))
    frame = a_frame([a_result(1, message_delta=a_delta("a")), a_result(2, **CALL), stray])
    with pytest.raises(ProtocolFault):
        await run.delivery.pass_on(frame)
    assert len(results_of(await reader.take())) == 2
    assert len(await run.stored()) == 1


async def test_text_in_progress_has_a_bound(services: RunServices) -> None:
    limits = replace(Limits(), message_characters=10_000)
    delivery = a_delivery(replace(services, limits=limits), _SilentLedger())
    with pytest.raises(ProtocolFault, match="the limit is 10000"):
        await deliver(delivery, a_delta("x" * 10), times=2 * 10_000)
    assert delivery.progress.size < 50_000


async def test_delta_that_breaks_a_rule_ends_the_run(services: RunServices) -> None:
    delivery = a_delivery(services, _SilentLedger())
    with pytest.raises(ProtocolFault, match="message_id"):
        await deliver(delivery, a_delta("x", id="i" * 256), times=3000)


async def test_warnings_are_kept_up_to_a_number_and_stored(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    run = await begun(
        stores,
        replace(services, limits=replace(Limits(), warnings_kept=3)),
        orchestrator,
    )
    for _ in range(5):
        run.delivery.warn("sequence_gap", "w")
    await run.sends(CALL)
    assert [each.code for each in run.run.view().warnings] == ["sequence_gap"] * 3
    await stores.journal.flush()
    record = await stores.ledger.get("run-1")
    assert record is not None
    assert record.warnings == run.run.view().warnings


async def test_end_is_shown_when_it_can_be_read_and_holds_everything(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    run = await begun(stores, services, orchestrator)
    reader = run.run.log.subscribe(patient=True)
    await run.sends(a_delta("Hello"), {"log": result_pb2.LogLine(text="x")})
    terminal = await run.sends({"run_completed": WELL})
    assert terminal.runner_sequence == 3
    assert run.delivery.delivered == 2
    record = await run.ends(
        Outcome(RunStatus.COMPLETED, completed=WELL, runner_sequence=terminal.runner_sequence)
    )
    shown = results_of(await reader.take())
    assert [each.WhichOneof("payload") for each in shown] == [
        "message_delta",
        "log",
        "message_completed",
        "run_completed",
    ]
    assert [each.sequence for each in shown] == [1, 2, 3, 4]
    assert await run.stored() == shown[1:]
    stored = await stores.ledger.results("run-1")
    assert [each.runner_sequence for each in stored] == [2, 0, 3]
    assert (record.status, record.last_sequence) == (RunStatus.COMPLETED, 4)
    kept = await stores.ledger.get("run-1")
    assert kept is not None
    assert (kept.status, kept.last_sequence, kept.ended_at) == (
        record.status,
        record.last_sequence,
        record.ended_at,
    )
    assert await stores.ledger.checkpoints("run-1") == []


async def test_end_that_another_host_has_written_is_the_end(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    run = await begun(stores, services, orchestrator)
    reader = run.run.log.subscribe(patient=True)
    end = RunEnd(run_id="run-1", status=RunStatus.FAILED, ended_at=NOON, last_sequence=4097)
    assert await stores.ledger.finish(end)
    record = await run.ends(Outcome(RunStatus.COMPLETED, completed=WELL))
    assert (record.status, record.last_sequence) == (RunStatus.FAILED, 4097)
    ended = await reader.take()
    assert getattr(ended, "run", None) == record


async def test_checkpoint_of_a_message_goes_when_the_message_is_whole(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    eager = replace(services, limits=replace(Limits(), checkpoint_bytes=1))
    run = await begun(stores, eager, orchestrator)
    await run.sends(a_delta("A", id="a"), a_delta("B", id="b"))
    await stores.journal.flush()
    kept = await stores.ledger.checkpoints("run-1")
    assert {(each.message_id, each.text) for each in kept} == {("a", "A"), ("b", "B")}
    await run.sends(message("A", id="a"))
    await stores.journal.flush()
    assert [each.message_id for each in await stores.ledger.checkpoints("run-1")] == ["b"]


async def test_usage_of_the_end_is_final(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    run = await begun(stores, services, orchestrator)
    used = result_pb2.UsageReported()
    used.usage.add(model_id="big", input_tokens=5)
    await run.sends({"usage_reported": used})
    assert run.run.view().usage == (Usage("big", 5, None),)
    completed = result_pb2.RunCompleted(finish_reason="stop")
    completed.usage.add(model_id="small", output_tokens=2**40)
    record = await run.ends(Outcome(RunStatus.COMPLETED, completed=completed))
    assert record.usage == (Usage("small", None, 2**40),)
    kept = await stores.ledger.get("run-1")
    assert kept is not None
    assert kept.usage == record.usage


async def test_failed_run_keeps_what_it_had_said_as_incomplete(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    run = await begun(stores, services, orchestrator)
    await run.sends(a_delta("Hel"))
    record = await run.ends(RunFault("runner.crashed", "gone", retryable=True).outcome())
    assert record.failure is not None
    assert record.failure.code == "runner.crashed"
    completed, failed = await run.stored()
    assert completed.message_completed.incomplete
    assert failed.run_failed.code == "runner.crashed"
    newest = (await stores.transcript.page(an_event().conversation_key)).items[0]
    assert (newest.text, newest.incomplete) == ("Hel", True)
