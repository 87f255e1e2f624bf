"""Files through the SDK and a real host: in with an event, out with the answer, and no further."""

import os
from collections.abc import AsyncIterator

from runmesh.v1 import event_pb2, types_pb2

from host_service.testing import RealHost
from runner_sdk import Manifest, Result, RunContext, agent_runner
from runner_sdk.errors import NotFound

ACME = Manifest.minimal("acme/tested")
PICTURE = os.urandom(900_000)


@agent_runner
async def turns_round(ctx: RunContext) -> AsyncIterator[Result]:
    """Reads the picture of its event, and answers with it turned round."""
    ref = ctx.input.parts[0].artifact
    async with ctx.host.artifacts.open(ref) as file:
        data = b"".join([chunk async for chunk in file])
    assert data == PICTURE
    assert list(ref.permissions) == [
        types_pb2.ARTIFACT_PERMISSION_METADATA,
        types_pb2.ARTIFACT_PERMISSION_READ,
    ]
    made = await ctx.host.artifacts.create(data[::-1], type="image", name="round.png")
    yield ctx.artifact(made)
    yield ctx.message("there you are")


@agent_runner
async def looks(ctx: RunContext) -> AsyncIterator[Result]:
    """Says what it may see of the artifact that its event's text names."""
    try:
        ref = await ctx.host.artifacts.metadata(ctx.text)
    except NotFound:
        yield ctx.delta("nothing")
    else:
        yield ctx.delta(f"{ref.name}: {ref.size_bytes}")


async def test_picture_goes_in_with_an_event_and_out_with_the_answer() -> None:
    inline = types_pb2.InlineContent(data=PICTURE, mime_type="image/png", name="cat.png")
    said = event_pb2.EventInput(text="turn it", parts=[types_pb2.ContentPart(inline=inline)])
    async with RealHost(turns_round, manifest=ACME) as host:
        outcome = await host.dispatch(input=said)
        assert (outcome.failure, outcome.text, outcome.warnings) == ("", "there you are", [])
        (ref,) = outcome.messages[0].artifacts
        kept = await host.stores.artifacts.read(ref.artifact_id, offset=0, length=2**20)
    assert (ref.name, kept) == ("round.png", PICTURE[::-1])


async def test_runner_sees_the_files_of_its_own_conversation_alone() -> None:
    inline = types_pb2.InlineContent(data=b"cat", mime_type="image/png", name="cat.png")
    said = event_pb2.EventInput(text="x", parts=[types_pb2.ContentPart(inline=inline)])
    async with RealHost(looks, manifest=ACME) as host:
        assert (await host.dispatch(input=said)).text == "nothing"
        (record,) = (await host.stores.artifacts.list_of_workspace("")).items
        assert (await host.dispatch(record.artifact_id)).text == "cat.png: 3"
        elsewhere = await host.dispatch(record.artifact_id, conversation_id="another")
        assert elsewhere.text == "nothing"
