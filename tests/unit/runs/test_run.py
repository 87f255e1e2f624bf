"""Tests of `host_service.runs.run` and `orchestrator`: runs on a real server and real stores."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from runmesh.v1 import result_pb2, run_pb2

from host_service.agents.directory import AgentDirectory
from host_service.errors import (
    AlreadyExists,
    NoBinding,
    NotFound,
    Overloaded,
    Unauthenticated,
    Unavailable,
)
from host_service.limits import Limits
from host_service.registry import FoundBy
from host_service.runs.entry import session_key
from host_service.runs.event import Event, take_in
from host_service.runs.log import Batch, Ended
from host_service.runs.orchestrator import Orchestrator, Started
from host_service.runs.services import RunServices
from stores import Stores
from stores.errors import StoreUnavailable
from stores.records import RunRecord, RunStatus
from tests.unit.runs.active import results_of, save
from tests.unit.runs.runner import END, ServeScript, introduce
from tests.unit.runs.samples import NOON, a_delta, an_agent, an_envelope, an_event
from tests.unit.runs.test_delivery import CALL

Payloads = AsyncIterator[dict[str, Any]]


@pytest.fixture
def limits() -> Limits:
    return replace(
        Limits(),
        active_runs=2,
        waiting_runs=1,
        instance_wait_seconds=0.05,
        interrupt_grace_seconds=0.05,
    )


@pytest.fixture(autouse=True)
async def _agents(directory: AgentDirectory) -> None:
    await save(directory, an_agent(), an_agent(id="hasty", timeout_seconds=0.05))


async def outcome(started: Started) -> tuple[list[result_pb2.RunResult], RunRecord]:
    """Return all results of a run, and its end."""
    assert started.reader is not None
    results: list[result_pb2.RunResult] = []
    async with asyncio.timeout(10):
        while not isinstance(item := await started.reader.take(), Ended):
            if isinstance(item, Batch):
                results += results_of(item)
    started.reader.close()
    return results, item.run


async def ran(
    orchestrator: Orchestrator, *, agent_id: str = "helper", event: Event | None = None
) -> tuple[list[result_pb2.RunResult], RunRecord]:
    """Start a run and wait for its end."""
    event = event or an_event()
    return await outcome(await orchestrator.start(event, agent_id=agent_id, with_reader=True))


def failure(record: RunRecord) -> str:
    return record.failure.code if record.failure else ""


async def hello(_request: run_pb2.RunRequest) -> Payloads:
    yield {"message_delta": a_delta("Hello")}
    yield END


async def forever(_request: run_pb2.RunRequest) -> Payloads:
    yield {"message_delta": a_delta("Hel")}
    await asyncio.Event().wait()


async def test_run_goes_from_its_event_to_a_stored_end(
    orchestrator: Orchestrator, serving: ServeScript, stores: Stores, services: RunServices
) -> None:
    runner, instance = await serving(hello)
    started = await orchestrator.start(an_event(), agent_id="helper", with_reader=True)
    assert started.run.status is RunStatus.RUNNING
    results, record = await outcome(started)
    assert [each.WhichOneof("payload") for each in results] == [
        "message_delta",
        "message_completed",
        "run_completed",
    ]
    assert record.status is RunStatus.COMPLETED
    assert record == await stores.ledger.get(record.run_id)
    (request,) = runner.requests
    assert request.runner_id == record.runner_id
    assert request.context.run_id == record.run_id
    assert request.timeout.seconds == 300
    assert record.started_at is not None
    assert record.deadline == record.started_at + timedelta(seconds=300)
    assert request.context.runtime.deadline.ToDatetime(NOON.tzinfo) == record.deadline
    assert request.host_access.instance_token == instance.instance_token
    # The token died with the run, and the place and the slot are free.
    with pytest.raises(Unauthenticated):
        services.tokens.check(
            authorization=f"Bearer {request.host_access.run_token}",
            instance_token=instance.instance_token,
        )
    assert (instance.active_runs, orchestrator.admission.active) == (0, 0)
    assert not orchestrator.active


async def test_token_is_good_while_the_run_lasts(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices
) -> None:
    checked: list[str] = []

    async def script(request: run_pb2.RunRequest) -> Payloads:
        access = request.host_access
        opened = services.tokens.check(
            authorization=f"Bearer {access.run_token}", instance_token=access.instance_token
        )
        checked.append(opened.snapshot.run_id)
        yield {"message_delta": a_delta("x")}
        yield END

    await serving(script)
    _, record = await ran(orchestrator)
    assert checked == [record.run_id]


@pytest.mark.parametrize(
    ("payloads", "status", "code"),
    [
        ([{"message_delta": a_delta("x")}], RunStatus.FAILED, "runner.protocol"),
        ([], RunStatus.FAILED, "runner.protocol"),
        ([END], RunStatus.FAILED, "runner.empty_output"),
        ([{"message_delta": a_delta("")}, END], RunStatus.FAILED, "runner.empty_output"),
        ([CALL, END], RunStatus.FAILED, "runner.empty_output"),
        (
            [{"run_completed": result_pb2.RunCompleted(finish_reason="silent")}],
            RunStatus.COMPLETED,
            "",
        ),
        ([{"message_delta": a_delta("x")}, END], RunStatus.COMPLETED, ""),
        (
            [{"run_failed": result_pb2.RunFailed(code="acme.quota", message="m")}],
            RunStatus.FAILED,
            "acme.quota",
        ),
        ([{"message_delta": a_delta("x"), "run_id": "run-9"}], RunStatus.FAILED, "runner.protocol"),
    ],
)
async def test_end_of_a_run_is_what_its_runner_made_of_it(
    orchestrator: Orchestrator,
    serving: ServeScript,
    payloads: list[dict[str, Any]],
    status: RunStatus,
    code: str,
) -> None:
    async def script(_request: run_pb2.RunRequest) -> Payloads:
        for payload in payloads:
            yield payload

    await serving(script)
    results, record = await ran(orchestrator)
    assert (record.status, failure(record)) == (status, code)
    terminals = [
        each for each in results if each.HasField("run_completed") or each.HasField("run_failed")
    ]
    assert terminals == results[-1:]


async def test_event_that_is_no_message_may_be_answered_with_nothing(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    async def script(_request: run_pb2.RunRequest) -> Payloads:
        yield END

    await serving(script)
    _, record = await ran(orchestrator, event=an_event(type="group.member_joined"))
    assert record.status is RunStatus.COMPLETED


async def test_what_follows_the_terminal_result_is_a_warning_on_a_good_end(
    orchestrator: Orchestrator, serving: ServeScript, stores: Stores
) -> None:
    async def script(_request: run_pb2.RunRequest) -> Payloads:
        yield {"message_delta": a_delta("x")}
        yield END
        yield {"message_delta": a_delta("y")}

    await serving(script)
    _, record = await ran(orchestrator)
    assert record.status is RunStatus.COMPLETED
    assert [each.code for each in record.warnings] == ["after_terminal"]
    assert await stores.ledger.get(record.run_id) == record


async def test_runner_that_ignores_the_deadline_is_cut_off(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    runner, _ = await serving(forever)
    results, record = await ran(orchestrator, agent_id="hasty")
    assert (record.status, failure(record)) == (RunStatus.TIMED_OUT, "runner.timeout")
    assert results[-2].message_completed.incomplete
    await asyncio.wait_for(runner.left.wait(), 5)


async def test_cancelled_run_ends_as_cancelled_whatever_its_runner_does(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    runner, _ = await serving(forever)
    started = await orchestrator.start(an_event(), agent_id="helper")
    await asyncio.wait_for(runner.called.wait(), 5)
    record = await orchestrator.cancel(started.run.run_id, "enough")
    assert record.status is RunStatus.CANCELLED
    assert record.failure is not None
    assert (record.failure.code, record.failure.message) == ("cancelled", "enough")
    assert runner.interrupts == []
    # Once more, it is as it was.
    assert await orchestrator.cancel(record.run_id, "again") == record


async def test_runner_that_can_is_interrupted_and_may_still_say_something(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    async def script(_request: run_pb2.RunRequest) -> Payloads:
        yield {"message_delta": a_delta("Hel")}
        await runner.interrupted.wait()
        yield {"message_delta": a_delta("p")}
        yield {"run_failed": result_pb2.RunFailed(code="cancelled", message="as asked")}

    runner, _ = await serving(script, interrupt=True)
    started = await orchestrator.start(an_event(), agent_id="helper", with_reader=True)
    await asyncio.wait_for(runner.called.wait(), 5)
    orchestrator.give_up(started.run.run_id, "caller left")
    results, record = await outcome(started)
    assert runner.interrupts == ["cancelled"]
    assert record.status is RunStatus.CANCELLED
    assert results[-2].message_completed.message.parts[0].text == "Help"


async def test_runner_that_does_not_stop_when_interrupted_is_cut_off_after_the_grace(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    runner, _ = await serving(forever, interrupt=True)
    started = await orchestrator.start(an_event(), agent_id="helper")
    await asyncio.wait_for(runner.called.wait(), 5)
    record = await orchestrator.cancel(started.run.run_id, "")
    assert record.status is RunStatus.CANCELLED
    await asyncio.wait_for(runner.left.wait(), 5)


async def test_instance_that_cannot_be_reached_is_passed_over_for_the_next(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices
) -> None:
    gone = introduce(services.registry, "unix:/nowhere/at/all")
    runner, instance = await serving(hello)
    for _ in range(2):
        _, record = await ran(orchestrator, event=an_event(event_id=f"e{len(runner.requests)}"))
        assert record.status is RunStatus.COMPLETED
    assert len(runner.requests) == 2
    assert (gone.active_runs, instance.active_runs) == (0, 0)


async def test_run_without_an_instance_fails_as_unavailable(orchestrator: Orchestrator) -> None:
    _, record = await ran(orchestrator)
    assert failure(record) == "runner.unavailable"
    assert record.failure is not None
    assert record.failure.retryable
    assert record.queued_at is not None


async def test_agent_that_no_longer_fits_its_runner_fails_before_it_is_called(
    orchestrator: Orchestrator, serving: ServeScript, directory: AgentDirectory
) -> None:
    runner, instance = await serving(hello)
    odd = an_agent(id="odd", config_json='{"no_such_field": 1}')
    await save(directory, odd)
    _, record = await ran(orchestrator, agent_id="odd")
    assert failure(record) == "host.configuration"
    assert runner.requests == []
    assert instance.active_runs == 0


async def test_runs_beyond_the_limit_wait_their_turn_and_beyond_the_line_are_refused(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    go = asyncio.Event()

    async def script(_request: run_pb2.RunRequest) -> Payloads:
        yield {"message_delta": a_delta("x")}
        await go.wait()
        yield END

    await serving(script)
    started = [
        await orchestrator.start(
            an_event(event_id=f"e{number}"), agent_id="helper", with_reader=True
        )
        for number in range(3)
    ]
    assert (orchestrator.admission.active, orchestrator.admission.waiting) == (2, 1)
    with pytest.raises(Overloaded):
        await orchestrator.start(an_event(event_id="e9"), agent_id="helper")
    go.set()
    for each in started:
        _, record = await outcome(each)
        assert record.status is RunStatus.COMPLETED
        assert (record.queued_at is not None) is (each is started[2])


async def test_waiting_run_can_be_cancelled_and_costs_nobody_a_turn(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    go = asyncio.Event()

    async def script(_request: run_pb2.RunRequest) -> Payloads:
        yield {"message_delta": a_delta("x")}
        await go.wait()
        yield END

    await serving(script)
    started = [
        await orchestrator.start(
            an_event(event_id=f"e{number}"), agent_id="helper", with_reader=True
        )
        for number in range(3)
    ]
    record = await orchestrator.cancel(started[2].run.run_id, "no more")
    assert record.status is RunStatus.CANCELLED
    assert orchestrator.admission.waiting == 0
    go.set()
    for each in started[:2]:
        assert (await outcome(each))[1].status is RunStatus.COMPLETED
    assert orchestrator.admission.active == 0


async def test_redelivery_is_answered_with_the_run_that_the_event_has(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    runner, _ = await serving(hello)
    _, record = await ran(orchestrator)
    again = await orchestrator.start(an_event(), agent_id="helper", with_reader=True)
    assert (again.duplicate, again.reader) == (True, None)
    assert again.run == record
    assert len(runner.requests) == 1
    assert orchestrator.admission.active == 0


async def test_same_event_at_the_same_time_runs_once(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    runner, _ = await serving(hello)
    one, other = await asyncio.gather(
        orchestrator.start(an_event(), agent_id="helper"),
        orchestrator.start(an_event(), agent_id="helper"),
    )
    assert one.run.run_id == other.run.run_id
    assert {one.duplicate, other.duplicate} == {True, False}
    await orchestrator.drain(5, asyncio.Event())
    assert len(runner.requests) == 1


async def test_same_event_with_other_content_is_refused(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    await serving(hello)
    await ran(orchestrator)
    with pytest.raises(AlreadyExists, match="event-1"):
        await orchestrator.start(an_event(type="message.recalled"), agent_id="helper")
    assert orchestrator.admission.active == 0


async def test_event_that_no_binding_matches_is_logged_and_tried_anew(
    orchestrator: Orchestrator, serving: ServeScript, stores: Stores
) -> None:
    await serving(hello)
    for _ in range(2):
        with pytest.raises(NoBinding):
            await orchestrator.start(an_event())
    logged = await stores.events.get("acme", "desk", "platform", "event-1")
    assert logged is not None
    assert logged.run_id is None
    with pytest.raises(AlreadyExists):
        await orchestrator.start(an_event(type="message.recalled"))
    _, record = await ran(orchestrator)
    assert record.status is RunStatus.COMPLETED


async def test_event_without_an_id_is_never_a_redelivery(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    runner, _ = await serving(hello)
    for _ in range(2):
        envelope = an_envelope(event_id="")
        await ran(orchestrator, event=take_in(envelope, received_at=NOON, limits=Limits()))
    assert len(runner.requests) == 2


async def test_unknown_agents_and_runs_are_not_found(orchestrator: Orchestrator) -> None:
    with pytest.raises(NotFound):
        await orchestrator.start(an_event(), agent_id="nobody")
    with pytest.raises(NotFound):
        await orchestrator.cancel("run-9", "")
    assert await orchestrator.get("run-9") is None


async def test_caller_that_goes_away_before_the_answer_loses_the_answer_and_not_the_run(
    orchestrator: Orchestrator, serving: ServeScript, stores: Stores
) -> None:
    runner, _ = await serving(hello)
    asking = asyncio.create_task(orchestrator.start(an_event(), agent_id="helper"))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    await orchestrator.drain(5, asyncio.Event())
    logged = await stores.events.get("acme", "desk", "platform", "event-1")
    assert logged is not None
    assert logged.run_id is not None
    record = await stores.ledger.get(logged.run_id)
    assert record is not None
    assert record.status is RunStatus.COMPLETED
    assert len(runner.requests) == 1


async def test_run_that_shall_end_with_its_caller_is_cancelled_when_that_leaves_at_once(
    orchestrator: Orchestrator, serving: ServeScript, stores: Stores, services: RunServices
) -> None:
    _, instance = await serving(hello)
    asking = asyncio.create_task(
        orchestrator.start(an_event(), agent_id="helper", ends_with_caller=True)
    )
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    await orchestrator.drain(5, asyncio.Event())
    assert instance.active_runs == 0
    assert len(services.tokens) == 0
    logged = await stores.events.get("acme", "desk", "platform", "event-1")
    assert logged is not None
    assert logged.run_id is not None
    record = await stores.ledger.get(logged.run_id)
    assert record is not None
    assert record.status is RunStatus.CANCELLED
    assert record.failure is not None
    assert "caller went away" in record.failure.message


async def test_caller_that_reads_slowly_slows_its_runner_and_gets_everything(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices
) -> None:
    orchestrator._entry._services = replace(
        services, limits=replace(services.limits, reader_buffer_bytes=1)
    )

    async def script(_request: run_pb2.RunRequest) -> Payloads:
        for _ in range(30):
            yield {"message_delta": a_delta("x")}
        yield END

    await serving(script)
    results, record = await ran(orchestrator)
    assert record.status is RunStatus.COMPLETED
    assert [each.sequence for each in results] == [*range(1, 33)]


class _NoEnds:
    """A ledger that cannot store an end."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def finish(self, *_: Any) -> asyncio.Future[bool]:
        failed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        failed.set_exception(StoreUnavailable("the disk is full"))
        return failed


async def test_end_that_cannot_be_stored_is_shown_to_nobody(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, stores: Stores
) -> None:
    orchestrator._entry._services = replace(services, ledger=_NoEnds(stores.ledger))
    runner, instance = await serving(forever)
    started = await orchestrator.start(an_event(), agent_id="helper", with_reader=True)
    await asyncio.wait_for(runner.called.wait(), 5)
    with pytest.raises(Unavailable, match="could not be stored"):
        await orchestrator.cancel(started.run.run_id, "enough")
    assert started.reader is not None
    with pytest.raises(Unavailable):  # noqa: PT012 - some deltas may come first
        while True:
            item = await started.reader.take()
            assert isinstance(item, Batch)
            assert all(each.HasField("message_delta") for each in results_of(item))
    assert (instance.active_runs, orchestrator.admission.active) == (0, 0)


async def test_shutdown_lets_runs_finish_and_takes_no_more(
    orchestrator: Orchestrator, serving: ServeScript
) -> None:
    go = asyncio.Event()

    async def script(_request: run_pb2.RunRequest) -> Payloads:
        yield {"message_delta": a_delta("x")}
        await go.wait()
        yield END

    runner, _ = await serving(script)
    started = await orchestrator.start(an_event(), agent_id="helper", with_reader=True)
    await asyncio.wait_for(runner.called.wait(), 5)
    draining = asyncio.create_task(orchestrator.drain(30, asyncio.Event()))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await orchestrator.start(an_event(event_id="e2"), agent_id="helper")
    go.set()
    assert (await outcome(started))[1].status is RunStatus.COMPLETED
    await asyncio.wait_for(draining, 5)


async def test_shutdown_cancels_what_does_not_finish_within_the_grace_or_in_a_hurry(
    orchestrator: Orchestrator, serving: ServeScript, stores: Stores
) -> None:
    runner, _ = await serving(forever)
    started = await orchestrator.start(an_event(), agent_id="helper", with_reader=True)
    await asyncio.wait_for(runner.called.wait(), 5)
    hurry = asyncio.Event()
    hurry.set()
    await asyncio.wait_for(orchestrator.drain(3600, hurry), 5)
    record = await stores.ledger.get(started.run.run_id)
    assert record is not None
    assert record.status is RunStatus.CANCELLED
    assert record.failure is not None
    assert "shutting down" in record.failure.message


async def test_shutdown_leaves_waiting_runs_to_the_next_host(
    orchestrator: Orchestrator, stores: Stores, services: RunServices
) -> None:
    # Its plugin is starting: the run waits.
    services.registry.add(plugin_id="acme/desk", found_by=FoundBy.FOLDER, address="unix:/nowhere")
    patient = replace(services, limits=replace(services.limits, instance_wait_seconds=3600))
    orchestrator._entry._services = patient
    started = await orchestrator.start(an_event(), agent_id="helper", with_reader=True)
    await asyncio.wait_for(orchestrator.drain(30, asyncio.Event()), 5)
    record = await stores.ledger.get(started.run.run_id)
    assert record is not None
    assert record.status in {RunStatus.ACCEPTED, RunStatus.QUEUED}
    assert started.reader is not None
    with pytest.raises(Unavailable):
        await started.reader.take()


async def test_reader_that_does_not_read_does_not_hold_the_run(
    orchestrator: Orchestrator, serving: ServeScript, services: RunServices, stores: Stores
) -> None:
    orchestrator._entry._services = replace(
        services,
        limits=replace(services.limits, reader_buffer_bytes=1, reader_patience_seconds=0.01),
    )
    await serving(hello)
    started = await orchestrator.start(an_event(), agent_id="helper", with_reader=True)
    await asyncio.wait_for(orchestrator.drain(30, asyncio.Event()), 5)
    record = await stores.ledger.get(started.run.run_id)
    assert record is not None
    assert record.status is RunStatus.COMPLETED


def test_session_is_known_by_everything_that_tells_conversations_with_an_agent_apart() -> None:
    agent = an_agent()
    changes: list[dict[str, Any]] = [
        {"workspace_id": "x"},
        {"bot_id": "x"},
        {"conversation_id": "x"},
        {"thread_id": "x"},
    ]
    keys = {session_key(an_event(**each), agent) for each in changes}
    keys |= {session_key(an_event(), each) for each in (agent, an_agent(id="x"))}
    keys.add(session_key(an_event(), an_agent(runner_id="plugin:acme/desk/x")))
    assert len(keys) == 7
    assert session_key(an_event(event_id="other"), agent) == session_key(an_event(), agent)
