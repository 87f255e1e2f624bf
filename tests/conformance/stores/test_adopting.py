"""Artifacts that nobody has become a conversation's, once and for all, on both engines."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stores import Stores, open_stores
from stores.errors import InvalidRecord
from stores.records import ArtifactHeader, ArtifactRecord
from tests.conformance.stores.blob_stores import in_chunks
from tests.conformance.stores.samples import NOON, at


@pytest.fixture
async def stores(database_url: str, tmp_path: Path) -> AsyncIterator[Stores]:
    """Gives open stores with nothing in them, at noon."""
    blobs = (tmp_path / "blobs").as_uri()
    opened = await open_stores(database_url, blobs_url=blobs, clock=lambda: at(10))
    yield opened
    await opened.close()


async def upload(stores: Stores, artifact_id: str = "a", **changes: Any) -> ArtifactRecord:
    """Store an artifact that nobody has."""
    fields: dict[str, Any] = {
        "artifact_id": artifact_id,
        "workspace": "",
        "bot": "",
        "conversation_key": "",
        "type": "file",
        "created_at": NOON,
    }
    return await stores.artifacts.write(ArtifactHeader(**(fields | changes)), in_chunks(b"bytes"))


async def adopt(stores: Stores, *ids: str, **changes: str) -> list[str]:
    """Give artifacts to the conversation `talk`; return those that cannot be given."""
    place = {"workspace": "acme", "bot": "helper", "conversation_key": "talk"} | changes
    return list(await stores.artifacts.adopt(ids, **place))


async def place_of(stores: Stores, artifact_id: str = "a") -> tuple[str, str, str]:
    record = await stores.artifacts.get(artifact_id)
    assert record is not None
    return record.workspace, record.bot, record.conversation_key


TALK = ("acme", "helper", "talk")


async def test_artifact_that_nobody_has_becomes_the_conversations(stores: Stores) -> None:
    await upload(stores)
    await upload(stores, "b", workspace="acme", bot="helper")
    assert await adopt(stores, "a", "b") == []
    assert await place_of(stores, "a") == await place_of(stores, "b") == TALK
    listed = await stores.artifacts.list_of_conversation("talk")
    assert [each.artifact_id for each in listed.items] == ["a", "b"]


async def test_adopting_again_changes_nothing(stores: Stores) -> None:
    await upload(stores)
    assert await adopt(stores, "a") == await adopt(stores, "a", "a") == []
    assert await place_of(stores) == TALK


async def test_artifact_of_the_conversation_stays_whoever_made_it(stores: Stores) -> None:
    own = {"workspace": "acme", "bot": "helper", "conversation_key": "talk", "run_id": "run-1"}
    await upload(stores, **own)
    assert await adopt(stores, "a") == []
    assert await place_of(stores) == TALK


@pytest.mark.parametrize(
    "changes",
    [
        {"conversation_key": "other"},
        {"workspace": "acme", "bot": "helper", "conversation_key": "other"},
        {"workspace": "elsewhere"},
        {"bot": "another"},
        {"run_id": "run-1"},
        {"workspace": "elsewhere", "bot": "helper", "conversation_key": "talk"},
        {"expires_at": at(5)},
    ],
    ids=str,
)
async def test_artifact_that_somebody_has_cannot_be_given(
    stores: Stores, changes: dict[str, Any]
) -> None:
    before = await upload(stores, **changes)
    await upload(stores, "free")
    assert await adopt(stores, "free", "a") == ["a"]
    # All or none.
    assert await place_of(stores, "free") == ("", "", "")
    if before.expires_at is None:
        assert await stores.artifacts.get("a") == before


async def test_unknown_artifact_cannot_be_given(stores: Stores) -> None:
    assert await adopt(stores, "nothing", "../a", "") == ["nothing", "../a", ""]


async def test_without_a_conversation_only_workspace_and_bot_are_given(stores: Stores) -> None:
    await upload(stores)
    assert await adopt(stores, "a", conversation_key="") == []
    assert await place_of(stores) == ("acme", "helper", "")
    assert await adopt(stores, "a", workspace="elsewhere") == ["a"]
    assert await adopt(stores, "a") == []


async def test_of_two_conversations_one_gets_it(stores: Stores) -> None:
    for number in range(10):
        await upload(stores, f"a{number}")
    refused = await asyncio.gather(
        *(
            adopt(stores, f"a{number}", conversation_key=talk)
            for number in range(10)
            for talk in ("one", "two")
        )
    )
    assert sorted(each for part in refused for each in part) == [f"a{n}" for n in range(10)]
    assert len([part for part in refused if not part]) == 10


async def test_key_that_cannot_be_stored_is_refused(stores: Stores) -> None:
    with pytest.raises(InvalidRecord, match="workspace must not contain U"):
        await adopt(stores, "a", workspace="a\0b")
    with pytest.raises(InvalidRecord, match="conversation_key must be at most 2048"):
        await adopt(stores, "a", conversation_key="k" * 2049)


async def test_expiry_goes_on_after_it(stores: Stores) -> None:
    record = await upload(stores, expires_at=at(20))
    assert await adopt(stores, "a") == []
    kept = await stores.artifacts.get("a")
    assert kept is not None
    assert kept.expires_at == record.expires_at == NOON + timedelta(seconds=20)
