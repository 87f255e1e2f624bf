"""What runs are given: selected by a configuration, cut by a policy, frozen at their start."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import host_api_pb2

from stores import Stores, open_stores
from stores.audit import AuditOutcome, AuditQuery
from tests.integration.host.calls import (
    END,
    Answer,
    Caller,
    calling,
    collect,
    collect_until,
    scripted,
)
from tests.integration.host.files import pieces, upload
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_scripted_plugin
from tests.integration.host.refusals import refused

SELECTING = "plugin:acme/scripted/selecting"
GIVEN = """\
models:
- id: small
  kind: chat
  provider: openai
  model_name: gpt
  context_window_tokens: 128000
  # Nobody listens there: whether a run may call the model is all that is asked.
  base_url: http://127.0.0.1:1/v1
tool_servers:
- {id: files, command: {command: mcp-files}, enabled_tools: [read]}
knowledge_bases:
- {id: handbook, description: All about it}
policies:
- workspace_id: strict
  allowance: {models: [], tools: []}
  instructions: Answer in French.
agents:
- id: selecting
  runner_id: plugin:acme/scripted/selecting
  config: {model: small, tools: [files__read, files__delete], bases: [handbook, gone]}
- {id: scripted, runner_id: "plugin:acme/scripted/default"}
keys:
- {name: sender, role: ingress, workspace_id: strict, secret: {env: SENDER_KEY}}
"""
SENDER_KEY = "a-key-of-a-deployment-0123456789abcdef"


@pytest.fixture
def giving_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostProcess]:
    """A host with something to give, all of it from its configuration file."""
    monkeypatch.setenv("SENDER_KEY", SENDER_KEY)
    write_scripted_plugin(tmp_path / "plugins")
    host = HostProcess(tmp_path / "data", plugins=tmp_path / "plugins", config=GIVEN)
    try:
        yield host.start()
    finally:
        host.close()


@pytest.fixture
async def giving(giving_host: HostProcess) -> AsyncIterator[Caller]:
    async with calling(giving_host.addresses["grpc"], giving_host.key) as caller:
        yield caller


async def given(caller: Caller, **fields: Any) -> tuple[dict[str, Any], Answer]:
    """Returns what a run of the selecting agent was given, and all that it said."""
    answer = await caller.dispatch(scripted({"tell": "resources"}, END, **fields), "selecting")
    return json.loads(answer.text), answer


async def apply(caller: Caller, **objects: Any) -> admin_pb2.ApplyResponse:
    request = json_format.ParseDict(objects, admin_pb2.ApplyRequest())
    return await caller.admin.Apply(request, metadata=caller.metadata)


async def test_run_is_given_what_its_agent_selects_and_told_what_is_left_out(
    giving: Caller,
) -> None:
    resources, answer = await given(giving)
    assert resources["models"] == [
        {
            "modelId": "small",
            "kind": "MODEL_KIND_CHAT",
            "provider": "openai",
            "name": "small",
            "contextWindowTokens": "128000",
        }
    ]
    assert resources["tools"] == [{"name": "files__read", "type": "mcp"}]
    assert resources["knowledgeBases"] == [
        {"knowledgeBaseId": "handbook", "name": "handbook", "kind": "documents"}
    ]
    assert answer.warnings == ["resource_left_out", "resource_left_out"]
    told = sorted(each.message for each in answer.ended.warnings)
    assert told[0].startswith("knowledge base 'gone', which config.bases names, is not there")
    assert told[1].startswith("tool 'files__delete', which config.tools names, is not there")


async def test_policy_of_the_workspace_cuts_it(giving: Caller) -> None:
    resources, _ = await given(giving, workspace_id="strict")
    assert "models" not in resources
    assert "tools" not in resources
    assert [each["knowledgeBaseId"] for each in resources["knowledgeBases"]] == ["handbook"]
    free, _ = await given(giving, workspace_id="another")
    assert free["models"]


async def test_run_under_way_keeps_what_it_was_given(giving: Caller, tmp_path: Path) -> None:
    go = tmp_path / "go"
    steps = ({"tell": "access"}, {"await": str(go)}, END)
    call = giving.open(scripted(*steps), "selecting")
    answer = await collect_until(call, lambda answer: bool(answer.shown))
    access = json.loads(answer.shown)
    metadata = (
        ("authorization", f"Bearer {access['runToken']}"),
        ("runmesh-instance", access["instanceToken"]),
    )

    async def bases() -> list[str]:
        listed = await giving.host_api.ListKnowledgeBases(
            host_api_pb2.ListKnowledgeBasesRequest(), metadata=metadata
        )
        return [each.description for each in listed.knowledge_bases]

    async def invoked() -> str:
        request = host_api_pb2.InvokeModelRequest(model_id="small")
        request.messages.add(role=1).parts.add(text="hello")
        return (await refused(giving.host_api.InvokeModel(request, metadata=metadata))).reason

    assert (await bases(), await invoked()) == (["All about it"], "UNAVAILABLE")
    await apply(giving, knowledge_bases=[{"id": "handbook", "description": "Another"}])
    await giving.admin.DeleteModel(
        admin_pb2.DeleteModelRequest(model_id="small"), metadata=giving.metadata
    )
    assert (await bases(), await invoked()) == (["All about it"], "UNAVAILABLE")
    go.touch()
    await collect(call, answer)
    after, later = await given(giving)
    assert "models" not in after
    assert any("model 'small'" in each.message for each in later.ended.warnings)


async def test_file_of_a_configuration_is_given_and_one_that_is_gone_left_out(
    giving: Caller,
) -> None:
    artifact = await upload(giving, pieces(b"%PDF"), name="manual.pdf", mime_type="application/pdf")
    agent = {"id": "selecting", "runner_id": SELECTING}
    config = json.dumps({"manual": artifact.artifact_id})
    await apply(giving, agents=[{**agent, "config_json": config}])
    resources, answer = await given(giving)
    assert resources["files"] == [
        {
            "fileId": artifact.artifact_id,
            "name": "manual.pdf",
            "mimeType": "application/pdf",
            "source": "FILE_SOURCE_CONFIG",
            "artifactId": artifact.artifact_id,
        }
    ]
    assert not answer.warnings
    await apply(giving, agents=[{**agent, "config_json": '{"manual": "never-was"}'}])
    resources, answer = await given(giving)
    assert "files" not in resources
    assert answer.warnings == ["resource_left_out"]


async def test_declared_key_works_from_the_first_moment(giving: Caller) -> None:
    sender = giving.with_key(SENDER_KEY)
    answer = await sender.dispatch(scripted(END, workspace_id="strict"), "scripted")
    assert answer.ended.failure.code == "runner.empty_output"
    refusal = await refused(sender.dispatch(scripted(END, workspace_id="other"), "scripted"))
    assert refusal.reason in {"UNAUTHORIZED", "NOT_FOUND"}


async def test_what_operators_change_is_in_the_audit(
    giving: Caller, giving_host: HostProcess
) -> None:
    await apply(giving, models=[{"id": "new", "kind": 1, "provider": "p", "model_name": "m"}])
    await apply(giving, models=[{"id": "new", "kind": 1, "provider": "p", "model_name": "m"}])
    await refused(apply(giving, models=[{"id": "", "kind": 1}]))
    await giving.admin.DeleteModel(
        admin_pb2.DeleteModelRequest(model_id="new"), metadata=giving.metadata
    )
    giving_host.close()
    stores: Stores = await open_stores(giving_host.database_url)
    try:
        rows = (await stores.audit.page(AuditQuery(), limit=1000)).items
        keys = {key.key_id: key.name for key in await stores.keys.list()}
    finally:
        await stores.close()
    # A refusal is written a little later, to be counted with others like it.
    changes = [row for row in sorted(rows, key=lambda row: row.at) if row.caller]
    assert [(row.rpc, row.resource, row.outcome, row.reason) for row in changes] == [
        ("Apply", "model new", AuditOutcome.DONE, ""),
        ("Apply", "", AuditOutcome.DONE, ""),
        ("Apply", "", AuditOutcome.REFUSED, "INVALID_ARGUMENT"),
        ("DeleteModel", "model new", AuditOutcome.DONE, ""),
    ]
    assert {keys[row.caller] for row in changes if row.caller} == {"operator"}
