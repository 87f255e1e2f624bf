"""Where the bytes of artifacts are: one place for all hosts of a database; what its loss costs."""

import asyncio
import base64
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from runmesh.v1 import event_pb2, types_pb2

from tests.integration.host.calls import END, calling, message, scripted, whole
from tests.integration.host.files import download, filing_run, upload
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_scripted_plugin
from tests.integration.host.refusals import refusal_of, refused
from tests.integration.host.waiting import eventually
from tests.postgresql import running_postgresql

_AGENTS = """\
agents:
- {id: default, runner_id: "plugin:runmesh/echo/default"}
- {id: filing, runner_id: "plugin:acme/scripted/filing"}
"""
_EAGER = "limits: {artifact_collection_seconds: 0.1, artifact_grace_seconds: 0.1}\n"

MakeHost = Callable[..., HostProcess]


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    write_scripted_plugin(tmp_path / "plugins")
    return tmp_path / "plugins"


def created(data: bytes) -> dict[str, Any]:
    inline = {"data": base64.b64encode(data).decode(), "mimeType": "image/png"}
    return {"send": [{"artifactCreated": {"inline": inline}}]}


async def test_bytes_that_cannot_be_stored_are_told_and_cost_nothing_else(
    make_host: MakeHost, plugins: Path, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_bytes(b"a file where a folder should be")
    host = make_host(
        plugins=plugins, config=_AGENTS, arguments=("--blobs", blocked.as_uri())
    ).start()
    async with calling(host.addresses["grpc"], host.key) as caller:
        told = []
        refusal = await refused(upload(caller, [b"x"]))
        told.append(refusal.message)
        assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "UNAVAILABLE")
        inline = types_pb2.InlineContent(data=b"x", mime_type="a/b")
        content = event_pb2.EventInput(parts=[types_pb2.ContentPart(inline=inline)])
        refusal = await refused(caller.submit(message(input=content)))
        told.append(refusal.message)
        assert refusal.code == "UNAVAILABLE"
        async with filing_run(caller, tmp_path / "go", conversation_id="room") as run:
            refusal = await refused(run.create([b"x"]))
            told.append(refusal.message)
            assert refusal.code == "UNAVAILABLE"
            assert (await run.end()).failure == ""
        steps = (created(b"x"), {"send": [whole("never")]}, END)
        answer = await caller.dispatch(scripted(*steps, conversation_id="room"), "filing")
        told.append(answer.ended.failure.message)
        assert (answer.failure, answer.ended.failure.retryable) == ("host.unavailable", True)
        assert answer.messages == []
        assert not any(str(tmp_path) in text or "blocked" in text for text in told)
        # Whoever brings no files notices nothing.
        assert (await caller.dispatch(message("hello"))).text == "hello"


async def test_hosts_that_share_a_database_share_the_bytes(
    make_host: MakeHost, plugins: Path, tmp_path: Path
) -> None:
    with running_postgresql() as server:
        shared = ("--database", server.url, "--blobs", (tmp_path / "shared").as_uri())
        here, there = (
            make_host(name, plugins=plugins, config=_AGENTS, arguments=shared).start()
            for name in ("here", "there")
        )
        async with (
            calling(here.addresses["grpc"], here.key) as first,
            calling(there.addresses["grpc"], there.key) as second,
        ):
            await _share(first, second, tmp_path)
        for host in (here, there):
            host.close()


async def _share(first: Any, second: Any, tmp_path: Path) -> None:
    ref = await upload(first, [b"brought"])
    attached = event_pb2.EventInput(text="look", attachments=[ref])
    async with filing_run(second, tmp_path / "go", input=attached, conversation_id="room") as run:
        assert await run.stream(ref.artifact_id) == b"brought"
        made = await run.create([b"made"])
        await run.end()
    assert await download(first, made.artifact_id) == b"made"
    # The same event at both hosts at once: one run, one artifact.
    inline = types_pb2.InlineContent(data=b"twice", mime_type="image/png")
    content = event_pb2.EventInput(parts=[types_pb2.ContentPart(inline=inline)])
    for _ in range(5):
        event = message(input=content, event_id=uuid.uuid4().hex, conversation_id="both")
        answers = await asyncio.gather(*(each.dispatch(event) for each in (first, second) * 2))
        assert len({answer.run_id for answer in answers}) == 1
        assert {answer.failure for answer in answers} == {""}
    # A file that two conversations want at once goes to one of them.
    free = await upload(first, [b"free"])
    wanted = event_pb2.EventInput(text="mine", attachments=[free])
    results = await asyncio.gather(
        *(
            each.submit(message(input=wanted, conversation_id=f"room-{number}"))
            for number, each in enumerate((first, second) * 3)
        ),
        return_exceptions=True,
    )
    refusals = [refusal_of(each) for each in results if isinstance(each, grpc.aio.AioRpcError)]
    assert [refusal.reason for refusal in refusals] == ["INVALID_ARGUMENT"] * 5


async def test_host_collects_what_expired_and_stops_at_once_all_the_same(
    make_host: MakeHost, plugins: Path
) -> None:
    host = make_host(plugins=plugins, config=_AGENTS + _EAGER).start()
    blobs = host.data / "blobs"

    def bytes_kept() -> list[bytes]:
        return sorted(path.read_bytes() for path in blobs.rglob("*") if path.is_file())

    async with calling(host.addresses["grpc"], host.key) as caller:
        soon = datetime.now(UTC) + timedelta(seconds=4)
        brief = await upload(caller, [b"brief"], expires_at=soon)
        await upload(caller, [b"kept"])
        assert await download(caller, brief.artifact_id) == b"brief"
        await eventually(lambda: bytes_kept() == [b"kept"])
        assert (await refused(download(caller, brief.artifact_id))).reason == "NOT_FOUND"
    began = asyncio.get_running_loop().time()
    host.close()
    assert asyncio.get_running_loop().time() - began < 15
    assert "Traceback" not in host.log()


async def test_bytes_are_where_the_other_commands_look_for_them(
    make_host: MakeHost, tmp_path: Path
) -> None:
    database = tmp_path / "elsewhere" / "mesh.db"
    database.parent.mkdir()
    host = make_host(arguments=("--database", f"sqlite:///{database}")).start()
    async with calling(host.addresses["grpc"], host.key) as caller:
        await upload(caller, [json.dumps({}).encode()])
    assert any(path.is_file() for path in (database.parent / "blobs").rglob("*"))
    assert not (host.data / "blobs").exists()
