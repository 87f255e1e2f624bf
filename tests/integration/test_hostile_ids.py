"""Ids that would be paths: whatever field they stand in, nothing outside the data folder changes.

Every text of every request of GatewayService, HostAPIService and AdminService is tried.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf.descriptor import MethodDescriptor
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import gateway_pb2, host_api_pb2, manifest_pb2, run_pb2

from host_service.registry.channel import open_channel
from host_service.testing import RealHost
from runner_sdk import AgentRunner, Manifest, Result, RunContext
from tests.integration.requests import filled, text_paths, with_text

SERVICES = [
    gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"],
    host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"],
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
]
# No file may ever have this in its name.
MARKER = "marker-4be1"
SECRET = b"what nobody may read"
# A valid id, and a link to the outside wherever a file of that name might be looked for.
LINK = "link"
NUL = f"nul\0{MARKER}"
# The last part of a field that names something that is there, or a place in it.
LOOKED_UP = {
    "action_id", "after", "agent_id", "artifact_id", "at_or_before", "event_id", "key_id",
    "knowledge_base_id", "knowledge_base_ids", "model_id", "page_token", "run_id", "steering_ids",
    "tool_name", "tool_server_id",
}  # fmt: skip
# What is given away there is an id of the caller's own, which may be any text, or may be none.
GIVEN = {("Dispatch", "event"), ("SubmitEvent", "event"), ("Apply", "bindings")}
MAY_BE_NONE = ("Delete", "List")
# PullSteering goes on as long as its run does.
LEFT_OUT = {"PullSteering"}


class Waiting(AgentRunner):
    """Waits, and lets the test have what its run may use."""

    def __init__(self) -> None:
        self.access: asyncio.Future[run_pb2.HostAccess] = asyncio.Future()

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        if ctx.text == "wait":
            self.access.set_result(ctx.host._calls.access)
            await asyncio.Event().wait()
        yield ctx.reply("said")


@dataclass(frozen=True, slots=True)
class Outside:
    """What is around a host's data folder, and must stay as it is.

    Attributes:
        root: The folder that has everything.
        data: The data folder.
    """

    root: Path
    data: Path

    @classmethod
    def make(cls, root: Path) -> "Outside":
        outside = cls(root, root / "inner" / "data")
        (root / "outside").mkdir()
        (root / "outside" / "secret.txt").write_bytes(SECRET)
        return outside

    def link(self) -> None:
        """Puts links to the outside into every folder that the host has."""
        folders = [self.data, *(path for path in self.data.rglob("*") if path.is_dir())]
        for folder in folders:
            (folder / LINK).symlink_to(self.root / "outside")

    def texts(self) -> list[str]:
        outside = self.root / "outside"
        return [
            f"../{MARKER}",
            "..",
            f"%2e%2e/{MARKER}",
            f"..\\{MARKER}",
            f"a/../../../{MARKER}",
            str(outside / MARKER),
            str(outside / "secret.txt"),
            f"{LINK}/secret.txt",
            LINK,
            NUL,
        ]

    def files(self) -> dict[Path, bytes | None]:
        """Everything outside the data folder, and whatever has the marker in its name."""
        found: dict[Path, bytes | None] = {}
        for path in self.root.rglob("*"):
            if MARKER in path.name or not path.is_relative_to(self.data):
                found[path] = path.read_bytes() if path.is_file() else None
        for folder in (Path.cwd(), *Path.cwd().parents, self.root.parent, Path("/tmp")):
            found |= dict.fromkeys(folder.glob(f"*{MARKER}*"))
        return found


async def code_of(call: Any) -> str:
    """How a call ends; nothing of the outside may be in what it answers."""
    try:
        streams = isinstance(call, grpc.aio.UnaryStreamCall | grpc.aio.StreamStreamCall)
        answers = [answer async for answer in call] if streams else [await call]
    except grpc.aio.AioRpcError as error:
        return error.code().name
    assert SECRET not in b"".join(answers)
    return "OK"


def opened(channel: grpc.aio.Channel, method: MethodDescriptor) -> Any:
    """What calls a method with a request, and gives the answers as bytes."""
    kinds: dict[tuple[bool, bool], Any] = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    call = kinds[method.client_streaming, method.server_streaming](
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=bytes,
    )
    if not method.client_streaming:
        return call
    return lambda request, metadata: call([request], metadata=metadata)


def expected(method: MethodDescriptor, path: tuple[str, ...], text: str, template: str) -> set[str]:
    """The codes that a call may end with whose request has a text at a path."""
    if template == "UNIMPLEMENTED":
        return {template}
    if text == NUL:
        # Which action it is decides what is granted, and that is judged before its form.
        names_grant = method.name == "RequestAction" and path == ("action", "action")
        return {"PERMISSION_DENIED" if names_grant else "INVALID_ARGUMENT"}
    refusals = {"INVALID_ARGUMENT", "NOT_FOUND"}
    names_something = path[-1] in LOOKED_UP and (method.name, path[0]) not in GIVEN
    if names_something and text != LINK and not method.name.startswith(MAY_BE_NONE):
        return refusals
    if path[-1] == "page_token":
        # What the pages are of is looked up first in some calls.
        return {"INVALID_ARGUMENT"} | ({template} & refusals)
    # Any text may be data. A conversation that is not the run's is not granted; a binding can tie.
    return refusals | {template, "OK", "PERMISSION_DENIED", "FAILED_PRECONDITION"}


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
async def test_text_that_would_be_a_path_leads_nowhere(service: Any, tmp_path: Path) -> None:
    outside = Outside.make(tmp_path)
    manifest = Manifest.minimal("acme/tested")
    manifest.runners["default"].permissions.platform_actions.append("x")
    agent = admin_pb2.Agent()
    agent.resources.platform_actions.append("x")
    agent.resources.storage.areas.extend(
        number for number in manifest_pb2.StorageArea.values() if number
    )
    runner = Waiting()
    async with (
        RealHost(
            runner,
            manifest=manifest,
            agent=agent,
            data_folder=outside.data,
            limits={"host_calls_burst": 1_000_000},
        ) as host,
        open_channel(host.address) as channel,
    ):
        outside.link()
        before = outside.files()
        metadata = host.metadata
        if service.name == "HostAPIService":
            await host.submit("wait")
            access = await runner.access
            metadata = (
                ("authorization", f"Bearer {access.run_token}"),
                ("runmesh-instance", access.instance_token),
            )
        for method in service.methods:
            if method.name not in LEFT_OUT:
                await _try(opened(channel, method), method, outside.texts(), metadata)
        # Nothing of it has hurt the host.
        assert (await host.dispatch("still there", agent_id="default")).text == "said"
        assert outside.files() == before


async def _try(call: Any, method: MethodDescriptor, texts: list[str], metadata: Any) -> None:
    request = filled(method.input_type)
    template = await code_of(call(request, metadata=metadata))
    # Without what is hostile, it would be served, or is about something that is not there, or that
    # leads to a model which nobody serves.
    assert template in {"OK", "NOT_FOUND", "UNIMPLEMENTED", "UNAVAILABLE"}, (method.name, template)
    for path in text_paths(method.input_type):
        for text in texts:
            code = await code_of(call(with_text(request, path, text), metadata=metadata))
            assert code in expected(method, path, text, template), (method.name, path, text, code)
