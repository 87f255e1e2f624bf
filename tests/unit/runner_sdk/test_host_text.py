"""No call of a runner dies of text that protobuf refuses: it is mended on its way out."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from google.protobuf.message import Message
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import types_pb2

from runner_sdk import HostCallError, Manifest, RunContext
from runner_sdk.host import HostClient
from runner_sdk.messages import system_message, tool_message, user_message
from tests.unit.runner_sdk.loopback import a_run

# A pair whose halves were cut apart and came together again, and a half that is alone.
BROKEN = "\ud83d\ude00 \ud83d"
MENDED = "😀 \ufffd"


async def _stream_model(host: HostClient) -> None:
    async with host.models.stream("m", BROKEN, tool_choice=BROKEN) as stream:
        async for _ in stream:
            pass


async def _open(host: HostClient) -> None:
    async with host.artifacts.open(BROKEN):
        pass


_CALLS: dict[str, Callable[[HostClient], Awaitable[Any]]] = {
    "InvokeModel": lambda host: host.models.invoke(
        BROKEN,
        [
            BROKEN,
            ("assistant", BROKEN),
            system_message(BROKEN),
            user_message(BROKEN, name=BROKEN),
            tool_message(BROKEN, BROKEN, name=BROKEN),
        ],
        tool_choice=BROKEN,
        extra_args={BROKEN: [BROKEN]},
    ),
    "StreamModel": _stream_model,
    "RerankDocuments": lambda host: host.models.rerank("m", BROKEN, [BROKEN]),
    "EmbedTexts": lambda host: host.models.embed(BROKEN, [BROKEN]),
    "GetToolDetail": lambda host: host.tools.detail(BROKEN),
    "CallTool": lambda host: host.tools.call(BROKEN, {BROKEN: {BROKEN: [BROKEN]}}, call_id=BROKEN),
    "RetrieveKnowledge": lambda host: host.knowledge.retrieve(
        BROKEN, knowledge_base_ids=[BROKEN], filters={BROKEN: BROKEN}
    ),
    "PageHistory": lambda host: host.history.page(at_or_before=BROKEN, thread_id=BROKEN),
    "SearchHistory": lambda host: host.history.search(BROKEN),
    "GetEvent": lambda host: host.events.get(BROKEN),
    "PageEvents": lambda host: host.events.page(types=[BROKEN]),
    "GetArtifactMetadata": lambda host: host.artifacts.metadata(BROKEN),
    "ReadArtifact": _open,
    "CreateArtifact": lambda host: host.artifacts.create(b"x", name=BROKEN, summary=BROKEN),
    "GetState": lambda host: host.state["runner"].get(BROKEN),
    "SetState": lambda host: host.state.set("runner", BROKEN, {BROKEN: [BROKEN]}),
    "DeleteState": lambda host: host.state.delete("runner", BROKEN),
    "ListState": lambda host: host.state.list("runner", BROKEN),
    "GetStorage": lambda host: host.storage.find("plugin", BROKEN),
    "SetStorage": lambda host: host.storage.set("plugin", BROKEN, b""),
    "DeleteStorage": lambda host: host.storage.delete("plugin", BROKEN),
    "ListStorage": lambda host: host.storage.list("plugin", BROKEN),
    "RequestAction": lambda host: host.actions.request(
        "x.y", BROKEN, {BROKEN: BROKEN}, idempotency_key=BROKEN
    ),
    "AcknowledgeSteering": lambda host: host.steering.acknowledge([BROKEN]),
}

_WITHOUT_TEXT = {"GetPrompt", "ListKnowledgeBases", "PullSteering", "StreamArtifact"}


def _texts(message: Message) -> Iterator[str]:
    for field, value in message.ListFields():
        for entry in value if field.is_repeated else [value]:
            if isinstance(entry, Message):
                yield from _texts(entry)
            elif isinstance(entry, str):
                yield entry


def test_every_call_with_text_is_tried() -> None:
    methods = api.DESCRIPTOR.services_by_name["HostAPIService"].methods_by_name
    assert set(_CALLS) == set(methods) - _WITHOUT_TEXT


@pytest.mark.parametrize("method", sorted(_CALLS))
async def test_halves_of_surrogate_pairs_are_mended_in_every_call(method: str) -> None:
    manifest = Manifest.minimal("acme/test")
    manifest.runners["default"].permissions.platform_actions.append("x.y")
    async with a_run(manifest=manifest) as (host, ctx):
        host.answer(method, _empty_answer(method))
        # An empty answer may be of no use; it must have been asked for.
        with contextlib.suppress(HostCallError):
            await _CALLS[method](ctx.host)
        [call] = [call for call in host.calls if call.method == method]

    requests = call.request if isinstance(call.request, list) else [call.request]
    texts = [text for request in requests for text in _texts(request)]
    assert any(MENDED in text for text in texts)
    assert all("\ufffd" not in text.replace(MENDED, "") for text in texts)
    if method in {"SetState", "CallTool"}:
        assert f'{{"{MENDED}":' in "".join(texts)


def _empty_answer(method: str) -> Any:
    if method == "StreamModel":
        return [api.StreamModelResponse(end=api.ModelEnd(finish_reason="stop"))]
    responses: dict[str, Any] = {
        "GetState": api.GetStateResponse(entry=api.StateEntry(value_json="1")),
        "InvokeModel": api.InvokeModelResponse(message=types_pb2.ChatMessage()),
    }
    return responses.get(method) or getattr(api, f"{method}Response")()


async def test_the_next_call_is_as_good_as_ever() -> None:
    async def both(ctx: RunContext) -> Any:
        await ctx.host.state.set("runner", "k", BROKEN)
        return await ctx.host.state["runner"].get("k")

    async with a_run() as (_, ctx):
        assert await both(ctx) == MENDED
        assert await both(ctx) == MENDED
