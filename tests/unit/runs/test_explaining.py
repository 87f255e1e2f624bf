"""Tests of `host_service.runs.explaining`, on real stores and with a real runner."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from runmesh.v1 import manifest_pb2, result_pb2, run_pb2

from host_service.agents.binding import Binding
from host_service.agents.declared import Declared
from host_service.agents.directory import AgentDirectory
from host_service.errors import NotFound
from host_service.registry import Introduction
from host_service.registry.instance import Instance
from host_service.runs.choice import ByBinding, ByCaller, by_found
from host_service.runs.course import Course, read_course
from host_service.runs.explaining import Ends, Explaining, Explanation, stretches_of
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.services import RunServices
from stores import Stores
from stores.audit import AuditOutcome, AuditRecord
from stores.records import RunStatus
from tests.unit.runs.active import a_run_record, save
from tests.unit.runs.runner import END, ServeScript
from tests.unit.runs.samples import NOON, RUNNER, a_delta, a_message, an_agent, an_event

Payloads = AsyncIterator[dict[str, Any]]
CANARY = "canary-51d0"


@pytest.fixture
def explaining(stores: Stores, orchestrator: Orchestrator, services: RunServices) -> Explaining:
    return Explaining(stores=stores, orchestrator=orchestrator, schemas=services.schemas)


def declare(services: RunServices, instance: Instance) -> None:
    """Let the runner have a secret field, and ask for history."""
    manifest = manifest_pb2.RunnerManifest(
        id=RUNNER,
        version="1",
        config_schema=[
            manifest_pb2.ConfigField(name="token", type="secret"),
            manifest_pb2.ConfigField(name="title", type="string"),
        ],
        permissions=manifest_pb2.RunnerPermissions(history=[manifest_pb2.HISTORY_PERMISSION_PAGE]),
    )
    instance.introduce(Introduction("i", "1", "", 0, {RUNNER: manifest}))
    services.registry._catalogue.learn(instance.plugin_id, services.registry.instances())


async def talk(_request: run_pb2.RunRequest) -> Payloads:
    yield {"message_delta": a_delta("Hel")}
    yield {"message_completed": result_pb2.MessageCompleted(message=a_message("Hello 世界"))}
    yield END


async def ended(orchestrator: Orchestrator, run_id: str) -> None:
    run = orchestrator.active.get(run_id)
    if run is not None:
        await asyncio.wait({run.ended})


async def explained(
    orchestrator: Orchestrator, explaining: Explaining, *, agent_id: str = ""
) -> Explanation:
    """Run the sample event to its end, and explain the run."""
    started = await orchestrator.start(an_event(), agent_id=agent_id)
    await ended(orchestrator, started.run.run_id)
    return await explaining.explain(started.run.run_id)


async def test_ended_run_is_explained_from_what_is_stored(
    orchestrator: Orchestrator,
    explaining: Explaining,
    directory: AgentDirectory,
    serving: ServeScript,
    services: RunServices,
    stores: Stores,
) -> None:
    runner, instance = await serving(talk)
    declare(services, instance)
    config = f'{{"token": "{CANARY}", "title": "desk"}}'
    bindings = [
        Binding(id="all", agent_id="helper", event_types=("message.*",)),
        Binding(
            id="ann",
            agent_id="helper",
            scope={"actor_id": "ann"},
            event_types=("message.received",),
        ),
    ]
    await directory.apply(Declared.of([an_agent(config_json=config)], bindings))
    told = await explained(orchestrator, explaining)
    assert json.loads(runner.requests[0].context.config_json) == json.loads(config)
    assert told.run == await stores.ledger.get(told.run.run_id)
    assert told.event is not None
    assert told.event.run_id == told.run.run_id
    assert told.choice == by_found(directory.find(an_event())[0])
    assert isinstance(told.choice, ByBinding)
    assert (told.choice.winner.binding_id, told.choice.beaten[0].binding_id) == ("ann", "all")
    assert (told.agent.config_json, list(told.withheld)) == ('{"title":"desk"}', ["token"])
    assert CANARY.encode() not in told.run.agent_snapshot
    assert told.course is not None
    granted = {(each.kind, each.name): each.granted for each in told.course.grants or ()}
    assert granted["permission", "history: page"]
    assert [each.kind for each in told.said.items] == ["message_completed", "run_completed"]
    assert [each.summary for each in told.said.items] == ["Hello 世界", "stop"]
    assert told.text_characters == len("Hello 世界")
    assert (told.advice, told.replayed_by, told.totals) == ("", [], [])
    assert [each.name for each in told.stretches][-3:] == ["first_result", "runner", "end"]
    assert told.run.ended_at is not None
    total = sum((each.duration for each in told.stretches), timedelta())
    assert total == told.run.ended_at - told.run.created_at


async def test_agent_that_the_caller_named_is_told_so(
    orchestrator: Orchestrator,
    explaining: Explaining,
    directory: AgentDirectory,
    serving: ServeScript,
) -> None:
    await serving(talk)
    await save(directory, an_agent())
    told = await explained(orchestrator, explaining, agent_id="helper")
    assert told.choice == ByCaller()


async def test_active_run_is_explained_as_far_as_it_went(
    orchestrator: Orchestrator,
    explaining: Explaining,
    directory: AgentDirectory,
    serving: ServeScript,
    stores: Stores,
) -> None:
    said, may_end = asyncio.Event(), asyncio.Event()

    async def slow(request: run_pb2.RunRequest) -> Payloads:
        yield {"message_completed": result_pb2.MessageCompleted(message=a_message("one"))}
        said.set()
        await may_end.wait()
        yield END

    await serving(slow)
    await save(directory, an_agent())
    started = await orchestrator.start(an_event(), agent_id="helper")
    await said.wait()
    run = orchestrator.active[started.run.run_id]
    while not run.delivery.delivered:  # noqa: ASYNC110 - its result is on the wire
        await asyncio.sleep(0.01)
    told = await explaining.explain(started.run.run_id)
    assert told.run.status is RunStatus.RUNNING
    assert [each.summary for each in told.said.items] == ["one"]
    assert told.course is not None
    assert told.course.grants is not None
    assert told.course.last_word_at is None
    assert [each.name for each in told.stretches][-1] == "first_result"
    assert told.advice == ""
    may_end.set()
    await ended(orchestrator, started.run.run_id)


async def test_course_of_a_long_run_is_stored_while_it_runs(
    orchestrator: Orchestrator,
    directory: AgentDirectory,
    serving: ServeScript,
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("host_service.runs.course_keeping._COURSE_SECONDS", 0.01)
    may_end = asyncio.Event()

    async def slow(request: run_pb2.RunRequest) -> Payloads:
        yield {"message_delta": a_delta("Hel")}
        await may_end.wait()
        yield END

    await serving(slow)
    await save(directory, an_agent())
    started = await orchestrator.start(an_event(), agent_id="helper")
    run_id = started.run.run_id

    async def stored() -> Course | None:
        notes = await stores.ledger.notes(run_id)
        assert notes is not None
        return read_course(notes.course)

    async with asyncio.timeout(10):
        while (course := await stored()) is None:  # noqa: ASYNC110 - the ledger tells nobody
            await asyncio.sleep(0.01)
    assert course.grants is not None
    assert course.last_word_at is None
    may_end.set()
    await ended(orchestrator, run_id)
    course = await stored()
    assert course is not None
    assert course.last_word_at is not None


async def test_end_that_the_store_took_long_for_says_so(
    orchestrator: Orchestrator,
    explaining: Explaining,
    directory: AgentDirectory,
    serving: ServeScript,
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("host_service.runs.course_keeping._SLOW_SECONDS", 0.0)
    await serving(talk)
    await save(directory, an_agent())
    told = await explained(orchestrator, explaining, agent_id="helper")
    await stores.journal.flush()
    told = await explaining.explain(told.run.run_id)
    assert [each.name for each in told.stretches][-2:] == ["end", "store"]


async def test_failure_is_told_with_what_to_do_next(
    orchestrator: Orchestrator, explaining: Explaining, directory: AgentDirectory
) -> None:
    await save(directory, an_agent())
    told = await explained(orchestrator, explaining, agent_id="helper")
    assert told.run.failure is not None
    assert told.run.failure.code == "runner.unavailable"
    assert "runmesh runners list" in told.advice
    assert told.course is not None
    assert told.course.grants is None
    assert [each.name for each in told.stretches][-1] != "runner"


async def test_calls_are_told_in_their_order_and_summed_by_rpc(
    orchestrator: Orchestrator, explaining: Explaining, directory: AgentDirectory, stores: Stores
) -> None:
    await save(directory, an_agent())
    first = await explained(orchestrator, explaining, agent_id="helper")
    for number, (rpc, outcome, count) in enumerate(
        [
            ("PageHistory", AuditOutcome.DONE, 1),
            ("GetState", AuditOutcome.REFUSED, 3),
            ("PageHistory", AuditOutcome.FAILED, 1),
        ]
    ):
        row = AuditRecord(
            at=NOON + timedelta(seconds=number),
            rpc=rpc,
            outcome=outcome,
            run_id=first.run.run_id,
            count=count,
            duration_seconds=0.25,
        )
        stores.audit.append(row)
    stores.audit.append(AuditRecord(at=NOON, rpc="GetState", outcome=AuditOutcome.DONE, run_id="x"))
    told = await explaining.explain(first.run.run_id)
    assert [(each.rpc, each.outcome.name) for each in told.calls.items] == [
        ("PageHistory", "DONE"),
        ("GetState", "REFUSED"),
        ("PageHistory", "FAILED"),
    ]
    assert [(each.rpc, each.count, each.not_done, each.seconds) for each in told.totals] == [
        ("PageHistory", 2, 1, 0.5),
        ("GetState", 3, 3, 0.25),
    ]


async def test_what_was_kept_before_values_were_withheld_is_not_shown_whole(
    explaining: Explaining, stores: Stores, services: RunServices, serving: ServeScript
) -> None:
    _, instance = await serving(talk)
    declare(services, instance)
    old = an_agent(config_json=f'{{"token": "{CANARY}", "title": "desk"}}')
    record = a_run_record(an_event(), agent_snapshot=old.to_document().encode())
    await stores.ledger.accept(an_event().record("run-1"), record)
    told = await explaining.explain("run-1")
    assert (told.agent.config_json, list(told.withheld)) == ('{"title":"desk"}', ["token"])
    assert (told.choice, told.course) == (None, None)


async def test_unknown_run_is_not_found(explaining: Explaining) -> None:
    with pytest.raises(NotFound):
        await explaining.explain("run-1")


def at(seconds: float) -> Any:
    return NOON + timedelta(seconds=seconds)


def stretches(run: dict[str, float], **course: float) -> list[tuple[str, float]]:
    record = a_run_record(an_event(), **{name: at(value) for name, value in run.items()})
    noted = Course(**{f"{name}_at": at(value) for name, value in course.items()})
    return [(each.name, each.duration.total_seconds()) for each in stretches_of(record, noted)]


def test_stretches_follow_each_other() -> None:
    assert stretches(
        {"queued_at": 0.25, "started_at": 3, "ended_at": 9},
        turn=1,
        instance=2.5,
        first_result=5,
        last_word=8,
    ) == [
        ("accept", 0.25),
        ("turn", 0.75),
        ("instance", 1.5),
        ("start", 0.5),
        ("first_result", 2),
        ("runner", 3),
        ("end", 1),
    ]


def test_what_is_not_known_is_part_of_the_next_stretch() -> None:
    assert stretches({"started_at": 3, "ended_at": 9}) == [("waiting", 3), ("runner", 6)]
    assert stretches({"ended_at": 9}) == [("waiting", 9)]
    assert stretches({"ended_at": 9}, turn=2) == [("turn", 2), ("waiting", 7)]
    assert stretches({}) == []


def test_run_that_did_not_wait_has_no_stretch_of_waiting() -> None:
    assert stretches({"started_at": 1, "ended_at": 4}, instance=1, first_result=2, last_word=4) == [
        ("accept", 1),
        ("first_result", 1),
        ("runner", 2),
    ]


def test_no_stretch_takes_less_than_no_time() -> None:
    assert stretches({"started_at": -1, "ended_at": 2}, instance=1, last_word=1.5) == [
        ("accept", 1),
        ("runner", 0.5),
        ("end", 0.5),
    ]


@pytest.mark.parametrize(("count", "left_out"), [(0, 0), (500, 0), (1_000, 0), (1_001, 1)])
def test_of_many_the_first_and_the_last_are_kept(count: int, left_out: int) -> None:
    ends: Ends[int] = Ends()
    for number in range(count):
        ends.add(number)
    kept = [*range(min(count, 500)), *range(max(500, count - 500), count)]
    assert (ends.items, ends.left_out) == (kept, left_out)
