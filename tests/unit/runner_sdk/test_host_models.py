"""Models, tools, knowledge bases and actions, as runners use them."""

import asyncio
import contextlib
from typing import Any

import grpc
import pytest
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import result_pb2, types_pb2

from runner_sdk import Manifest, errors
from runner_sdk.messages import system_message, tool_message, user_message
from runner_sdk.testing import StandInHost, tool_call
from tests.unit.runner_sdk.loopback import a_host_api, a_run


def _with_model(*answers: Any) -> Any:
    return lambda host: host.add_model("m", *answers)


async def test_a_model_answers_whole() -> None:
    async with a_run(_with_model("Hello, ", tool_call("lookup", id=7))) as (host, ctx):
        answer = await ctx.host.models.invoke("m", "hi", extra_args={"temperature": 0.2})
        wants = await ctx.host.models.invoke("m", "hi")
        [request, _] = [call.request for call in host.calls]

    assert (answer.text, answer.finish_reason, answer.usage) == ("Hello, ", "stop", None)
    assert (wants.finish_reason, wants.text) == ("tool_calls", "")
    [wanted] = wants.tool_calls
    assert (wanted.name, wanted.arguments_json) == ("lookup", '{"id":7}')
    assert request.extra_args_json == '{"temperature":0.2}'
    assert [(message.role, message.parts[0].text) for message in request.messages] == [
        (types_pb2.CHAT_ROLE_USER, "hi")
    ]


async def test_messages_are_written_in_any_of_their_forms() -> None:
    ref = types_pb2.ArtifactRef(artifact_id="a1", type="image")
    whole = types_pb2.ChatMessage(role=types_pb2.CHAT_ROLE_ASSISTANT, name="x")
    async with a_run(_with_model("ok")) as (host, ctx):
        await ctx.host.models.invoke(
            "m",
            [
                system_message("Be brief."),
                ("assistant", "Yes?"),
                "See",
                user_message("what", ref, name="Ada"),
                whole,
                tool_message("c1", "7", name="lookup"),
            ],
        )
        sent = host.calls[0].request.messages

    assert [types_pb2.ChatRole.Name(message.role)[10:].lower() for message in sent] == [
        "system",
        "assistant",
        "user",
        "user",
        "assistant",
        "tool",
    ]
    assert (sent[3].parts[1].artifact.artifact_id, sent[3].name) == ("a1", "Ada")
    assert sent[4] == whole
    assert (sent[5].tool_call_id, sent[5].name) == ("c1", "lookup")


@pytest.mark.parametrize(
    ("message", "error", "said"),
    [
        (("robot", "x"), ValueError, "the role 'robot' is none of system, user, assistant, tool"),
        (7, TypeError, "int is no message"),
    ],
)
async def test_what_is_no_message_is_named(message: Any, error: Any, said: str) -> None:
    async with a_run(_with_model("ok")) as (_, ctx):
        with pytest.raises(error, match=said):
            await ctx.host.models.invoke("m", [message])


async def test_a_model_streams_text_reasoning_and_tool_calls() -> None:
    message = tool_call("lookup", id=7)
    message.parts.add().text = "Let me see."
    message.reasoning_text = "hm"
    usage = types_pb2.TokenUsage(model_id="m", input_tokens=3)
    whole = api.InvokeModelResponse(message=message, finish_reason="tool_calls", usage=usage)
    async with (
        a_run(_with_model(whole)) as (_, ctx),
        ctx.host.models.stream("m", "hi") as stream,
    ):
        with pytest.raises(RuntimeError, match="has not been read to its end"):
            _ = stream.answer
        pieces = [piece async for piece in stream]

    assert "".join(piece.text for piece in pieces) == "Let me see."
    assert "".join(piece.reasoning_text for piece in pieces) == "hm"
    fragments = [fragment for piece in pieces for fragment in piece.tool_calls]
    assert fragments[0].name == "lookup"
    assert "".join(fragment.arguments_fragment for fragment in fragments) == '{"id":7}'
    assert stream.answer.message == message
    assert stream.answer.usage == usage


async def test_leaving_a_models_stream_ends_the_call() -> None:
    ended = asyncio.Event()

    async def endless(_: Any, context: Any) -> None:
        try:
            while True:
                await context.write(api.StreamModelResponse(delta=api.ModelDelta(text="x")))
        finally:
            ended.set()

    async with a_host_api({"StreamModel": endless}) as address, a_run(address=address) as (_, ctx):
        with contextlib.suppress(ZeroDivisionError):
            async with ctx.host.models.stream("m", "hi") as stream:
                async for _ in stream:
                    raise ZeroDivisionError
        await asyncio.wait_for(ended.wait(), 2)


async def test_a_stream_that_breaks_off_is_an_error_after_what_came() -> None:
    async def breaks(_: Any, context: Any) -> None:
        await context.write(api.StreamModelResponse(delta=api.ModelDelta(text="x")))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "provider away")

    async def forgets_the_end(_: Any, context: Any) -> None:
        await context.write(api.StreamModelResponse(delta=api.ModelDelta(text="x")))

    for handler, kind in (
        (breaks, errors.HostUnavailable),
        (forgets_the_end, errors.RuntimeFailure),
    ):
        async with (
            a_host_api({"StreamModel": handler}) as address,
            a_run(address=address) as (_, ctx),
        ):
            stream = ctx.host.models.stream("m", "hi")
            assert (await anext(stream)).text == "x"
            with pytest.raises(kind):
                await anext(stream)


async def test_what_a_later_host_streams_is_passed_over() -> None:
    unknown = api.StreamModelResponse()
    unknown.MergeFromString(b"\xfa\x01\x01x")  # field 31 of no oneof known here
    delta = api.ModelDelta(text="x")
    delta.MergeFromString(b"\xfa\x01\x01x")
    end = api.StreamModelResponse(end=api.ModelEnd(finish_reason="paused"))
    async with a_run() as (host, ctx):
        host.answer("StreamModel", [unknown, api.StreamModelResponse(delta=delta), unknown, end])
        async with ctx.host.models.stream("m", "hi") as stream:
            pieces = [piece async for piece in stream]

    assert [piece.SerializeToString() for piece in pieces] == [delta.SerializeToString()]
    assert stream.answer.finish_reason == "paused"


async def test_models_rank_and_embed() -> None:
    ranked = api.RerankDocumentsResponse(documents=[api.RankedDocument(index=1, score=0.5)])
    vectors = api.EmbedTextsResponse(embeddings=[api.Embedding(values=[1.0, 0.5])])
    async with a_run() as (host, ctx):
        host.answer("RerankDocuments", ranked)
        host.answer("EmbedTexts", vectors)
        [best] = await ctx.host.models.rerank("r", "tea", ["coffee", "tea"], top_k=1)
        assert (best.index, best.score) == (1, 0.5)
        assert await ctx.host.models.embed("e", ["tea"]) == [[1.0, 0.5]]
        request = host.calls[0].request

    assert (request.query, list(request.documents), request.top_k) == ("tea", ["coffee", "tea"], 1)


async def test_a_tool_answers_text_or_json_or_fails() -> None:
    def tools(host: StandInHost) -> None:
        host.add_tool("say", "done")
        host.add_tool("double", lambda parameters: {"n": parameters["n"] * 2})

    async with a_run(tools) as (host, ctx):
        said = await ctx.host.tools.call("say", {})
        doubled = await ctx.host.tools.call("double", {"n": 9007199254740993}, call_id="c1")
        failed = await ctx.host.tools.call("double", '{"m": 1}')
        written = await ctx.host.tools.call("say", "  ")
        requests = [call.request for call in host.calls]

    assert (said.text, said.result, said.is_error, said.artifact) == ("done", None, False, None)
    assert (doubled.result, doubled.text) == (
        {"n": 18014398509481986},
        '{"n":18014398509481986}',
    )
    assert failed.is_error
    assert failed.text == "KeyError: 'n'"
    assert written.text == "done"
    assert [request.parameters_json for request in requests] == [
        "{}",
        '{"n":9007199254740993}',
        '{"m": 1}',
        "{}",
    ]
    assert requests[1].call_id == "c1"


async def test_parameters_that_are_no_object_are_refused() -> None:
    async with a_run(lambda host: host.add_tool("say", "done")) as (_, ctx):
        for parameters in ("[]", '{"a": NaN}', "{"):
            with pytest.raises(errors.InvalidArgument, match="parameters_json"):
                await ctx.host.tools.call("say", parameters)


async def test_a_large_answer_is_an_artifact_and_its_beginning() -> None:
    response = api.CallToolResponse(
        preview="begins", artifact=types_pb2.ArtifactRef(artifact_id="a")
    )
    async with a_run(lambda host: host.add_tool("say", response)) as (_, ctx):
        answer = await ctx.host.tools.call("say", {})

    assert answer.text == "begins"
    assert answer.artifact is not None
    assert answer.artifact.artifact_id == "a"


async def test_the_definitions_of_tools_are_asked_for_only_where_they_did_not_come_along() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}

    def tools(host: StandInHost) -> None:
        host.add_tool("small", "x", description="Small.", parameters_schema=schema)
        host.add_tool("large", "x")
        host._world.tools.resources[1].ClearField("parameters_schema_json")

    large = api.GetToolDetailResponse(type="mcp")
    large.definition.name = "large"
    async with a_run(tools) as (host, ctx):
        host.answer("GetToolDetail", large)
        small, found = await ctx.host.tools.definitions()
        assert [call.request.tool_name for call in host.calls] == ["large"]
        assert len(ctx.host.tools.available) == 2

    assert (small.name, small.description) == ("small", "Small.")
    assert small.parameters_schema_json.startswith('{"type":"object"')
    assert found.name == "large"


async def test_a_tool_is_described() -> None:
    async with a_run(lambda host: host.add_tool("say", "x", description="Says.")) as (_, ctx):
        detail = await ctx.host.tools.detail("say")

    assert (detail.definition.name, detail.definition.description) == ("say", "Says.")


async def test_knowledge_is_listed_and_searched() -> None:
    def knowledge(host: StandInHost) -> None:
        hit = api.KnowledgeHit(
            knowledge_base_id="b", document_id="d", text="tea", metadata_json='{"year":2020}'
        )
        host.add_knowledge_base("b", "Tea is hot.", "A tea pot.", hit, name="Drinks")
        host.add_knowledge_base("a", "Pots and pans.")

    async with a_run(knowledge) as (_, ctx):
        bases = await ctx.host.knowledge.list()
        paged = [base async for base in ctx.host.knowledge.iterate(page_size=1)]
        hits = await ctx.host.knowledge.retrieve("tea pot", top_k=2)
        only = await ctx.host.knowledge.retrieve("pot", knowledge_base_ids=["a"])
        filtered = await ctx.host.knowledge.retrieve("tea", filters={"year": 2020})
        with pytest.raises(errors.NotFound):
            await ctx.host.knowledge.retrieve("tea", knowledge_base_ids=["a", "elsewhere"])

    assert [(base.knowledge_base_id, base.name) for base in bases] == [("a", "a"), ("b", "Drinks")]
    assert [base.knowledge_base_id for base in paged] == ["a", "b"]
    assert [hit.text for hit in hits] == ["A tea pot.", "Tea is hot."]
    assert [hit.text for hit in only] == ["Pots and pans."]
    assert [hit.document_id for hit in filtered] == ["d"]


def _platform() -> Manifest:
    manifest = Manifest.minimal("acme/test")
    manifest.runners["default"].permissions.platform_actions.append("message.send")
    return manifest


async def test_an_action_is_asked_for_once_for_each_key() -> None:
    async with a_run(manifest=_platform()) as (host, ctx):
        first, outcome = [
            await ctx.host.actions.request(
                "message.send", {"to": 1}, {"text": "hi"}, idempotency_key="k"
            )
            for _ in range(2)
        ]
        assert first == outcome
        with pytest.raises(errors.AlreadyExists):
            await ctx.host.actions.request("message.send", {"to": 2}, idempotency_key="k")
        with pytest.raises(errors.InvalidArgument):
            await ctx.host.actions.request("message.send", idempotency_key="")
        with pytest.raises(errors.Unauthorized):
            await ctx.host.actions.request("group.leave", idempotency_key="l")
        [action] = host.actions

    assert (outcome.status, outcome.executed, outcome.missing) == ("recorded", False, ["executor"])
    assert outcome.result is None
    assert (action.target_json, action.payload_json) == ('{"to":1}', '{"text":"hi"}')


@pytest.mark.parametrize(
    ("status", "word"), [(1, "executed"), (2, "awaiting_approval"), (0, "unknown"), (99, "unknown")]
)
async def test_what_became_of_an_action_is_a_word(status: int, word: str) -> None:
    response = api.RequestActionResponse(status=status, result_json="[1]", detail="why")  # type: ignore[arg-type]
    async with a_run(manifest=_platform()) as (host, ctx):
        host.answer("RequestAction", response)
        outcome = await ctx.host.actions.request(
            "message.send", idempotency_key="k", approval_hint="advised"
        )
        hint = host.calls[0].request.action.approval_hint

    assert (outcome.status, outcome.executed) == (word, word == "executed")
    assert (outcome.result, outcome.detail) == ([1], "why")
    assert hint == result_pb2.APPROVAL_HINT_ADVISED
    assert outcome.proto.status == status


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        (r'{"a": "\ud83d\ude00"}', r'{"a": "\ud83d\ude00"}'),
        (r'{"a": "\uD83D"}', r'{"a": "\ufffd"}'),
        (r'{"a": "\ude00\ud83d\ude00\ud83dx"}', r'{"a": "\ufffd\ud83d\ude00\ufffdx"}'),
        (r'{"a": "\\ud83d \\\ud83d"}', r'{"a": "\\ud83d \\\ufffd"}'),
        (r'{"a": "\u4e16\n"}', r'{"a": "\u4e16\n"}'),
    ],
)
async def test_halves_of_surrogate_pairs_that_a_model_escapes_are_mended(
    written: str, sent: str
) -> None:
    async with a_run(lambda host: host.add_tool("say", "done")) as (host, ctx):
        await ctx.host.tools.call("say", written)
        assert host.calls[0].request.parameters_json == sent
