"""Models as runs have them: a real host, a real runner, and a provider that does as it is told."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from runmesh.admin.v1 import admin_pb2, explain_pb2
from runmesh.v1 import context_pb2, manifest_pb2, types_pb2
from runmesh.v1.types_pb2 import ChatMessage, ContentPart, ToolCall, ToolDefinition

from host_service.testing import RealHost
from runner_sdk import Manifest, Result, RunContext, agent_runner
from runner_sdk.errors import (
    DeadlineExceeded,
    HostCallError,
    HostUnavailable,
    InvalidArgument,
    NotFound,
    RateLimited,
    RuntimeFailure,
    Unauthorized,
)
from runner_sdk.messages import MessageLike, tool_message, user_message
from stores.audit import AuditQuery
from stores.records import ArtifactHeader
from tests.integration.models.torture_server import (
    Reply,
    Request,
    TortureServer,
    chunk,
    completion,
    events,
    json_reply,
    said,
    streamed,
    vectors,
)

KEY = "canary-key-0123456789"
USAGE = {"prompt_tokens": 11, "completion_tokens": 7}
PICTURE = b"\x89PNG\r\n\x1a\nnot much of one"
# A role of a later version of the contract.
UNKNOWN_ROLE: Any = 17
KINDS = {
    "chat": context_pb2.MODEL_KIND_CHAT,
    "seeing": context_pb2.MODEL_KIND_CHAT,
    "others": context_pb2.MODEL_KIND_CHAT,
    "embedding": context_pb2.MODEL_KIND_EMBEDDING,
    "rerank": context_pb2.MODEL_KIND_RERANK,
}

Work = Callable[[RunContext], Awaitable[object]]


class Asked:
    """A host whose runner does what the test has in hand.

    Attributes:
        host: The host.
        outcome: What came of the latest work: its result, or its error.
    """

    def __init__(self, host: RealHost) -> None:
        self.host = host
        self.work: Work
        self.outcome: Any = None

    async def run(self, work: Work, **event: Any) -> Any:
        """Do a work in a run; return its result, or the error of the host that it raised."""
        self.work = work
        self.run_outcome = await self.host.dispatch("go", **event)
        return self.outcome


@asynccontextmanager
async def asked(
    server: TortureServer,
    *,
    data_folder: Path | None = None,
    permissions: manifest_pb2.RunnerPermissions | None = None,
    **more: Any,
) -> AsyncIterator[Asked]:
    """Have a host with models of a server, and a runner that may use all but `others`."""

    @agent_runner
    async def asking(ctx: RunContext) -> AsyncIterator[Result]:
        try:
            having.outcome = await having.work(ctx)
        except HostCallError as error:
            having.outcome = error
        yield ctx.reply("done")

    agent = admin_pb2.Agent(**more)
    agent.resources.models.extend(sorted(KINDS.keys() - {"others"}))
    async with RealHost(
        asking,
        manifest=Manifest.minimal("acme/asking", permissions=permissions),
        agent=agent,
        data_folder=data_folder,
        limits={"model_attempts": 1},
    ) as host:
        having = Asked(host)
        await host.admin.Apply(
            admin_pb2.ApplyRequest(
                models=[
                    admin_pb2.Model(
                        id=model_id,
                        kind=kind,
                        provider="acme",
                        model_name=f"{model_id}-model",
                        base_url=server.base_url,
                        api_key=KEY,
                        abilities=[context_pb2.MODEL_ABILITY_VISION]
                        if model_id == "seeing"
                        else [],
                    )
                    for model_id, kind in KINDS.items()
                ]
            ),
            metadata=host.metadata,
        )
        yield having


def asking_once(model_id: str, message: MessageLike) -> Work:
    """Return a work that asks a model once."""

    async def work(ctx: RunContext) -> Any:
        return await ctx.host.models.invoke(model_id, [message])

    return work


async def test_answer_is_streamed_to_the_runner(server: TortureServer) -> None:
    call = {"index": 1, "id": "a", "function": {"name": "clock", "arguments": '{"n": 1}'}}
    server.answer(
        streamed(
            chunk(reasoning_content="hm"),
            chunk("你"),
            chunk("好"),
            chunk(tool_calls=[call]),
            {**chunk(finish="stop"), "usage": USAGE},
            piece=1,
        )
    )

    async def work(ctx: RunContext) -> Any:
        async with ctx.host.models.stream("chat", ctx.text) as stream:
            return [piece async for piece in stream], stream.answer

    async with asked(server) as having:
        pieces, answer = await having.run(work)
    assert [piece.text for piece in pieces if piece.text] == ["你", "好"]
    assert [piece.reasoning_text for piece in pieces if piece.reasoning_text] == ["hm"]
    assert [call.index for piece in pieces for call in piece.tool_calls] == [0]
    assert answer.text == "你好"
    assert answer.message.role == types_pb2.CHAT_ROLE_ASSISTANT
    assert answer.message.reasoning_text == "hm"
    assert [(each.id, each.name, each.arguments_json) for each in answer.tool_calls] == [
        ("a", "clock", '{"n": 1}')
    ]
    assert answer.finish_reason == "tool_calls"
    assert answer.usage == types_pb2.TokenUsage(model_id="chat", input_tokens=11, output_tokens=7)
    assert not answer.usage.HasField("cache_read_tokens")
    (request,) = server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"


async def test_conversation_is_written_as_the_protocol_has_it(server: TortureServer) -> None:
    server.answer(completion({"content": "so"}))
    calls = [ToolCall(id="a", name="clock", arguments_json='{"n": 9007199254740993}')]

    async def work(ctx: RunContext) -> Any:
        return await ctx.host.models.invoke(
            "chat",
            [
                ("system", "Be brief."),
                user_message("What time", " is it?", name="Ann Lee"),
                ChatMessage(role=types_pb2.CHAT_ROLE_ASSISTANT, tool_calls=calls),
                tool_message("a", "noon"),
                ("assistant", "Noon."),
                "Sure?",
            ],
            tools=[
                ToolDefinition(
                    name="clock",
                    description="Tells the time.",
                    parameters_schema_json='{"type":"object","maximum":9007199254740993}',
                )
            ],
            tool_choice="clock",
            extra_args={"temperature": 0.5},
        )

    async with asked(server) as having:
        answer = await having.run(work)
    assert (answer.text, answer.finish_reason, answer.usage) == ("so", "stop", None)
    (request,) = server.requests
    function = {"name": "clock", "arguments": '{"n": 9007199254740993}'}
    assert request.body == {
        "model": "chat-model",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What time"},
                    {"type": "text", "text": " is it?"},
                ],
                "name": "Ann_Lee",
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": function}],
            },
            {"role": "tool", "content": "noon", "tool_call_id": "a"},
            {"role": "assistant", "content": "Noon."},
            {"role": "user", "content": "Sure?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "clock",
                    "description": "Tells the time.",
                    "parameters": {"type": "object", "maximum": 9007199254740993},
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "clock"}},
        "temperature": 0.5,
    }


async def test_model_that_sees_gets_pictures(server: TortureServer) -> None:
    server.answer(said("a cat"))
    inline = types_pb2.InlineContent(data=PICTURE, mime_type="image/png")
    url = types_pb2.UrlContent(url="https://example.com/cat.png")

    async def work(ctx: RunContext) -> Any:
        uploaded = await ctx.host.artifacts.create(PICTURE, type="image", mime_type="image/png")
        message = user_message(
            "What is it?", uploaded, ContentPart(inline=inline), ContentPart(url=url)
        )
        return await ctx.host.models.invoke("seeing", [message])

    async with asked(server) as having:
        assert (await having.run(work)).text == "a cat"
    encoded = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    assert server.requests[0].body["messages"][0]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": encoded}},
        {"type": "image_url", "image_url": {"url": encoded}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
    ]


@pytest.mark.parametrize(
    ("model", "message", "field"),
    [
        (
            "chat",
            user_message(
                "a", ContentPart(inline=types_pb2.InlineContent(data=b"x", mime_type="image/png"))
            ),
            "messages[0].parts[1].inline",
        ),
        (
            "seeing",
            user_message(
                ContentPart(inline=types_pb2.InlineContent(data=b"x", mime_type="application/pdf"))
            ),
            "messages[0].parts[0].inline",
        ),
        (
            "seeing",
            user_message(
                ContentPart(platform=types_pb2.PlatformContent(platform_id="sticker")),
            ),
            "messages[0].parts[0].platform",
        ),
        (
            "seeing",
            tool_message(
                "a", ContentPart(inline=types_pb2.InlineContent(data=b"x", mime_type="image/png"))
            ),
            "messages[0].parts[0].inline",
        ),
        ("chat", tool_message("", "noon"), "messages[0].tool_call_id"),
        ("chat", ChatMessage(role=UNKNOWN_ROLE), "messages[0].role"),
    ],
    ids=["blind", "pdf", "platform", "tool-picture", "no-call", "role"],
)
async def test_what_a_model_cannot_take_is_named(
    server: TortureServer, model: str, message: ChatMessage, field: str
) -> None:
    async with asked(server) as having:
        error = await having.run(asking_once(model, message))
    assert isinstance(error, InvalidArgument)
    assert [each.field for each in error.violations] == [field]
    assert not server.requests


async def test_picture_of_others_is_not_shown_to_a_model(server: TortureServer) -> None:
    server.answer(said("a cat"))

    async def bytes_of() -> AsyncIterator[bytes]:
        yield PICTURE

    async with asked(server) as having:
        await having.host.stores.artifacts.write(
            ArtifactHeader(
                artifact_id="theirs",
                workspace="",
                bot="",
                conversation_key="another",
                type="image",
                created_at=datetime.now(UTC),
                mime_type="image/png",
            ),
            bytes_of(),
        )
        for artifact_id in ("theirs", "never-was"):
            ref = types_pb2.ArtifactRef(
                artifact_id=artifact_id, type="image", mime_type="image/png", sha256=b"x" * 32
            )
            error = await having.run(asking_once("seeing", user_message(ref)))
            assert isinstance(error, NotFound)
            assert artifact_id in error.message
    assert not server.requests


async def test_picture_is_shown_to_a_model_by_who_may_read_it(server: TortureServer) -> None:
    permissions = manifest_pb2.RunnerPermissions(
        models=[manifest_pb2.MODEL_PERMISSION_INVOKE],
        artifacts=[manifest_pb2.ARTIFACT_ACCESS_CREATE],
    )

    async def work(ctx: RunContext) -> Any:
        uploaded = await ctx.host.artifacts.create(PICTURE, type="image", mime_type="image/png")
        return await ctx.host.models.invoke("seeing", [user_message(uploaded)])

    async with asked(server, permissions=permissions) as having:
        assert isinstance(await having.run(work), Unauthorized)
    assert not server.requests


async def test_vectors_and_rankings(server: TortureServer) -> None:
    def reply(request: Request) -> Reply:
        if request.path.endswith("/embeddings"):
            return vectors([[1.0, 0.5], [2.0, 0.25]], usage={"prompt_tokens": 4})
        return json_reply({"results": [{"index": 1, "relevance_score": 0.75}]})

    server.answer(reply)

    async def work(ctx: RunContext) -> Any:
        found = await ctx.host.models.embed("embedding", ["a", "b"])
        return found, await ctx.host.models.rerank("rerank", "q", ["a", "b"], top_k=1)

    async with asked(server) as having:
        found, ranked = await having.run(work)
    assert found == [[1.0, 0.5], [2.0, 0.25]]
    assert [(each.index, each.score) for each in ranked] == [(1, 0.75)]


async def test_model_of_others_is_as_one_that_never_was(server: TortureServer) -> None:
    async with asked(server) as having:
        for model_id in ("others", "never-was"):
            error = await having.run(asking_once(model_id, "hi"))
            assert isinstance(error, NotFound)
            assert model_id in error.message
    assert not server.requests


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        (json_reply({"error": "no"}, status=401), RuntimeFailure, "authentication"),
        (json_reply({"error": "no"}, status=503), HostUnavailable, "unavailable"),
        (json_reply({"error": "slow"}, status=429, retry_after="40"), RateLimited, "rate_limited"),
        (
            json_reply({"error": {"code": "context_length_exceeded"}}, status=400),
            InvalidArgument,
            "context_too_long",
        ),
    ],
)
async def test_failure_of_a_provider_reaches_the_runner(
    server: TortureServer, reply: Reply, kind: type[HostCallError], told: str
) -> None:
    server.answer(reply)
    async with asked(server) as having:
        error = await having.run(asking_once("chat", "hi"))
    assert type(error) is kind
    assert error.metadata["model_error"] == told
    assert error.metadata["model_id"] == "chat"
    assert error.metadata["provider_status"] == str(reply.status)
    if kind is RateLimited:
        assert error.retry_after_seconds == 40.0


async def test_partial_answer_is_kept_and_its_failure_told(server: TortureServer) -> None:
    server.answer(streamed(chunk("half "), chunk("of it"), {"error": {"message": "GPU on fire"}}))
    heard: list[str] = []

    async def work(ctx: RunContext) -> Any:
        async with ctx.host.models.stream("chat", "hi") as stream:
            async for piece in stream:
                heard.append(piece.text)  # noqa: PERF401 - what came before the error counts

    async with asked(server) as having:
        error = await having.run(work)
    assert "".join(heard) == "half of it"
    assert isinstance(error, HostUnavailable)
    assert "GPU on fire" in error.message
    assert error.metadata["answer_begun"] == "true"


SILENT = {
    "silent": Reply(silent=True),
    "midway": Reply(body=events(chunk("a"), done=False), then_wait=True),
}


def listening(text: str = "hi", **more: Any) -> Work:
    """Return a work that hears a stream to its end."""

    async def work(ctx: RunContext) -> Any:
        async with ctx.host.models.stream("chat", text, **more) as stream:
            return [piece async for piece in stream]

    return work


@pytest.mark.parametrize("reply", SILENT)
async def test_deadline_of_the_run_closes_the_providers_connection(
    server: TortureServer, reply: str
) -> None:
    server.answer(SILENT[reply])
    async with asked(server, timeout=Duration(seconds=2)) as having:
        await having.run(listening())
        assert having.run_outcome.status == "TIMED_OUT"
        await server.requests[0].closed.wait()
        # The audit says why, too.
        await having.host.stores.audit.flush()
        rows = await having.host.stores.audit.page(AuditQuery(run_id=having.run_outcome.run.run_id))
    assert [(row.rpc, row.reason) for row in rows.items] == [("StreamModel", "DEADLINE_EXCEEDED")]


@pytest.mark.parametrize("reply", SILENT)
async def test_cancelled_run_closes_the_providers_connection(
    server: TortureServer, reply: str
) -> None:
    server.answer(SILENT[reply])
    async with asked(server) as having:
        having.work = listening()
        run = await having.host.submit("go")
        await server.arrived()
        cancelled = await having.host.cancel(run.run_id)
        await server.requests[0].closed.wait()
    assert cancelled.run_id == run.run_id


@pytest.mark.parametrize("reply", SILENT)
async def test_deadline_of_the_call_closes_the_providers_connection(
    server: TortureServer, reply: str
) -> None:
    server.answer(SILENT[reply])
    async with asked(server) as having:
        error = await having.run(listening(timeout_seconds=2.0))
        await server.requests[0].closed.wait()
        assert having.run_outcome.status == "COMPLETED"
    assert isinstance(error, DeadlineExceeded)


async def test_runner_that_leaves_a_stream_closes_the_providers_connection(
    server: TortureServer,
) -> None:
    server.answer(SILENT["midway"])

    async def work(ctx: RunContext) -> Any:
        async with ctx.host.models.stream("chat", "hi") as stream:
            return (await anext(aiter(stream))).text

    async with asked(server) as having:
        assert await having.run(work) == "a"
        await server.requests[0].closed.wait()


async def test_model_that_is_removed_is_so_for_the_next_run(server: TortureServer) -> None:
    server.answer(said("hello"))

    async def work(ctx: RunContext) -> Any:
        before = await ctx.host.models.invoke("chat", "hi")
        await having.host.admin.DeleteModel(
            admin_pb2.DeleteModelRequest(model_id="chat"), metadata=having.host.metadata
        )
        after = await ctx.host.models.invoke("chat", "hi")
        return before.text, after.text

    async with asked(server) as having:
        assert await having.run(work) == ("hello", "hello")
        error = await having.run(asking_once("chat", "hi"))
        assert isinstance(error, NotFound)
    # Its key went with it.
    first, second = server.requests
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in second.headers


async def test_key_is_in_nothing_that_is_kept_shown_or_logged(
    server: TortureServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = {"error": {"message": f"wrong key: Bearer {KEY} / {KEY}", "code": KEY}}
    server.answer(json_reply(wrong, status=401), streamed(chunk("a"), wrong), said("ok"))
    errors: list[str] = []

    async def work(ctx: RunContext) -> Any:
        for _ in range(3):
            try:
                await listening()(ctx)
            except HostCallError as error:
                errors.append(f"{error} {error.metadata}")

    async with asked(server, data_folder=tmp_path / "data") as having:
        having.work = work
        outcome = await having.host.dispatch("go")
        explained = await having.host.admin.ExplainRun(
            explain_pb2.ExplainRunRequest(run_id=outcome.run.run_id), metadata=having.host.metadata
        )
        models = await having.host.admin.ListModels(
            admin_pb2.ListModelsRequest(), metadata=having.host.metadata
        )
        await having.host.stores.audit.flush()
        audit = await having.host.stores.audit.page(AuditQuery())
        transcript = [str(each) for each in outcome.results]
    assert len(errors) == 2
    assert len(server.requests) == 3
    seen = [*errors, *transcript, str(explained), str(models), str(list(audit.items))]
    seen += [f"{each.getMessage()} {each.exc_info}" for each in caplog.records]
    assert not [each for each in seen if KEY in each]
    assert all("[hidden]" in each for each in errors)
    files = [each for each in (tmp_path / "data").rglob("*") if each.is_file()]
    assert len(files) > 1
    assert not [each for each in files if KEY.encode() in each.read_bytes()]


async def test_caller_of_a_slow_model_keeps_no_one_else_waiting(server: TortureServer) -> None:
    go = asyncio.Event()

    def reply(request: Request) -> Reply:
        text = request.body["messages"][-1]["content"]
        return said(text, until=go if text == "slow" else None)

    server.answer(reply)

    async def work(ctx: RunContext) -> Any:
        slow = asyncio.create_task(ctx.host.models.invoke("chat", "slow"))
        await server.arrived()
        quick = await asyncio.gather(
            *(ctx.host.models.invoke("chat", str(number)) for number in range(20))
        )
        go.set()
        return [answer.text for answer in quick], (await slow).text

    async with asked(server) as having:
        assert await having.run(work) == ([str(number) for number in range(20)], "slow")
