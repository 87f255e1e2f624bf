"""Streams that runners open: who reads nothing, and who was not taken in."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from runmesh.v1 import attach_pb2, discovery_pb2, manifest_pb2, types_pb2

from host_service.errors import Incompatible, Unauthorized, Unavailable
from host_service.registry import HostIdentity, InstanceState, Registry, attachments
from host_service.registry.attachments import Attachments, Ticket

PLUGIN = "acme/desk"
HELLO = attach_pb2.AttachHello(
    protocol_versions=["1"],
    handshake=discovery_pb2.HandshakeResponse(
        plugin_id=PLUGIN, plugin_version="1.0.0", instance_id="one"
    ),
    runners=[
        manifest_pb2.RunnerManifest(
            id=f"plugin:{PLUGIN}/default",
            name="default",
            label=types_pb2.LocalizedText(text={"en_US": "Desk"}),
            protocol_version="1",
            version="1.0.0",
        )
    ],
)


async def _is_unrevoked() -> bool:
    return True


def ticket(token_id: str = "token") -> Ticket:
    return Ticket(
        token_id=token_id, plugin_id=PLUGIN, seconds_left=3600, is_unrevoked=_is_unrevoked
    )


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    made = Registry(identity=HostIdentity("host", "A host", "0.1.0"))
    yield made
    await made.close()


@pytest.fixture
async def streams(registry: Registry) -> AsyncIterator[Attachments]:
    made = Attachments(registry=registry, initial_credit=8, expected_seconds=0)
    yield made
    await made.close()


async def for_ever(*_: object) -> None:
    await asyncio.Event().wait()


async def test_peer_that_reads_nothing_is_let_go(
    registry: Registry, streams: Attachments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "_WRITE_SECONDS", 0.05)
    stream = streams.admit(ticket(), HELLO)
    with pytest.raises(Unavailable, match="nothing of what the host sends was read for"):
        await streams.serve(stream, read=for_ever, write=for_ever)
    assert not registry.instances()
    assert len(streams) == 0


async def test_refused_are_listed_by_plugin_and_no_more_than_some(
    registry: Registry, streams: Attachments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "_REFUSED_LISTED", 3)
    for number in (1, 2, 2, 3, 4, 5):
        streams.refuse(f"acme/desk{number}", Unauthorized(f"attempt {number}"))
    reasons = [each.reason for each in registry.instances()]
    assert reasons == [f"it may not attach: attempt {number}" for number in (3, 4, 5)]


async def test_refused_leave_the_list_in_time_or_when_one_is_taken_in(
    registry: Registry, streams: Attachments, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Incompatible("no protocol version in common")
    streams.refuse(PLUGIN, old)
    assert [each.state for each in registry.instances()] == [InstanceState.INCOMPATIBLE]
    stream = streams.admit(ticket(), HELLO)
    assert registry.instances() == (stream.instance,)
    monkeypatch.setattr(attachments, "_REFUSED_SECONDS", 0.01)
    streams.refuse(PLUGIN, old)
    assert len(registry.instances()) == 2
    async with asyncio.timeout(10):
        while len(registry.instances()) > 1:
            await registry.changed()
    # What serves keeps its runners when the refused one is forgotten.
    assert registry.manifest(f"plugin:{PLUGIN}/default") is not None
