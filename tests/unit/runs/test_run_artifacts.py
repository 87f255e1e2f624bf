"""Tests of the files in what runs say: stored, shown by reference, in their place, or dropped."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from runmesh.v1 import host_api_pb2, result_pb2, types_pb2

from host_service.authorization.snapshot import Asked, freeze
from host_service.runs.event import Event
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.outcome import Outcome, RunFault
from host_service.runs.recovery import Recovery
from host_service.runs.services import RunServices
from host_service.runs.watching import RunWatcher
from stores import Stores
from stores.errors import StoreUnavailable
from stores.records import ArtifactHeader, ArtifactRecord, RunStatus
from tests.unit.runs.active import Conversation, begun, read_to_end, results_of
from tests.unit.runs.samples import a_delta, an_agent, an_event

WELL = result_pb2.RunCompleted(finish_reason="stop")
READER = [types_pb2.ARTIFACT_PERMISSION_METADATA, types_pb2.ARTIFACT_PERMISSION_READ]


def content(data: bytes = b"image", **fields: Any) -> types_pb2.InlineContent:
    return types_pb2.InlineContent(**({"data": data, "mime_type": "image/png"} | fields))


def inline(data: bytes = b"image", *, name: str = "", **fields: Any) -> dict[str, Any]:
    """Return an artifact that is carried along."""
    created = result_pb2.ArtifactCreated(inline=content(data, name=name), **fields)
    return {"artifact_created": created}


def a_ref(artifact_id: str, **fields: Any) -> types_pb2.ArtifactRef:
    """Return a reference as a runner makes it up."""
    given = {"artifact_id": artifact_id, "type": "file", "sha256": b"x" * 32} | fields
    return types_pb2.ArtifactRef(**given)


def by_ref(artifact_id: str) -> dict[str, Any]:
    return {"artifact_created": result_pb2.ArtifactCreated(ref=a_ref(artifact_id))}


def message(*parts: types_pb2.ContentPart, id: str = "", **fields: Any) -> types_pb2.ChatMessage:
    return types_pb2.ChatMessage(
        message_id=id, role=types_pb2.CHAT_ROLE_ASSISTANT, parts=parts, **fields
    )


def completed(*parts: types_pb2.ContentPart, **fields: Any) -> dict[str, Any]:
    return {"message_completed": result_pb2.MessageCompleted(message=message(*parts, **fields))}


def text(words: str) -> types_pb2.ContentPart:
    return types_pb2.ContentPart(text=words)


async def speaking(
    stores: Stores,
    services: RunServices,
    orchestrator: Orchestrator,
    *,
    event: Event | None = None,
    artifacts: Any = None,
) -> Conversation:
    """Return a run under way whose rights are frozen."""
    if artifacts is not None:
        services = replace(services, artifacts=artifacts)
    event, agent = event or an_event(), an_agent()
    run = await begun(stores, services, orchestrator, event=event, agent=agent)
    nothing: frozenset[str] = frozenset()
    run.delivery.hold_to(
        freeze(
            run_id="run-1",
            plugin_id="acme/desk",
            agent=agent,
            asked=Asked(permissions={}, storage=nothing, actions=nothing, capabilities=nothing),
            identity=event.identity(),
        )
    )
    return run


@pytest.fixture
async def run(stores: Stores, services: RunServices, orchestrator: Orchestrator) -> Conversation:
    return await speaking(stores, services, orchestrator)


async def store(stores: Stores, artifact_id: str, **changes: Any) -> ArtifactRecord:
    """Store an artifact of the run's conversation that another run made."""
    fields: dict[str, Any] = {
        "artifact_id": artifact_id,
        "workspace": "acme",
        "bot": "desk",
        "conversation_key": an_event().conversation_key,
        "run_id": "run-0",
        "type": "tool_result",
        "name": "r.txt",
        "created_at": datetime.now(UTC),
    }

    async def chunks() -> AsyncIterator[bytes]:
        yield b"result"

    return await stores.artifacts.write(ArtifactHeader(**(fields | changes)), chunks())


async def read(stores: Stores, artifact_id: str) -> bytes | None:
    return await stores.artifacts.read(artifact_id, offset=0, length=2**20)


async def items(stores: Stores) -> list[host_api_pb2.TranscriptItem]:
    """Return the run's messages in the transcript, oldest first."""
    page = await stores.transcript.page(an_event().conversation_key, newest_first=False)
    return [
        host_api_pb2.TranscriptItem.FromString(each.content)
        for each in page.items
        if each.role == "assistant"
    ]


async def test_inline_artifact_is_stored_before_it_is_shown_and_shown_by_reference(
    stores: Stores, run: Conversation
) -> None:
    reader = run.run.log.subscribe(patient=True)
    await run.sends(inline(b"image", name="a.png", summary="a cat"))
    (shown,) = results_of(await reader.take())
    created = shown.artifact_created
    assert created == result_pb2.ArtifactCreated(ref=created.ref)
    assert (created.ref.type, created.ref.mime_type) == ("image", "image/png")
    assert (created.ref.name, created.ref.summary) == ("a.png", "a cat")
    assert (created.ref.size_bytes, created.ref.sha256) == (5, sha256(b"image").digest())
    assert list(created.ref.permissions) == READER
    assert await read(stores, created.ref.artifact_id) == b"image"
    record = await stores.artifacts.get(created.ref.artifact_id)
    assert record is not None
    assert (record.workspace, record.bot, record.run_id) == ("acme", "desk", "run-1")
    assert record.conversation_key == an_event().conversation_key
    assert await run.stored() == [shown]
    (entry,) = await stores.events.entries("run-1")
    assert (entry.kind, entry.payload) == ("artifact_created", shown.SerializeToString())


async def test_type_is_the_runners_word_where_it_gives_one(
    stores: Stores, run: Conversation
) -> None:
    await run.sends(inline(b"1", type="chart"), inline(b"2"), inline(b"3", type="a/b"))
    refs = [each.artifact_created.ref for each in await run.stored()]
    assert [ref.type for ref in refs] == ["chart", "image", "file"]
    assert [warning.code for warning in run.delivery.warnings] == ["artifact_mended"]


async def test_artifact_goes_with_the_next_message(stores: Stores, run: Conversation) -> None:
    await run.sends(inline(b"1"), inline(b"2"), completed(text("two")), completed(text("none")))
    one, two, first, second = await run.stored()
    attached = first.message_completed.message.artifacts
    assert [each.artifact_id for each in attached] == [
        one.artifact_created.ref.artifact_id,
        two.artifact_created.ref.artifact_id,
    ]
    assert not second.message_completed.message.artifacts
    assert [len(each.artifacts) for each in await items(stores)] == [2, 0]


async def test_what_no_message_took_becomes_one_of_its_own(
    stores: Stores, run: Conversation
) -> None:
    await run.sends(inline(b"1"))
    record = await run.ends(Outcome(RunStatus.COMPLETED, completed=WELL))
    assert record.status is RunStatus.COMPLETED
    created, alone, end = await run.stored()
    assert alone.message_completed.message.artifacts == [created.artifact_created.ref]
    assert not alone.message_completed.message.parts
    assert end.HasField("run_completed")
    assert [len(each.artifacts) for each in await items(stores)] == [1]


async def test_same_bytes_are_one_artifact_however_often_they_are_sent(
    stores: Stores, run: Conversation
) -> None:
    part = types_pb2.ContentPart(inline=content())
    await run.sends(
        inline(),
        inline(),
        result_pb2.MessageDelta(message_id="m", parts=[part]),
        completed(part, id="m"),
    )
    await run.ends(
        Outcome(
            RunStatus.COMPLETED,
            completed=result_pb2.RunCompleted(finish_reason="stop", message=message(part, id="n")),
        )
    )
    page = await stores.artifacts.list_of_run("run-1")
    assert len(page.items) == 1
    first = await items(stores)
    assert [len(each.artifacts) for each in first] == [1, 0]


async def test_files_in_messages_are_references_everywhere(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, run: Conversation
) -> None:
    await store(stores, "theirs")
    ref = a_ref("theirs", name="a lie")
    await run.sends(
        completed(
            text("see "),
            types_pb2.ContentPart(inline=content(b"1")),
            types_pb2.ContentPart(artifact=ref),
            artifacts=[ref],
        )
    )
    final = message(text("at last"), types_pb2.ContentPart(inline=content(b"2")), id="last")
    await run.ends(
        Outcome(
            RunStatus.COMPLETED,
            completed=result_pb2.RunCompleted(finish_reason="stop", message=final),
        )
    )
    watcher = RunWatcher(orchestrator=orchestrator, ledger=stores.ledger, limits=services.limits)
    shown = await read_to_end(watcher.watch("run-1"))
    whole, last, end = shown
    parts = whole.message_completed.message.parts
    assert await read(stores, parts[1].artifact.artifact_id) == b"1"
    for told in (parts[2].artifact, whole.message_completed.message.artifacts[0]):
        assert (told.type, told.name, told.size_bytes) == ("tool_result", "r.txt", 6)
    stored = last.message_completed.message.parts[1].artifact
    assert await read(stores, stored.artifact_id) == b"2"
    assert end.run_completed.message.parts[1].artifact == stored
    assert [len(each.parts) for each in await items(stores)] == [3, 2]


async def test_message_that_the_host_completes_has_references(
    stores: Stores, run: Conversation
) -> None:
    reader = run.run.log.subscribe(patient=True)
    part = types_pb2.ContentPart(inline=content())
    foreign = types_pb2.ContentPart(artifact=a_ref("no"))
    await run.sends(
        a_delta("see "), result_pb2.MessageDelta(parts=[part, foreign]), a_delta(" there")
    )
    # A delta waits for no store: it is shown as it came.
    assert results_of(await reader.take())[1].message_delta.parts == [part, foreign]
    await run.ends(Outcome(RunStatus.COMPLETED, completed=WELL))
    whole = (await run.stored())[0].message_completed.message
    kinds = [each.WhichOneof("content") for each in whole.parts]
    assert kinds == ["text", "artifact", "text", "text"]
    assert [each.text for each in whole.parts] == ["see ", "", "", " there"]
    assert await read(stores, whole.parts[1].artifact.artifact_id) == b"image"
    assert [each.code for each in run.run.view().warnings] == ["artifact_unknown"]


@pytest.mark.parametrize(
    "changes",
    [
        {"conversation_key": "another"},
        {"workspace": "other"},
        {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)},
        None,
    ],
)
async def test_reference_to_what_the_run_may_not_see_is_dropped_with_a_warning(
    stores: Stores, run: Conversation, changes: dict[str, Any] | None
) -> None:
    if changes is not None:
        await store(stores, "theirs", **changes)
    ref = a_ref("theirs")
    await run.sends(
        a_delta("a"),
        by_ref("theirs"),
        completed(text("b"), types_pb2.ContentPart(artifact=ref), artifacts=[ref]),
    )
    (whole,) = await run.stored()
    assert whole.message_completed.message.parts == [text("b")]
    assert not whole.message_completed.message.artifacts
    assert whole.sequence == 3
    assert [each.code for each in run.delivery.warnings] == ["artifact_unknown"] * 3
    assert not await stores.events.entries("run-1")


async def test_artifact_that_is_dropped_is_nothing_said(stores: Stores, run: Conversation) -> None:
    await run.sends(by_ref("nothing"))
    assert not run.delivery.has_spoken(WELL)
    await store(stores, "theirs")
    await run.sends(by_ref("theirs"))
    assert run.delivery.has_spoken(WELL)


@pytest.mark.parametrize(
    ("name", "kept"),
    [("a/b\\c.png", "a_b_c.png"), ("../../x", ".._.._x"), ("..", ""), ("a\nb", "a_b")],
)
async def test_name_that_could_be_a_path_is_mended_and_told(
    run: Conversation, name: str, kept: str
) -> None:
    await run.sends(inline(name=name))
    (created,) = await run.stored()
    assert created.artifact_created.ref.name == kept
    assert [each.code for each in run.delivery.warnings] == ["artifact_mended"]


async def test_media_type_that_is_none_is_mended_and_told(run: Conversation) -> None:
    created = result_pb2.ArtifactCreated(inline=content(mime_type="bild/ü"), type="image")
    await run.sends({"artifact_created": created})
    (shown,) = await run.stored()
    assert shown.artifact_created.ref.mime_type == "application/octet-stream"
    assert [each.code for each in run.delivery.warnings] == ["artifact_mended"]


class Gated:
    """A store of artifacts that waits before it writes, or fails."""

    def __init__(self, stores: Stores, *, fails: bool = False) -> None:
        self._artifacts = stores.artifacts
        self._fails = fails
        self.begun, self.may_go = asyncio.Event(), asyncio.Event()

    async def write(self, header: ArtifactHeader, chunks: Any) -> ArtifactRecord:
        self.begun.set()
        if self._fails:
            raise StoreUnavailable("the bucket is away")
        await self.may_go.wait()
        return await self._artifacts.write(header, chunks)

    async def get(self, artifact_id: str) -> ArtifactRecord | None:
        if self._fails:
            raise StoreUnavailable("the database is away")
        return await self._artifacts.get(artifact_id)


async def test_what_comes_before_an_artifact_is_shown_at_once_and_what_comes_after_keeps_its_place(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    gated = Gated(stores)
    run = await speaking(stores, services, orchestrator, artifacts=gated)
    reader = run.run.log.subscribe(patient=True)
    sending = asyncio.create_task(
        run.sends(a_delta("before"), completed(text("m")), inline(), a_delta("after"))
    )
    await asyncio.wait_for(gated.begun.wait(), 10)
    assert [each.sequence for each in results_of(await reader.take())] == [1, 2]
    # Who begins to watch now is shown what is not shown yet when it is, and nothing twice.
    assert run.delivery.delivered == 2
    late = run.run.log.subscribe(patient=False, after=run.delivery.delivered)
    assert not sending.done()
    gated.may_go.set()
    await sending
    shown = results_of(await reader.take())
    assert [each.sequence for each in shown] == [3, 4]
    assert shown[0].artifact_created.HasField("ref")
    assert results_of(await late.take()) == shown
    assert run.delivery.delivered == 4


async def test_failing_store_ends_the_run_as_unavailable(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    failing = Gated(stores, fails=True)
    run = await speaking(stores, services, orchestrator, artifacts=failing)
    for payload in (inline(), by_ref("theirs"), completed(types_pb2.ContentPart(inline=content()))):
        with pytest.raises(RunFault) as fault:
            await run.sends(payload)
        assert (fault.value.code, fault.value.retryable) == ("host.unavailable", True)
        assert "bucket" not in fault.value.message
    part = types_pb2.ContentPart(inline=content())
    await run.sends(a_delta("see "), result_pb2.MessageDelta(parts=[part]))
    record = await run.ends(Outcome(RunStatus.COMPLETED, completed=WELL))
    assert record.failure is not None
    assert (record.status, record.failure.code) == (RunStatus.FAILED, "host.unavailable")
    # What was shown is kept as it was shown.
    whole, end = await run.stored()
    assert whole.message_completed.message.parts == [text("see "), part]
    assert end.run_failed.code == "host.unavailable"


async def test_failing_store_does_not_change_what_a_run_failed_of(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    failing = Gated(stores, fails=True)
    run = await speaking(stores, services, orchestrator, artifacts=failing)
    await run.sends(result_pb2.MessageDelta(parts=[types_pb2.ContentPart(inline=content())]))
    record = await run.ends(RunFault("runner.crashed", "gone").outcome())
    assert record.failure is not None
    assert record.failure.code == "runner.crashed"


async def test_run_at_its_deadline_waits_for_no_slow_store(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    run = await speaking(stores, services, orchestrator, artifacts=Gated(stores))
    part = types_pb2.ContentPart(inline=content())
    await run.sends(result_pb2.MessageDelta(parts=[part]))
    async with asyncio.timeout(2):
        record = await run.ends(RunFault("runner.timeout", "too late").outcome())
    assert record.status is RunStatus.TIMED_OUT
    whole, _ = await run.stored()
    assert whole.message_completed.message.parts == [part]


async def test_run_without_a_conversation_shows_what_it_made_and_what_its_event_brought(
    stores: Stores, services: RunServices, orchestrator: Orchestrator
) -> None:
    nowhere = {"conversation_key": "", "run_id": None}
    await store(stores, "brought", **nowhere)
    await store(stores, "other", **nowhere)
    event = an_event(conversation_id="", thread_id="")
    event.envelope.input.attachments.add(artifact_id="brought", type="file")
    run = await speaking(stores, services, orchestrator, event=event)
    await run.sends(inline(), by_ref("brought"), by_ref("other"))
    made, brought = (each.artifact_created.ref for each in await run.stored())
    assert brought.artifact_id == "brought"
    await run.sends(by_ref(made.artifact_id))
    assert len(await run.stored()) == 3
    assert [each.code for each in run.delivery.warnings] == ["artifact_unknown"]


@pytest.mark.parametrize("words", ["", "in the middle"])
async def test_artifact_that_waited_for_a_message_when_its_host_was_lost_has_one(
    stores: Stores, services: RunServices, orchestrator: Orchestrator, run: Conversation, words: str
) -> None:
    await run.sends(
        inline(b"1"), completed(text("before")), inline(b"2"), inline(b"3"), inline(b"2")
    )
    if words:
        await run.sends(a_delta(words))
        run.delivery._checkpoints._take()
    await stores.journal.flush()
    orchestrator._active.clear()
    recovery = Recovery(
        stores=stores,
        orchestrator=orchestrator,
        actions=services.actions,
        host_id="host",
        incarnation="start-2",
        limits=services.limits,
        clock=services.clock,
    )
    await recovery.register()
    assert await recovery.recover() == 1
    results = await run.stored()
    two, three = (each.artifact_created.ref for each in results[2:4])
    last, end = results[-2:]
    assert end.run_failed.code == "host.restarted"
    assert last.message_completed.message.artifacts == [two, three]
    assert "".join(part.text for part in last.message_completed.message.parts) == words
    # An artifact is whole; the text was cut.
    assert last.message_completed.incomplete is bool(words)
    assert [len(each.artifacts) for each in await items(stores)] == [1, 2]
