"""Tools as runs have them: granted, told, called, recorded, and gone with the host."""

import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf import json_format
from runmesh.admin.v1 import admin_pb2, explain_pb2, tools_pb2
from runmesh.v1 import host_api_pb2

from stores import open_stores
from stores.audit import AuditOutcome, AuditQuery
from tests.integration.host.calls import END, Answer, Caller, calling, scripted
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_scripted_plugin
from tests.integration.host.refusals import refused
from tests.integration.tools.kept import SERVERS, eventually, lines
from tests.postgresql import running_postgresql

# What a host promises, however much else its machine has to do.
_FOLLOWED_SECONDS = 2.0
_GONE_SECONDS = 5.0

CONFIG = """\
tool_servers:
- id: real
  command: {{command: {python}, args: [{server}, {note}]}}
- id: broken
  command: {{command: no-such-command-anywhere}}
agents:
- id: selecting
  runner_id: plugin:acme/scripted/selecting
  config: {{tools: ["real__*", "broken__*", real__count]}}
- id: none
  runner_id: plugin:acme/scripted/selecting
policies:
- workspace_id: strict
  allowance: {{tools: [real__echo]}}
- workspace_id: wide
  allowance: {{tools: ["real__*"]}}
"""


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "note"


@pytest.fixture
def postgresql_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database for the host where a test wants one of a server; else empty."""
    if not getattr(request, "param", False):
        yield ""
        return
    with running_postgresql() as server:
        yield server.url


@pytest.fixture
def host(tmp_path: Path, note: Path, postgresql_url: str) -> Iterator[HostProcess]:
    write_scripted_plugin(tmp_path / "plugins")
    server = SERVERS / "stateful.py"
    config = CONFIG.format(python=sys.executable, server=server, note=note)
    host = HostProcess(
        tmp_path / "data",
        plugins=tmp_path / "plugins",
        config=config,
        arguments=("--database", postgresql_url) if postgresql_url else (),
    )
    try:
        yield host.start()
    finally:
        host.close()


@pytest.fixture
async def caller(host: HostProcess) -> AsyncIterator[Caller]:
    async with calling(host.addresses["grpc"], host.key) as caller:
        await ready(caller)
        yield caller


async def ready(caller: Caller) -> tools_pb2.ToolServerStatus:
    """Returns how the real server is, once it is ready."""
    while True:
        statuses = await statuses_of(caller)
        if statuses["real"].state == tools_pb2.TOOL_SERVER_STATE_READY:
            return statuses["real"]


async def statuses_of(caller: Caller) -> dict[str, tools_pb2.ToolServerStatus]:
    listed = await caller.admin.ListToolServerStatuses(
        tools_pb2.ListToolServerStatusesRequest(), metadata=caller.metadata
    )
    return {each.tool_server_id: each for each in listed.statuses}


class Held:
    """A run that waits, and what its runner may call.

    Attributes:
        run_id: The run.
    """

    def __init__(self, caller: Caller, answer: Answer) -> None:
        access = json.loads(answer.shown)
        self.run_id = answer.run_id
        self._caller = caller
        self.metadata = (
            ("authorization", f"Bearer {access['runToken']}"),
            ("runmesh-instance", access["instanceToken"]),
        )

    def calling(self, name: str, call_id: str = "", **parameters: Any) -> Any:
        """Begins to call a tool."""
        request = host_api_pb2.CallToolRequest(
            tool_name=f"real__{name}", parameters_json=json.dumps(parameters), call_id=call_id
        )
        return self._caller.host_api.CallTool(request, metadata=self.metadata)


@asynccontextmanager
async def holding(
    caller: Caller,
    tmp_path: Path,
    *before: dict[str, Any],
    replay_of: str = "",
    with_side_effects: bool = False,
) -> AsyncIterator[Held]:
    """Holds a run as long as the context lasts; with `replay_of`, a replay of that one."""
    go = tmp_path / "go"
    go.unlink(missing_ok=True)
    answer = Answer()
    if replay_of:
        request = explain_pb2.ReplayRunRequest(
            run_id=replay_of, with_side_effects=with_side_effects
        )
        call: Any = caller.admin.ReplayRun(request, metadata=caller.metadata)
    else:
        steps = (*before, {"tell": "access"}, {"await": str(go)}, END)
        call = caller.open(scripted(*steps), "selecting")
    while not answer.shown:
        item = await call.read()
        assert item is not grpc.aio.EOF, f"the stream ended early: {answer}"
        if replay_of:
            answer.results += item.results.results
            if item.HasField("accepted"):
                answer.accepted = item.accepted
        else:
            answer.take(item)
    try:
        yield Held(caller, answer)
    finally:
        go.touch()
        while await call.read() is not grpc.aio.EOF:
            pass


async def given(caller: Caller, agent_id: str = "selecting", **fields: Any) -> dict[str, Any]:
    answer = await caller.dispatch(scripted({"tell": "resources"}, END, **fields), agent_id)
    tools = json.loads(answer.text).get("tools", [])
    return {each["name"]: each for each in tools}


async def test_star_grants_all_tools_of_a_server_with_what_they_say(caller: Caller) -> None:
    tools = await given(caller)
    assert {"real__count", "real__echo", "real__wait"} <= tools.keys()
    assert tools["real__count"]["description"].startswith("Adds to a counter")
    schema = json.loads(tools["real__count"]["parametersSchemaJson"])
    assert schema["properties"]["by"]["type"] == "integer"
    assert await given(caller, "none") == {}
    assert list(await given(caller, workspace_id="strict")) == ["real__echo"]
    assert "real__count" in await given(caller, workspace_id="wide")


async def test_explanation_says_what_granted_each_tool(caller: Caller) -> None:
    answer = await caller.dispatch(scripted(END), "selecting")
    assert answer.warnings == ["resource_left_out"]
    request = explain_pb2.ExplainRunRequest(run_id=answer.run_id)
    explained = await caller.admin.ExplainRun(request, metadata=caller.metadata)
    told = json_format.MessageToJson(explained)
    assert "config.tools: real__*" in told
    assert "broken__*" in told


async def test_star_that_stands_for_nothing_is_refused_when_saved(caller: Caller) -> None:
    declared = {
        "agents": [
            {
                "id": "wrong",
                "runner_id": "plugin:acme/scripted/default",
                "resources": {"tools": ["real__co*", "*"]},
            }
        ]
    }
    request = json_format.ParseDict(declared, admin_pb2.ApplyRequest())
    refusal = await refused(caller.admin.Apply(request, metadata=caller.metadata))
    assert refusal.reason == "INVALID_ARGUMENT"
    assert "server__*" in str(refusal)


async def test_call_is_checked_done_and_written_down(
    caller: Caller, host: HostProcess, tmp_path: Path
) -> None:
    async with holding(caller, tmp_path) as run:
        assert (await run.calling("count", by=2)).result_json == '{"result":2}'
        assert not (await run.calling("count")).parts
        wrong = await refused(run.calling("count", by="many"))
        assert wrong.reason == "INVALID_ARGUMENT"
        assert "parameters_json/by" in str(wrong)
        failed = await run.calling("fail", reason="it is broken")
        assert failed.is_error
        assert (await refused(run.calling("nothing"))).reason == "NOT_FOUND"
        odd = await run.calling("odd_texts")
        assert odd.parts[0].text == "a\ufffdb 你好"
    host.close()
    stores = await open_stores(host.database_url)
    try:
        rows = (await stores.audit.page(AuditQuery(), limit=1000)).items
    finally:
        await stores.close()
    outcomes = [(each.outcome, each.reason) for each in rows if each.run_id == run.run_id]
    assert (AuditOutcome.FAILED, "TOOL_FAILED") in outcomes
    assert (AuditOutcome.DONE, "") in outcomes


async def test_large_results_become_artifacts_of_the_run(caller: Caller, tmp_path: Path) -> None:
    async with holding(caller, tmp_path) as run:
        answer = await run.calling("large", size=30_000_000)
        assert answer.artifact.size_bytes == 30_000_000
        assert answer.artifact.type == "tool_result"
        assert len(answer.preview) < 5000
        assert "[truncated: the result has 30000000 bytes in all]" in answer.preview
        picture = (await run.calling("picture", size=100_000)).parts[0]
        assert picture.artifact.size_bytes == 100_004
        assert picture.artifact.mime_type == "image/png"
        small = (await run.calling("picture", size=10)).parts[0]
        assert small.inline.data.startswith(b"\x89PNG")


async def test_end_of_a_run_cancels_its_calls_at_the_server(
    caller: Caller, note: Path, tmp_path: Path
) -> None:
    async with holding(caller, tmp_path) as run:
        call = run.calling("wait", seconds=100)
        await eventually(lambda: "waiting" in lines(note))
        await caller.cancel(run.run_id)
        assert (await refused(call)).reason == "UNAUTHENTICATED"
        await eventually(lambda: "cancelled" in lines(note))
    async with holding(caller, tmp_path) as run:
        call = run.calling("wait", seconds=100)
        await eventually(lambda: lines(note).count("waiting") == 2)
        call.cancel()
        await eventually(lambda: lines(note).count("cancelled") == 2)


async def test_replay_answers_what_was_recorded_and_calls_nothing(
    caller: Caller, tmp_path: Path
) -> None:
    started = {"callId": "a", "toolName": "real__count", "parametersJson": '{ "by":5}'}
    ended = {"callId": "a", "toolName": "real__count", "resultJson": '{"result":5}'}
    recorded = {"send": [{"toolCallStarted": started}, {"toolCallCompleted": ended}]}
    async with holding(caller, tmp_path, recorded) as run:
        assert (await run.calling("count", by=5)).result_json == '{"result":5}'
    async with holding(caller, tmp_path, replay_of=run.run_id) as replay:
        assert (await replay.calling("count", by=5)).result_json == '{"result":5}'
        refusal = await refused(replay.calling("count", by=6))
        assert refusal.reason == "UNAVAILABLE"
        assert "replay" in str(refusal)
    async with holding(caller, tmp_path) as run:
        assert (await run.calling("count", by=1)).result_json == '{"result":6}'


async def test_replay_with_side_effects_calls_tools_once_more(
    caller: Caller, tmp_path: Path
) -> None:
    async with holding(caller, tmp_path) as run:
        assert (await run.calling("count", by=5)).result_json == '{"result":5}'
    async with holding(caller, tmp_path, replay_of=run.run_id, with_side_effects=True) as replay:
        assert replay.run_id != run.run_id
        assert (await replay.calling("count", by=5)).result_json == '{"result":10}'


@pytest.mark.parametrize("postgresql_url", [True], indirect=True, ids=["postgresql"])
async def test_tools_are_called_and_written_down_on_postgresql_as_well(
    caller: Caller, host: HostProcess, postgresql_url: str, tmp_path: Path
) -> None:
    call = {"callId": "a", "toolName": "real__count"}
    recorded = {
        "send": [
            {"toolCallStarted": {**call, "parametersJson": '{"by":2}'}},
            {"toolCallCompleted": {**call, "resultJson": '{"result":2}'}},
        ]
    }
    async with holding(caller, tmp_path, recorded) as run:
        assert (await run.calling("count", by=2)).result_json == '{"result":2}'
        assert (await run.calling("large", size=1_000_000)).artifact.size_bytes == 1_000_000
        assert (await run.calling("odd_texts")).parts[0].text == "a\ufffdb 你好"
    async with holding(caller, tmp_path, replay_of=run.run_id) as replay:
        assert (await replay.calling("count", by=2)).result_json == '{"result":2}'
    host.close()
    stores = await open_stores(postgresql_url)
    try:
        rows = (await stores.audit.page(AuditQuery(), limit=1000)).items
    finally:
        await stores.close()
    done = [each for each in rows if each.run_id == run.run_id]
    assert len([each for each in done if each.outcome is AuditOutcome.DONE]) == 3


async def test_operator_sees_servers_and_calls_tools_by_hand(caller: Caller) -> None:
    statuses = await statuses_of(caller)
    assert "no-such-command-anywhere is not there" in statuses["broken"].trouble
    request = tools_pb2.CallToolRequest(tool_name="real__count", parameters_json='{"by": 3}')
    called = await caller.admin.CallTool(request, metadata=caller.metadata)
    assert called.answer.result_json == '{"result":3}'
    request = tools_pb2.CallToolRequest(tool_name="broken__x", parameters_json="{}")
    refusal = await refused(caller.admin.CallTool(request, metadata=caller.metadata))
    assert refusal.reason == "UNAVAILABLE"


async def test_changes_of_the_catalogue_are_followed(caller: Caller) -> None:
    declared = {"tool_servers": [{"id": "broken", "command": {"command": "still-missing"}}]}
    request = json_format.ParseDict(declared, admin_pb2.ApplyRequest())
    await caller.admin.Apply(request, metadata=caller.metadata)
    applied = time.monotonic()
    while "still-missing" not in (await statuses_of(caller))["broken"].trouble:
        pass
    assert time.monotonic() - applied < _FOLLOWED_SECONDS
    deleted = admin_pb2.DeleteToolServerRequest(tool_server_id="real")
    await caller.admin.DeleteToolServer(deleted, metadata=caller.metadata)
    assert "real" not in await statuses_of(caller)
    assert await given(caller) == {}


async def test_restarted_host_grants_and_calls_tools_before_their_server_has_answered(
    caller: Caller, host: HostProcess, tmp_path: Path
) -> None:
    assert "real__count" in await given(caller)
    host.close()
    host.start()
    async with calling(host.addresses["grpc"], host.key) as again, holding(again, tmp_path) as run:
        assert (await run.calling("count", by=2)).result_json == '{"result":2}'
        assert "real__count" in await given(again)


async def test_killed_host_leaves_no_tool_server_behind(
    caller: Caller, host: HostProcess, note: Path
) -> None:
    request = tools_pb2.CallToolRequest(tool_name="real__spawn", parameters_json="{}")
    called = await caller.admin.CallTool(request, metadata=caller.metadata)
    started = json.loads(called.answer.result_json)["result"]
    server = int(lines(note)[0].split()[1])
    killed = time.monotonic()
    host.kill()
    await eventually(lambda: not _is_alive(server) and not _is_alive(started))
    assert time.monotonic() - killed < _GONE_SECONDS


def _is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}
