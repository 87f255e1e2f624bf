"""Tests of `host_service.runs.replaying`, on real stores and with real runners."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from runmesh.v1 import manifest_pb2, result_pb2, run_pb2

from host_service.agents.directory import AgentDirectory
from host_service.errors import InvalidArgument, NotFound, Unavailable
from host_service.identity import join_key
from host_service.registry import Introduction
from host_service.registry.instance import Instance
from host_service.runs.choice import ByReplay, read_choice
from host_service.runs.event import Event
from host_service.runs.log import Ended
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.replaying import Replayed, Replaying, ReplayOrder
from host_service.runs.services import RunServices
from stores import Stores
from stores.records import RunQuery, RunRecord, RunStatus
from tests.unit.runs.active import save
from tests.unit.runs.runner import END, ServeScript
from tests.unit.runs.samples import RUNNER, a_delta, a_message, an_agent, an_event

Payloads = AsyncIterator[dict[str, Any]]
CANARY = "canary-9c44"


@pytest.fixture
def replaying(stores: Stores, orchestrator: Orchestrator, services: RunServices) -> Replaying:
    return Replaying(stores=stores, orchestrator=orchestrator, services=services)


def says(text: str) -> dict[str, Any]:
    return {"message_completed": result_pb2.MessageCompleted(message=a_message(text))}


async def hello(_request: run_pb2.RunRequest) -> Payloads:
    yield says("Hello")
    yield END


async def remember(request: run_pb2.RunRequest) -> Payloads:
    """Say what the conversation's state was, and write it."""
    before = request.context.state.conversation_json.get("seen", "nothing")
    yield {
        "state_updated": result_pb2.StateUpdated(
            scope=result_pb2.STATE_SCOPE_CONVERSATION,
            key="seen",
            value_json=json.dumps(request.context.run_id),
        )
    }
    yield says(f"before: {before}")
    yield END


async def run(orchestrator: Orchestrator, event: Event | None = None) -> RunRecord:
    started = await orchestrator.start(event or an_event(), agent_id="helper")
    active = orchestrator.active.get(started.run.run_id)
    if active is not None:
        await asyncio.wait({active.ended})
    ended = await orchestrator.get(started.run.run_id)
    assert ended is not None
    return ended


async def end_of(replayed: Replayed) -> RunRecord:
    reader = replayed.started.reader
    assert reader is not None
    async with asyncio.timeout(10):
        while not isinstance(item := await reader.take(), Ended):
            pass
    reader.close()
    return item.run


async def replay(replaying: Replaying, run_id: str, **order: Any) -> RunRecord:
    return await end_of(await replaying.start(ReplayOrder(run_id=run_id, **order)))


def declare(services: RunServices, instance: Instance) -> None:
    """Let the runner have a secret field."""
    manifest = manifest_pb2.RunnerManifest(
        id=RUNNER,
        version="1",
        config_schema=[manifest_pb2.ConfigField(name="token", type="secret")],
    )
    instance.introduce(Introduction("i", "1", "", 0, {RUNNER: manifest}))
    services.registry._catalogue.learn(instance.plugin_id, services.registry.instances())


async def test_runner_gets_the_stored_event_and_context_again_marked_as_a_replay(
    orchestrator: Orchestrator,
    replaying: Replaying,
    directory: AgentDirectory,
    serving: ServeScript,
    stores: Stores,
) -> None:
    runner, _ = await serving(hello)
    await save(directory, an_agent())
    original = await run(orchestrator)
    again = await replay(replaying, original.run_id)
    assert again.status is RunStatus.COMPLETED
    assert (again.replay_of, again.event_id) == (original.run_id, original.event_id)
    assert again == await stores.ledger.get(again.run_id)
    first, second = (request.context for request in runner.requests)
    assert dict(second.runtime.metadata) == {"replay_of": original.run_id, "side_effects": "off"}
    assert dict(first.runtime.metadata) == {}
    for field in ("event", "input", "actor", "conversation", "trigger", "context", "config_json"):
        assert getattr(first, field) == getattr(second, field), field
    assert second.session_key != first.session_key
    notes = await stores.ledger.notes(again.run_id)
    assert notes is not None
    assert read_choice(notes.resolution) == ByReplay(side_effects=False)
    assert not orchestrator.active
    assert (orchestrator.admission.active, len(orchestrator.sessions)) == (0, 0)


async def test_replay_stands_where_its_original_stood(
    orchestrator: Orchestrator,
    replaying: Replaying,
    directory: AgentDirectory,
    serving: ServeScript,
) -> None:
    runner, _ = await serving(hello)
    await save(directory, an_agent())
    await run(orchestrator)
    original = await run(orchestrator, an_event(event_id="event-2"))
    await run(orchestrator, an_event(event_id="event-3"))
    again = await replay(replaying, original.run_id)
    assert again.latest_cursor_position == original.latest_cursor_position == 2
    contexts = [request.context.context for request in runner.requests]
    assert contexts[3] == contexts[1]
    assert contexts[3].latest_cursor != contexts[2].latest_cursor


async def test_nothing_of_a_replay_stays_unless_it_is_asked_for(
    orchestrator: Orchestrator,
    replaying: Replaying,
    directory: AgentDirectory,
    serving: ServeScript,
    stores: Stores,
) -> None:
    runner, _ = await serving(remember)
    await save(directory, an_agent())
    original = await run(orchestrator)

    async def left() -> tuple[int, list[str]]:
        items = (await stores.transcript.page(original.conversation_key)).items
        scope = join_key("conversation", RUNNER, "helper", original.conversation_key)
        return len(items), [entry.value for entry in (await stores.state.list(scope)).items]

    before = await left()
    assert before == (2, [f'"{original.run_id}"'])
    quiet = await replay(replaying, original.run_id)
    assert quiet.status is RunStatus.COMPLETED
    assert quiet.warnings == ()
    assert await left() == before
    assert {each.kind for each in await stores.ledger.results(quiet.run_id)} == {
        "state_updated",
        "message_completed",
        "run_completed",
    }
    loud = await replay(replaying, original.run_id, side_effects=True)
    assert await left() == (3, [f'"{loud.run_id}"'])
    sessions = [request.context.session_key for request in runner.requests]
    assert sessions[2] == sessions[0] != sessions[1]
    assert runner.requests[2].context.runtime.metadata["side_effects"] == "on"


async def test_replay_sees_its_own_writes_and_the_next_one_does_not(
    orchestrator: Orchestrator,
    replaying: Replaying,
    directory: AgentDirectory,
    serving: ServeScript,
    services: RunServices,
) -> None:
    seen: list[str | None] = []

    async def write(request: run_pb2.RunRequest) -> Payloads:
        access = services.tokens.check(
            authorization=f"Bearer {request.host_access.run_token}",
            instance_token=request.host_access.instance_token,
        )
        if access.stores is not None:
            [scope] = [key for name, key in access.snapshot.state_keys.items() if name == "actor"]
            before = await access.stores.state.get(scope, "mine")
            seen.append(before.value if before else None)
            await access.stores.state.set(scope, "mine", "1")
            after = await access.stores.state.get(scope, "mine")
            seen.append(after.value if after else None)
        yield says("done")
        yield END

    await serving(write)
    await save(directory, an_agent())
    original = await run(orchestrator)
    await replay(replaying, original.run_id)
    await replay(replaying, original.run_id)
    assert seen == [None, "1", None, "1"]


async def test_redelivery_still_finds_the_original(
    orchestrator: Orchestrator,
    replaying: Replaying,
    directory: AgentDirectory,
    serving: ServeScript,
) -> None:
    await serving(hello)
    await save(directory, an_agent())
    original = await run(orchestrator)
    await replay(replaying, original.run_id)
    again = await orchestrator.start(an_event(), agent_id="helper")
    assert (again.duplicate, again.run.run_id) == (True, original.run_id)


async def test_replay_of_a_replay_replays_the_original(
    orchestrator: Orchestrator,
    replaying: Replaying,
    directory: AgentDirectory,
    serving: ServeScript,
) -> None:
    await serving(hello)
    await save(directory, an_agent())
    original = await run(orchestrator)
    first = await replay(replaying, original.run_id)
    second = await replay(replaying, first.run_id)
    assert second.replay_of == original.run_id


async def test_secrets_are_those_of_the_agent_as_it_is_now(
    orchestrator: Orchestrator,
    replaying: Replaying,
    directory: AgentDirectory,
    serving: ServeScript,
    services: RunServices,
) -> None:
    runner, instance = await serving(hello)
    declare(services, instance)
    await save(directory, an_agent(config_json=f'{{"token": "{CANARY}"}}'))
    original = await run(orchestrator)
    same = await replay(replaying, original.run_id)
    await save(directory, an_agent(config_json='{"token": "renewed"}'))
    renewed = await replay(replaying, original.run_id)
    tokens = [json.loads(request.context.config_json)["token"] for request in runner.requests]
    assert tokens == [CANARY, CANARY, "renewed"]
    assert same.warnings == ()
    assert [each.code for each in renewed.warnings] == ["secrets_of_another_revision"]
    await directory.delete_agent("helper")
    gone = await replay(replaying, original.run_id)
    assert gone.failure is not None
    assert gone.failure.code == "host.configuration"
    assert "token" in gone.failure.message
    assert len(runner.requests) == 3


async def test_comparison_names_what_came_out_otherwise(
    orchestrator: Orchestrator,
    replaying: Replaying,
    directory: AgentDirectory,
    serving: ServeScript,
) -> None:
    texts = iter(["one", "one", "two"])

    async def script(_request: run_pb2.RunRequest) -> Payloads:
        text = next(texts, "")
        if not text:
            yield {"run_failed": result_pb2.RunFailed(code="acme.odd", message="no")}
            return
        yield {"message_delta": a_delta(text)}
        yield END

    await serving(script)
    await save(directory, an_agent())
    original = await run(orchestrator)
    differences = [
        await replaying.compare(original, await replay(replaying, original.run_id))
        for _ in range(3)
    ]
    assert differences == [(), ("text",), ("status", "failure", "text")]
    under_way = replace(original, status=RunStatus.RUNNING)
    assert await replaying.compare(under_way, original) == ()


async def test_replay_may_be_cancelled(
    orchestrator: Orchestrator,
    replaying: Replaying,
    directory: AgentDirectory,
    serving: ServeScript,
) -> None:
    calls = 0

    async def script(_request: run_pb2.RunRequest) -> Payloads:
        nonlocal calls
        calls += 1
        yield says("begun")
        if calls > 1:
            await asyncio.Event().wait()
        yield END

    await serving(script)
    await save(directory, an_agent())
    original = await run(orchestrator)
    replayed = await replaying.start(ReplayOrder(run_id=original.run_id))
    orchestrator.give_up(replayed.started.run.run_id, "enough")
    ended = await end_of(replayed)
    assert ended.status is RunStatus.CANCELLED
    async with asyncio.timeout(10):
        while orchestrator.active:  # noqa: ASYNC110 - its task is about to end
            await asyncio.sleep(0)


async def test_what_cannot_be_replayed_is_not_found(replaying: Replaying) -> None:
    with pytest.raises(NotFound):
        await replaying.start(ReplayOrder(run_id="run-1"))


async def test_text_that_is_no_runner_is_refused(
    orchestrator: Orchestrator,
    replaying: Replaying,
    directory: AgentDirectory,
    serving: ServeScript,
) -> None:
    await serving(hello)
    await save(directory, an_agent())
    original = await run(orchestrator)
    with pytest.raises(InvalidArgument):
        await replaying.start(ReplayOrder(run_id=original.run_id, runner_id="nonsense"))
    assert not orchestrator.active


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("nonsense", InvalidArgument),
        ("unix:relative", InvalidArgument),
        ("192.0.2.1:7000", InvalidArgument),
        ("unix:/nowhere/at/all.sock", Unavailable),
    ],
)
async def test_address_that_cannot_be_called_is_refused_before_anything_is_stored(
    orchestrator: Orchestrator,
    replaying: Replaying,
    directory: AgentDirectory,
    serving: ServeScript,
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    error: type[Exception],
) -> None:
    monkeypatch.setattr("host_service.runs.replaying._HANDSHAKE_SECONDS", 0.2)
    await serving(hello)
    await save(directory, an_agent())
    original = await run(orchestrator)
    with pytest.raises(error):
        await replaying.start(ReplayOrder(run_id=original.run_id, runner_address=address))
    assert (await stores.ledger.list(RunQuery(replay_of=original.run_id))).items == ()
    assert orchestrator.admission.active == 0
