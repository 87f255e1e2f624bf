"""Runs explained and replayed by a real host, with a runner in a process of its own."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from runmesh.admin.v1 import explain_pb2
from runmesh.v1 import event_pb2, gateway_pb2

from stores.transfer import export_database
from tests.integration.host.calls import Answer, Caller, calling
from tests.integration.host.host_process import HostProcess

KEEPING = Path(__file__).parent / "runners" / "keeping.py"
CANARY = "canary-0d6c1f5e"
PROOF = sha256(CANARY.encode()).hexdigest()
_COMPONENT = {
    "apiVersion": "runmesh/v1",
    "kind": "AgentRunner",
    "metadata": {"name": "default", "label": {"en_US": "Keeper"}},
    "permissions": {"history": ["page"], "storage": ["plugin"], "models": ["invoke"]},
    "config_schema": [
        {"name": "token", "type": "secret", "label": {"en_US": "Token"}},
        {"name": "title", "type": "string", "label": {"en_US": "Title"}},
    ],
}
_CONFIG = f"""\
agents:
- id: keeper
  runner_id: "plugin:acme/keeper/default"
  config: {{token: {CANARY}, title: desk}}
- {{id: unknown, runner_id: "plugin:acme/nowhere/default", config: {{password: {CANARY}}}}}
limits: {{active_runs: 1}}
"""
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("GetState", {"scope": "STATE_SCOPE_CONVERSATION", "key": "k"}),
    ("SetState", {"scope": "STATE_SCOPE_CONVERSATION", "key": "k", "valueJson": '"written"'}),
    ("GetState", {"scope": "STATE_SCOPE_CONVERSATION", "key": "k"}),
    ("SetStorage", {"area": "STORAGE_AREA_PLUGIN", "key": "s", "value": "YnRlcw=="}),
    ("ListStorage", {"area": "STORAGE_AREA_PLUGIN"}),
    ("PageHistory", {}),
    ("SearchHistory", {"query": "x"}),
]


def write_keeper(folder: Path) -> None:
    place = folder / "keeper"
    (place / "components").mkdir(parents=True)
    (place / "components" / "default.yaml").write_text(yaml.safe_dump(_COMPONENT))
    (place / "main.py").write_text(KEEPING.read_text())
    manifest = {
        "apiVersion": "runmesh/v1",
        "kind": "Plugin",
        "metadata": {
            "author": "acme",
            "name": "keeper",
            "version": "1.0.0",
            "label": {"en_US": "Keeper"},
        },
        "run": {"command": [sys.executable, "main.py"]},
        "components": ["components/default.yaml"],
    }
    (place / "manifest.yaml").write_text(yaml.safe_dump(manifest))


@pytest.fixture(scope="module")
def keeping_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host whose runner has a secret."""
    folder = tmp_path_factory.mktemp("keeping")
    write_keeper(folder / "plugins")
    with HostProcess(folder / "data", plugins=folder / "plugins", config=_CONFIG) as host:
        yield host


@pytest.fixture
async def keeper(keeping_host: HostProcess) -> AsyncIterator[Caller]:
    """An operator of that host."""
    async with calling(keeping_host.addresses["grpc"], keeping_host.key) as caller:
        yield caller


def an_event(place: str, *, seconds: float = 0, **fields: Any) -> event_pb2.EventEnvelope:
    script = {"calls": CALLS, "seconds": seconds}
    return event_pb2.EventEnvelope(
        type="message.received",
        conversation_id=place,
        actor=event_pb2.Actor(type="user", id="ann"),
        input=event_pb2.EventInput(text="now"),
        data_json=json.dumps(script),
        **fields,
    )


async def explained(caller: Caller, run_id: str) -> explain_pb2.ExplainRunResponse:
    request = explain_pb2.ExplainRunRequest(run_id=run_id)
    return await caller.admin.ExplainRun(request, metadata=caller.metadata)


async def replayed(caller: Caller, run_id: str, **order: Any) -> tuple[Answer, Any]:
    """Replay a run; return what it said, and its end."""
    request = explain_pb2.ReplayRunRequest(run_id=run_id, **order)
    answer, end = Answer(), explain_pb2.ReplayEnd()
    async for item in caller.admin.ReplayRun(request, metadata=caller.metadata):
        if item.HasField("ended"):
            end = item.ended
            answer.ended = end.run
        else:
            answer.results += item.results.results
            if item.HasField("accepted"):
                answer.accepted = item.accepted
    return answer, end


def logged(answer: Answer) -> list[Any]:
    return [json.loads(each.log.text) for each in answer.results if each.HasField("log")]


async def test_calls_are_explained_with_what_each_layer_said(keeper: Caller) -> None:
    answer = await keeper.dispatch(an_event("explained"), "keeper")
    assert answer.messages == [PROOF]
    told = await explained(keeper, answer.run_id)
    outcomes = [
        (each.rpc, explain_pb2.CallOutcome.Name(each.outcome), each.reason, each.scope)
        for each in told.calls.calls
    ]
    done, refused = "CALL_OUTCOME_DONE", "CALL_OUTCOME_REFUSED"
    assert outcomes == [
        ("GetState", refused, "NOT_FOUND", "conversation"),
        ("SetState", done, "", "conversation"),
        ("GetState", done, "", "conversation"),
        ("SetStorage", done, "", "plugin"),
        ("ListStorage", done, "", "plugin"),
        ("PageHistory", done, "", ""),
        ("SearchHistory", refused, "UNAUTHORIZED", ""),
    ]
    totals = {each.rpc: (each.count, each.not_done) for each in told.calls.totals}
    assert totals["GetState"] == (2, 1)
    assert all(each.duration.ToNanoseconds() > 0 for each in told.calls.calls)
    rights = {(each.kind, each.name): each for each in told.rights.grants}
    assert rights["permission", "history: page"].granted
    assert rights["storage", "plugin"].granted_by == "resources.storage"
    assert rights["state", "conversation"].granted
    assert [each.kind for each in told.said.results if each.kind != "log"] == [
        "message_completed",
        "run_completed",
    ]
    assert json.loads(told.agent.config_json) == {"title": "desk"}
    assert list(told.agent.withheld) == ["token"]


async def test_replay_sees_what_it_writes_and_leaves_nothing(keeper: Caller) -> None:
    original = await keeper.dispatch(an_event("replayed"), "keeper")
    await keeper.dispatch(an_event("replayed"), "keeper")
    first, end = await replayed(keeper, original.run_id)
    assert first.accepted.replay_of == original.run_id
    assert first.messages == [PROOF]
    assert (list(end.differs_in), end.original.run_id) == ([], original.run_id)
    before, now = logged(original), logged(first)
    # The state is that of now, which the second run left; the replay's own write is above it.
    assert now[0]["entry"]["version"] == "2"
    assert now[1] == {"version": "3"}
    assert now[2]["entry"]["version"] == "3"
    # History is that of then, and what was not granted is not granted now.
    assert now[5:] == before[5:] == [{}, {"refused": "UNAUTHORIZED"}]
    again, _ = await replayed(keeper, original.run_id)
    assert logged(again)[0]["entry"]["version"] == "2"
    transcript = await keeper.gateway.PageConversation(
        gateway_pb2.PageConversationRequest(conversation_id="replayed"), metadata=keeper.metadata
    )
    assert len(transcript.items) == 4
    loud, _ = await replayed(keeper, original.run_id, with_side_effects=True)
    assert logged(loud)[1] == {"version": "3"}
    assert (
        logged(await keeper.dispatch(an_event("replayed"), "keeper"))[0]["entry"]
        == (logged(loud)[2]["entry"])
    )


async def test_replay_of_a_caller_that_leaves_is_cancelled(keeper: Caller) -> None:
    original = await keeper.dispatch(an_event("left", seconds=0.5), "keeper")
    request = explain_pb2.ReplayRunRequest(run_id=original.run_id)
    call = keeper.admin.ReplayRun(request, metadata=keeper.metadata)
    accepted: Any = await call.read()
    call.cancel()
    ended = await keeper.watch(accepted.accepted.run_id)
    assert ended.ended.status == gateway_pb2.RUN_STATUS_CANCELLED


async def test_run_of_a_lost_host_gets_its_secret_from_the_next(
    make_host: Callable[..., HostProcess], tmp_path: Path
) -> None:
    write_keeper(tmp_path / "plugins")
    host = make_host(plugins=tmp_path / "plugins", config=_CONFIG).start()
    async with calling(host.addresses["grpc"], host.key) as caller:
        under_way = await caller.submit(an_event("a", seconds=60), "keeper")
        waiting = await caller.submit(an_event("b"), "keeper")
        assert waiting.status < gateway_pb2.RUN_STATUS_RUNNING
        # What a host knows of a run is written down a second after its start, at the latest.
        await asyncio.sleep(1.5)
    host.kill()
    host.start()
    async with calling(host.addresses["grpc"], host.key) as caller:
        answer = await caller.watch(waiting.run_id)
        assert answer.messages == [PROOF]
        told = await explained(caller, waiting.run_id)
        assert told.HasField("rights")
        assert {each.name for each in told.stretches} >= {"accept", "turn", "first_result"}
        lost = await explained(caller, under_way.run_id)
        assert lost.run.failure.code == "host.restarted"
        assert "The host was lost" in lost.advice
        assert {each.kind for each in lost.rights.grants} >= {"state", "storage", "permission"}
        assert [each.rpc for each in lost.calls.calls] == [rpc for rpc, _ in CALLS]
        assert lost.said.results[-1].kind == "run_failed"


async def test_secrets_are_nowhere_that_is_kept_or_told(
    make_host: Callable[..., HostProcess], tmp_path: Path
) -> None:
    write_keeper(tmp_path / "plugins")
    host = make_host(plugins=tmp_path / "plugins", config=_CONFIG).start()
    async with calling(host.addresses["grpc"], host.key) as caller:
        answer = await caller.dispatch(an_event("a"), "keeper")
        assert answer.messages == [PROOF]
        unknown = await caller.dispatch(an_event("b"), "unknown")
        assert unknown.failure == "runner.unavailable"
        await replayed(caller, answer.run_id)
        for run in (answer, unknown):
            told = await explained(caller, run.run_id)
            assert CANARY not in str(told)
    exported = tmp_path / "exported"
    # The database is looked at as it is while a host runs, and as it is after.
    assert holding(host.data) == []
    host.close()
    await export_database(host.database_url, exported, blobs_url=None)
    assert [*holding(host.data), *holding(exported)] == []
    assert CANARY not in host.log()


def holding(folder: Path) -> list[Path]:
    """Return the files that hold the secret; a folder without any file is a mistake."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if CANARY.encode() in path.read_bytes()]


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"..." + CANARY.encode())
    assert holding(tmp_path) == [tmp_path / "db"]
