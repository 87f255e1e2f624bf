"""What the stand-in host lets a run do, and what it keeps of runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.message import Message
from runmesh.v1 import context_pb2, event_pb2, manifest_pb2, result_pb2, types_pb2
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1.manifest_pb2 import RunnerPermissions

from runner_sdk import Manifest, Result, RunContext, agent_runner, errors
from runner_sdk.testing import StandInHost
from tests.unit.runner_sdk.loopback import a_run, serving

_PLUGIN = manifest_pb2.STORAGE_AREA_PLUGIN
_RUNNER = result_pb2.STATE_SCOPE_RUNNER

# A call of each kind that needs a right, and the rights: of permissions, of capabilities.
_NEEDS: list[tuple[str, Message, str, str]] = [
    ("InvokeModel", api.InvokeModelRequest(model_id="m"), "models", ""),
    ("StreamModel", api.StreamModelRequest(model_id="m"), "models", ""),
    ("RerankDocuments", api.RerankDocumentsRequest(model_id="m"), "models", ""),
    ("EmbedTexts", api.EmbedTextsRequest(model_id="m"), "models", ""),
    ("GetToolDetail", api.GetToolDetailRequest(tool_name="t"), "tools", "tool_calling"),
    ("CallTool", api.CallToolRequest(tool_name="t"), "tools", "tool_calling"),
    (
        "ListKnowledgeBases",
        api.ListKnowledgeBasesRequest(),
        "knowledge_bases",
        "knowledge_retrieval",
    ),
    (
        "RetrieveKnowledge",
        api.RetrieveKnowledgeRequest(query="q"),
        "knowledge_bases",
        "knowledge_retrieval",
    ),
    ("PageHistory", api.PageHistoryRequest(), "history", ""),
    ("SearchHistory", api.SearchHistoryRequest(query="q"), "history", ""),
    ("GetEvent", api.GetEventRequest(event_id="e"), "events", ""),
    ("PageEvents", api.PageEventsRequest(), "events", ""),
    ("GetArtifactMetadata", api.GetArtifactMetadataRequest(artifact_id="a"), "artifacts", ""),
    ("ReadArtifact", api.ReadArtifactRequest(artifact_id="a"), "artifacts", ""),
    ("StreamArtifact", api.StreamArtifactRequest(artifact_id="a"), "artifacts", ""),
    ("CreateArtifact", api.CreateArtifactRequest(), "artifacts", ""),
    ("GetStorage", api.GetStorageRequest(area=_PLUGIN, key="k"), "storage", ""),
    ("SetStorage", api.SetStorageRequest(area=_PLUGIN, key="k"), "storage", ""),
    ("DeleteStorage", api.DeleteStorageRequest(area=_PLUGIN, key="k"), "storage", ""),
    ("ListStorage", api.ListStorageRequest(area=_PLUGIN), "storage", ""),
    (
        "RequestAction",
        api.RequestActionRequest(action=result_pb2.ActionRequested(action="x.y")),
        "platform_actions",
        "platform_api",
    ),
    ("PullSteering", api.PullSteeringRequest(), "", "steering"),
    (
        "AcknowledgeSteering",
        api.AcknowledgeSteeringRequest(steering_ids=["s"]),
        "",
        "steering",
    ),
]


def _everything() -> Manifest:
    manifest = Manifest.minimal("acme/test")
    manifest.runners["default"].permissions.platform_actions.append("x.y")
    return manifest


async def _make(ctx: RunContext, method: str, request: Message) -> None:
    """Makes a call of any kind by its name."""
    if method == "CreateArtifact":
        await ctx.host.artifacts.create(b"x")
    elif method in {"StreamModel", "StreamArtifact", "PullSteering"}:
        async with ctx.host.stream(method, request) as stream:
            await anext(stream, None)
    else:
        await ctx.host.call(method, request)


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        (method, request, field)
        for method, request, permission, capability in _NEEDS
        for field in (f"permissions.{permission}", f"capabilities.{capability}")
        if not field.endswith(".")
    ],
)
async def test_what_the_manifest_does_not_ask_for_is_refused(
    method: str, request_: Message, field: str
) -> None:
    manifest = _everything()
    group, _, name = field.partition(".")
    getattr(manifest.runners["default"], group).ClearField(name)
    async with a_run(manifest=manifest) as (host, ctx):
        # Not even an answer of the test's own goes past the rights.
        host.answer(method, [])
        with pytest.raises(errors.Unauthorized, match=f"{method} needs the"):
            await _make(ctx, method, request_)
        assert host.calls == []


@pytest.mark.parametrize(("method", "request_"), [entry[:2] for entry in _NEEDS])
async def test_what_the_manifest_asks_for_is_not(method: str, request_: Message) -> None:
    async with a_run(manifest=_everything()) as (_, ctx):
        with contextlib.suppress(errors.NotFound, errors.InvalidArgument, TimeoutError):
            async with asyncio.timeout(0.2):
                await _make(ctx, method, request_)


def test_every_call_is_in_the_table() -> None:
    methods = api.DESCRIPTOR.services_by_name["HostAPIService"].methods_by_name
    state = {"GetState", "SetState", "DeleteState", "ListState"}
    assert {entry[0] for entry in _NEEDS} == set(methods) - state - {"GetPrompt"}


async def test_one_permission_is_not_another() -> None:
    permissions = RunnerPermissions(
        history=[manifest_pb2.HISTORY_PERMISSION_SEARCH],
        storage=[manifest_pb2.STORAGE_AREA_BINDING],
    )
    manifest = Manifest.minimal("acme/test", permissions=permissions)
    async with a_run(manifest=manifest) as (_, ctx):
        await ctx.host.history.search("x")
        await ctx.host.storage.set("binding", "k", b"v")
        for refused in (ctx.host.history.page(), ctx.host.storage.find("plugin", "k")):
            with pytest.raises(errors.Unauthorized):
                await refused


async def test_what_the_run_was_not_given_cannot_be_found() -> None:
    async with a_run() as (host, ctx):
        # It is there, and came too late for this run.
        host.add_model("m", "x")
        host.add_tool("t", "x")
        host.add_knowledge_base("b", "x")
        for refused in (
            ctx.host.models.invoke("m", "hi"),
            ctx.host.models.rerank("m", "q", ["d"]),
            ctx.host.models.embed("m", ["t"]),
            ctx.host.tools.call("t", {}),
            ctx.host.tools.detail("t"),
            ctx.host.knowledge.retrieve("x", knowledge_base_ids=["b"]),
        ):
            with pytest.raises(errors.NotFound):
                await refused
        with pytest.raises(errors.NotFound):
            await anext(ctx.host.models.stream("m", "hi"))


async def test_what_the_manifest_does_not_ask_for_is_not_handed_over() -> None:
    def prepare(host: StandInHost) -> None:
        host.add_model("m", "x")
        host.add_tool("t", "x")
        host.add_knowledge_base("b", "x")

    nothing = Manifest.minimal("acme/test", permissions=RunnerPermissions())
    async with a_run(prepare, manifest=nothing) as (_, ctx):
        assert ctx.resources == context_pb2.AgentResources()
        available = ctx.proto.context.available_apis
        assert available == context_pb2.AvailableApis(state=True, prompt=True, steering=True)
    async with a_run(prepare, manifest=_everything()) as (_, ctx):
        assert ctx.resources.models[0].model_id == "m"
        assert ctx.resources.tools[0].name == "t"
        assert ctx.resources.knowledge_bases[0].knowledge_base_id == "b"
        assert (len(ctx.resources.storage), list(ctx.resources.platform_actions)) == (3, ["x.y"])
        available = ctx.proto.context.available_apis
        assert all(getattr(available, field.name) for field in available.DESCRIPTOR.fields)


async def test_a_scope_that_the_event_has_no_identity_for_is_refused() -> None:
    async with a_run() as (_, ctx):
        for refused in (ctx.host.state["subject"].get("k"), ctx.host.state.list("subject")):
            with pytest.raises(errors.Unauthorized, match="no state of scope subject"):
                await refused
        await ctx.host.state["actor"].set("k", 1)
    subject = context_pb2.RunContext(subject=event_pb2.Subject(type="message", id="1"))
    async with a_run(context=subject) as (_, ctx):
        await ctx.host.state["subject"].set("k", 1)


async def test_scopes_are_those_that_the_agents_policy_grants() -> None:
    seen: list[Any] = []

    @agent_runner
    async def writes(ctx: RunContext) -> None:
        await ctx.host.state["actor"].set("k", 1)
        seen.append(dict(ctx.state.all("runner")))
        await ctx.host.state["runner"].set("k", 1)

    manifest = Manifest.minimal("acme/test")
    async with StandInHost(writes, manifest=manifest, state_scopes=["actor"]) as host:
        host.set_state("runner", {"hidden": 1})
        outcome = await host.run("hi")

    assert seen == [{}]
    assert outcome.failed is not None
    assert "UNAUTHORIZED" in outcome.failed.message


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        ("GetState", api.GetStateRequest(scope=_RUNNER), "key"),
        ("GetState", api.GetStateRequest(scope=_RUNNER, key="k" * 256), "key"),
        ("GetState", api.GetStateRequest(key="k"), "scope"),
        ("GetStorage", api.GetStorageRequest(key="k"), "area"),
        ("ListState", api.ListStateRequest(scope=_RUNNER, page_size=101), "page_size"),
        ("PageHistory", api.PageHistoryRequest(page_size=-1), "page_size"),
        ("SearchHistory", api.SearchHistoryRequest(query="q", page_size=51), "page_size"),
        ("SearchHistory", api.SearchHistoryRequest(), "query"),
        ("RetrieveKnowledge", api.RetrieveKnowledgeRequest(query="q", top_k=51), "top_k"),
        ("InvokeModel", api.InvokeModelRequest(model_id="m"), "messages"),
        ("ReadArtifact", api.ReadArtifactRequest(artifact_id="a", offset=-1), "offset"),
        ("GetToolDetail", api.GetToolDetailRequest(tool_name=""), "tool_name"),
        (
            "SetState",
            api.SetStateRequest(scope=_RUNNER, key="k", value_json="{"),
            "value_json",
        ),
        (
            "SetState",
            api.SetStateRequest(scope=_RUNNER, key="a\0b", value_json="1"),
            "key",
        ),
        ("AcknowledgeSteering", api.AcknowledgeSteeringRequest(), "steering_ids"),
        ("RequestAction", api.RequestActionRequest(), "action"),
    ],
)
async def test_a_field_that_breaks_a_rule_is_named(
    method: str, request_: Message, field: str
) -> None:
    async with a_run(manifest=_everything()) as (_, ctx):
        with pytest.raises(errors.InvalidArgument) as caught:
            await ctx.host.call(method, request_)

    assert caught.value.violations[0].field == field


async def test_calls_under_way_end_with_their_run() -> None:
    kept: list[RunContext] = []
    hears = asyncio.Event()

    @agent_runner
    async def leaves_a_call(ctx: RunContext) -> AsyncIterator[Result]:
        kept.append(ctx)
        yield ctx.delta("ready")
        await hears.wait()

    async with serving(leaves_a_call) as host:
        call = host.start("hi")
        await anext(call)
        async with kept[0].host.steering.pull() as inputs:
            call.steer("x")
            await anext(inputs)
            hears.set()
            await call.outcome()
            with pytest.raises(errors.Unauthenticated):
                await asyncio.wait_for(anext(inputs), 5)
        with pytest.raises(errors.Unauthenticated):
            await kept[0].host.prompt.get()


@agent_runner
async def says_all(ctx: RunContext) -> AsyncIterator[Result]:
    seen = [item.text async for item in ctx.host.history.iterate(direction="oldest_first")]
    yield ctx.set_state("actor", "seen", seen)
    yield ctx.set_state("subject", "nobody", 1)
    yield ctx.artifact(b"dot", "image/png", "dot.png", "image")
    yield ctx.request_action("message.send", idempotency_key="k")
    yield ctx.delta("I heard ")
    yield ctx.delta(ctx.text)


async def test_what_runs_say_is_kept_for_those_after_them() -> None:
    async with serving(says_all) as host:
        await host.run("one")
        await host.run("two")
        items = host.history

        assert host.state("actor") == {"seen": ["one", "I heard one"]}
        assert host.state("subject") == {}
        assert [action.action for action in host.actions] == ["message.send"]
    assert [item.text for item in items] == ["one", "I heard one", "two", "I heard two"]
    assert [item.role for item in items[:2]] == [
        types_pb2.CHAT_ROLE_USER,
        types_pb2.CHAT_ROLE_ASSISTANT,
    ]
    assert [ref.name for ref in items[1].artifacts] == ["dot.png"]
    assert items[1].runner_id == "plugin:acme/test/default"


async def test_an_event_without_text_is_no_message() -> None:
    @agent_runner
    async def looks(ctx: RunContext) -> Result:
        return ctx.reply((await ctx.host.events.get(ctx.event.event_id)).type)

    async with serving(looks) as host:
        outcome = await host.run(None, event_type="group.member_joined")

        assert outcome.text == "group.member_joined"
        assert [item.text for item in host.history] == ["group.member_joined"]


async def test_a_run_begins_with_the_state_that_there_is() -> None:
    seen: list[Any] = []

    @agent_runner
    async def looks(ctx: RunContext) -> None:
        seen.append((ctx.state.get("actor", "k"), ctx.state.get("runner", "given")))
        seen.append((await ctx.host.state.get("runner", "given")).value)

    async with serving(looks) as host:
        host.set_state("actor", {"k": 1})
        await host.run("hi", state={"runner": {"given": [2]}})

    assert seen == [(1, [2]), [2]]


async def test_answers_of_a_model_come_in_order_and_the_last_goes_on() -> None:
    away = errors.HostUnavailable(method="", reason="UNAVAILABLE", message="away")

    def prepare(host: StandInHost) -> None:
        host.add_model(
            "m", "one", away, lambda request: f"you said {request.messages[0].parts[0].text}"
        )
        host.add_model("silent")

    async with a_run(prepare) as (_, ctx):
        assert (await ctx.host.models.invoke("m", "hi")).text == "one"
        with pytest.raises(errors.HostUnavailable):
            await ctx.host.models.invoke("m", "hi")
        for _ in range(2):
            assert (await ctx.host.models.invoke("m", "hi")).text == "you said hi"
        with pytest.raises(errors.NotImplementedByHost, match=r"host\.answer\('InvokeModel'"):
            await ctx.host.models.invoke("silent", "hi")


async def test_a_message_takes_the_place_of_its_deltas_and_has_its_own_artifacts() -> None:
    @agent_runner
    async def says_two(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("fir")
        yield ctx.artifact(b"dot", "image/png", "dot.png", "image")
        yield ctx.reply("first")
        yield ctx.reply("second")

    async with serving(says_two) as host:
        await host.run("hi")
        said = [(item.text, [ref.name for ref in item.artifacts]) for item in host.history]

    assert said == [("hi", []), ("first", ["dot.png"]), ("second", [])]
