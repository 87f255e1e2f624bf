"""What a run's results leave in the transcript, as a caller and the next run read it."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from runmesh.v1 import gateway_pb2, host_api_pb2, manifest_pb2, types_pb2

from host_service.testing import RealHost
from runner_sdk import Manifest, Result, RunContext, agent_runner

_MANIFEST = Manifest.minimal(
    "acme/tested",
    permissions=manifest_pb2.RunnerPermissions(
        history=[manifest_pb2.HISTORY_PERMISSION_PAGE],
        artifacts=[manifest_pb2.ARTIFACT_ACCESS_READ],
    ),
)


@agent_runner
async def works(ctx: RunContext) -> AsyncIterator[Result]:
    """Uses a tool, makes files, and says so; of `again` it says only what was."""
    if ctx.text == "again":
        page = await ctx.host.call(
            "PageHistory", host_api_pb2.PageHistoryRequest(include_artifacts=True)
        )
        ids = [ref.artifact_id for item in page.items for ref in item.artifacts]
        for artifact_id in ids:
            answer = await ctx.host.call(
                "ReadArtifact", host_api_pb2.ReadArtifactRequest(artifact_id=artifact_id)
            )
            yield ctx.log(answer.data.decode())
        yield ctx.reply("read")
        return
    yield ctx.tool_started("1", "look", {"at": "the sky"})
    yield ctx.tool_completed("1", "look", {"seen": "clouds"})
    yield ctx.artifact(b"first", "text/plain", "1.txt")
    yield ctx.delta("some")
    yield ctx.message("some words", reasoning="a thought", metadata={"k": "v"})
    yield ctx.log("a line")
    yield ctx.artifact(b"second", "text/plain", "2.txt")


async def page_of(host: RealHost, **fields: Any) -> Sequence[host_api_pb2.TranscriptItem]:
    request = gateway_pb2.PageConversationRequest(
        conversation_id="conversation",
        direction=host_api_pb2.PAGE_DIRECTION_OLDEST_FIRST,
        **fields,
    )
    response = await host.gateway.PageConversation(request, metadata=host.metadata)
    return list(response.items)


async def test_messages_and_their_artifacts_are_items_and_nothing_else_is() -> None:
    async with RealHost(works, manifest=_MANIFEST) as host:
        outcome = await host.dispatch("work")
        assert outcome.status == "COMPLETED"
        items = await page_of(host)
        again = await host.dispatch("again")

    assert [(item.text, types_pb2.ChatRole.Name(item.role)) for item in items] == [
        ("work", "CHAT_ROLE_USER"),
        ("some words", "CHAT_ROLE_ASSISTANT"),
        ("", "CHAT_ROLE_ASSISTANT"),
    ]
    assert [[ref.name for ref in item.artifacts] for item in items] == [[], ["1.txt"], ["2.txt"]]
    assert {item.kind for item in items} == {host_api_pb2.TRANSCRIPT_KIND_MESSAGE}
    assert {item.run_id for item in items} == {outcome.run.run_id}
    assert dict(items[1].metadata) == {"k": "v"}
    assert "thought" not in str(items[1])
    # Newest first: what came last is what is read first.
    assert [result.text for result in again.of_kind("log")] == ["second", "first"]


async def test_cancelled_run_leaves_what_it_had_said() -> None:
    async with RealHost(speaks_and_waits, manifest=_MANIFEST) as host:
        run = await host.submit("hello")
        async for result in host.results(run.run_id):
            if result.message_delta.text:
                break
        await host.cancel(run.run_id)
        items = await page_of(host)
    assert [(item.text, item.incomplete) for item in items] == [("hello", False), ("so far", True)]


@agent_runner
async def speaks_and_waits(ctx: RunContext) -> AsyncIterator[Result]:
    """Says something and never ends."""
    yield ctx.delta("so far")
    await ctx.interrupted.wait()
