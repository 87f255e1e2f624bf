"""The SDK's stand-in host answers a runner as the real host does.

One runner makes the same calls of both, says what came of each, and what it says is compared: what
is granted and what is refused, with which reason and for which field, and what is kept.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import manifest_pb2
from runmesh.v1.manifest_pb2 import RunnerCapabilities, RunnerPermissions

from host_service.testing import RealHost
from runner_sdk import HostCallError, Manifest, Result, RunContext, agent_runner
from runner_sdk.testing import StandInHost

_MIB = 1 << 20
_LARGE = bytes(range(256)) * (3 * _MIB // 256)
_SCOPES = ("conversation", "actor", "subject", "runner", "binding", "workspace")

Probe = Callable[[RunContext], Awaitable[Any]]


async def _all(items: AsyncIterator[Any], name: str) -> list[Any]:
    return [getattr(item, name) async for item in items]


async def _round_trip(ctx: RunContext, content: bytes) -> Any:
    ref = await ctx.host.artifacts.create(content, name="x.bin", type="report")
    described = await ctx.host.artifacts.metadata(ref)
    async with ctx.host.artifacts.open(ref.artifact_id, offset=1) as file:
        read = await file.read()
    return [
        ref.size_bytes,
        ref.sha256.hex(),
        described.name,
        described.type,
        file.size,
        hashlib.sha256(read).hexdigest(),
    ]


async def _of_two_cursors(ctx: RunContext) -> Any:
    page = await ctx.host.history.page(page_size=2)
    newest, older = (item.cursor for item in page.items)
    between = await ctx.host.history.page(
        at_or_before=newest, after=older, direction="oldest_first"
    )
    return [item.text for item in between.items]


async def _token_of_another_query(ctx: RunContext) -> Any:
    page = await ctx.host.history.page(page_size=1)
    return await ctx.host.history.page(page_token=page.next_page_token, direction="oldest_first")


async def _found(ctx: RunContext, query: str) -> Any:
    return [item.text for item in await ctx.host.history.search(query)]


async def _event(ctx: RunContext, event_id: str) -> Any:
    event = await ctx.host.events.get(event_id)
    return [event.type, event.input.text, event.actor.id, event.conversation_id]


async def _prompt(ctx: RunContext) -> Any:
    prompt = await ctx.host.prompt.get()
    return [len(prompt.messages), len(prompt.fragments)]


async def _written(ctx: RunContext) -> Any:
    seen: list[Any] = []
    for scope in ("conversation", "actor", "runner", "binding", "workspace"):
        state = ctx.host.state[scope]
        seen.append(await ctx.host.state.set(scope, "b", {"n": 9007199254740993}))
        seen.append(await ctx.host.state.set(scope, "a", None, expected_version=0))
        seen.append(await ctx.host.state.set(scope, "a", "x", expected_version=1))
        seen.append([(entry.key, entry.value, entry.version) async for entry in state.iterate()])
        seen.append(await ctx.host.state.delete(scope, "a", expected_version=2))
        seen.append(await state.delete("a"))
        seen.append(await state.items())
    return seen


async def _stored(ctx: RunContext) -> Any:
    seen: list[Any] = []
    for area in ("plugin", "workspace", "binding"):
        storage = ctx.host.storage
        await storage.set(area, "k/2", b"\x00\xff")
        await storage.set(area, "k/1", b"")
        await storage.set(area, "z", b"z")
        seen.append((await storage.get(area, "k/2")).hex())
        entries = [entry async for entry in storage.iterate(area, "k/", page_size=1)]
        seen.append([(entry.key, entry.size_bytes) for entry in entries])
        seen.append([await storage.delete(area, "z"), await storage.delete(area, "z")])
    return seen


_PROBES: dict[str, Probe] = {
    # What is there, and what comes of writing it.
    "history": lambda ctx: _all(ctx.host.history.iterate(page_size=1), "text"),
    "history from the oldest": lambda ctx: _all(
        ctx.host.history.iterate(direction="oldest_first"), "text"
    ),
    "history between cursors": _of_two_cursors,
    "history of nowhere": lambda ctx: ctx.host.history.page(conversation_id="elsewhere"),
    "history by another query's token": _token_of_another_query,
    "history by no token": lambda ctx: ctx.host.history.page(page_token="made up"),
    "history in large pages": lambda ctx: ctx.host.history.page(page_size=101),
    "search": lambda ctx: _found(ctx, "I heard"),
    "search for nothing": lambda ctx: ctx.host.history.search(""),
    "search for too many": lambda ctx: ctx.host.history.search_page("x", page_size=51),
    "own event": lambda ctx: _event(ctx, ctx.event.event_id),
    "no event": lambda ctx: _event(ctx, "nowhere"),
    "events": lambda ctx: _all(ctx.host.events.iterate(page_size=1), "type"),
    "events of no type": lambda ctx: _all(ctx.host.events.iterate(types=["a.b"]), "type"),
    "small artifact": lambda ctx: _round_trip(ctx, b"0123456789"),
    "empty artifact": lambda ctx: _round_trip(ctx, b""),
    "large artifact": lambda ctx: _round_trip(ctx, _LARGE),
    "no artifact": lambda ctx: ctx.host.artifacts.metadata("nowhere"),
    "no artifact to read": lambda ctx: ctx.host.artifacts.read_range("nowhere"),
    "no artifact's id": lambda ctx: ctx.host.artifacts.metadata(""),
    "no artifact's type": lambda ctx: ctx.host.artifacts.create(b"x", type=""),
    "state": _written,
    "state of no key": lambda ctx: ctx.host.state.get("runner", ""),
    "state that is not there": lambda ctx: ctx.host.state.get("runner", "nowhere"),
    "state of another version": lambda ctx: ctx.host.state.set(
        "runner", "k", 1, expected_version=7
    ),
    "state that is too large": lambda ctx: ctx.host.state.set("runner", "k", "x" * (256 << 10)),
    "state that is no JSON": lambda ctx: ctx.host.call(
        "SetState",
        api.SetStateRequest(scope=4, key="k", value_json="{"),  # type: ignore[arg-type]
    ),
    "state of no scope": lambda ctx: ctx.host.call("GetState", api.GetStateRequest(key="k")),
    "state of what the event lacks": lambda ctx: ctx.host.state.get("subject", "k"),
    "storage": _stored,
    "storage that is not there": lambda ctx: ctx.host.storage.get("plugin", "nowhere"),
    "storage that is too large": lambda ctx: ctx.host.storage.set(
        "plugin", "k", bytes(3 * _MIB + 1)
    ),
    "storage of no area": lambda ctx: ctx.host.call("GetStorage", api.GetStorageRequest(key="k")),
    "prompt": _prompt,
    # What the run was not given.
    "no model": lambda ctx: ctx.host.models.invoke("nowhere", "hi"),
    "no model's stream": lambda ctx: anext(ctx.host.models.stream("nowhere", "hi")),
    "no model to rerank": lambda ctx: ctx.host.models.rerank("nowhere", "q", ["d"]),
    "no model to embed": lambda ctx: ctx.host.models.embed("nowhere", ["t"]),
    "nothing to say": lambda ctx: ctx.host.models.invoke("nowhere", []),
    "no tool": lambda ctx: ctx.host.tools.call("nowhere", {}),
    "no tool's detail": lambda ctx: ctx.host.tools.detail("nowhere"),
    "parameters that are no object": lambda ctx: ctx.host.tools.call("nowhere", "[]"),
    "knowledge": lambda ctx: ctx.host.knowledge.list(),
    "no knowledge": lambda ctx: ctx.host.knowledge.retrieve("x", knowledge_base_ids=["nowhere"]),
    "no action": lambda ctx: ctx.host.actions.request("x.y", idempotency_key="k"),
    "no follow-up": lambda ctx: ctx.host.steering.acknowledge(["nowhere"]),
    "no text": lambda ctx: ctx.host.storage.get("plugin", "a\0b"),
}


async def _outcome_of(probe: Probe, ctx: RunContext) -> Any:
    try:
        outcome = await probe(ctx)
    except HostCallError as error:
        fields = [violation.field for violation in error.violations]
        sizes = {name: error.metadata[name] for name in ("size", "limit") if name in error.metadata}
        return [error.reason, fields, sizes]
    return json.loads(json.dumps(outcome))


@agent_runner
async def tries_all(ctx: RunContext) -> AsyncIterator[Result]:
    yield ctx.delta(f"I heard {ctx.text}")
    if ctx.text != "try":
        return
    seen = {name: await _outcome_of(probe, ctx) for name, probe in _PROBES.items()}
    yield ctx.log(json.dumps(seen))


def _everything(**changes: Any) -> Manifest:
    return Manifest.minimal("acme/tries", **changes)


async def _tried_on_the_stand_in(manifest: Manifest) -> dict[str, Any]:
    async with StandInHost(tries_all, manifest=manifest) as host:
        await host.run("hello")
        outcome = await host.run("try")
    [line] = outcome.of_kind("log")
    found: dict[str, Any] = json.loads(line.text)
    return found


def _agent() -> admin_pb2.Agent:
    agent = admin_pb2.Agent()
    agent.resources.storage.areas.extend(
        [
            manifest_pb2.STORAGE_AREA_PLUGIN,
            manifest_pb2.STORAGE_AREA_WORKSPACE,
            manifest_pb2.STORAGE_AREA_BINDING,
        ]
    )
    agent.state.scopes.extend(
        admin_pb2.StatePolicyScope.Value(f"STATE_POLICY_SCOPE_{scope.upper()}") for scope in _SCOPES
    )
    return agent


async def _tried_on_the_real_host(manifest: Manifest) -> dict[str, Any]:
    async with RealHost(tries_all, manifest=manifest, agent=_agent()) as host:
        await host.dispatch("hello")
        outcome = await host.dispatch("try")
    [line] = [result.log for result in outcome.results if result.HasField("log")]
    found: dict[str, Any] = json.loads(line.text)
    return found


@pytest.mark.parametrize(
    "manifest",
    [
        _everything(),
        _everything(permissions=RunnerPermissions()),
        _everything(capabilities=RunnerCapabilities(streaming=True)),
    ],
    ids=["everything", "no permissions", "no capabilities"],
)
async def test_runner_is_answered_alike_by_the_stand_in_and_the_real_host(
    manifest: Manifest,
) -> None:
    stand_in = await _tried_on_the_stand_in(manifest)
    real = await _tried_on_the_real_host(manifest)

    different = {
        name: {"stand-in": stand_in[name], "real": real[name]}
        for name in _PROBES
        if stand_in[name] != real[name]
    }
    assert different == {}
