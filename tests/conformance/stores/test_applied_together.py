"""The promises of one apply of records, secrets and keys: all of it or nothing."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from stores import Stores, open_stores
from stores.errors import (
    AlreadyExists,
    InvalidRecord,
    RevisionConflict,
    SecretKeyUnusable,
    ValueTooLarge,
)
from stores.records import CatalogueItem, CatalogueKind
from stores.secret_keys import new_secret_key, parse_secret_keys
from stores.secrets import Secret, SecretChange, SecretOwner
from tests.conformance.stores.samples import a_binding, a_key, an_agent, at

OWNER = SecretOwner(CatalogueKind.MODEL, "gpt")
ITEM = CatalogueItem(kind=CatalogueKind.MODEL, id="gpt", document="{}")


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[Stores]:
    keys = parse_secret_keys(new_secret_key(), source="the test")
    opened = await open_stores(database_url, secret_keys=keys)
    yield opened
    await opened.close()


def setting(text: str | None, name: str = "api_key") -> SecretChange:
    return SecretChange(OWNER, name, None if text is None else Secret(text))


async def test_records_secrets_and_keys_come_together(stores: Stores) -> None:
    await stores.catalogue.apply(
        [an_agent()], [a_binding()], [ITEM], secrets=[setting("s")], keys=[a_key()]
    )
    assert await stores.secrets.get(OWNER, "api_key") == Secret("s")
    assert await stores.keys.list() == [a_key()]
    assert len(await stores.catalogue.list_items()) == 1


async def test_taken_hash_leaves_nothing_behind(stores: Stores) -> None:
    await stores.keys.create(a_key())
    revision = await stores.catalogue.revision()
    taken = replace(a_key("other"), hash=a_key().hash)
    with pytest.raises(AlreadyExists):
        await stores.catalogue.apply(
            [an_agent()], [], [ITEM], secrets=[setting("s")], keys=[a_key("third"), taken]
        )
    assert await stores.catalogue.list_agents() == []
    assert await stores.catalogue.list_items() == []
    assert await stores.secrets.names(OWNER) == []
    assert await stores.keys.list() == [a_key()]
    assert await stores.catalogue.revision() == revision


async def test_key_changes_in_place_and_keeps_when_it_was_made_and_used(stores: Stores) -> None:
    await stores.keys.create(a_key(last_used_at=at(5)))
    changed = a_key(
        name="new", hash=b"n" * 32, role="viewer", workspace="acme", bot="b", created_at=at(9)
    )
    await stores.catalogue.apply([], [], keys=[changed])
    kept = replace(changed, created_at=a_key().created_at, last_used_at=at(5))
    assert await stores.keys.list() == [kept]
    assert await stores.keys.find_by_hash(a_key().hash) is None


async def test_revision_grows_with_a_secret_and_not_without_a_change(stores: Stores) -> None:
    await stores.catalogue.apply([], [], [ITEM])
    await stores.catalogue.apply([], [], [ITEM], secrets=[setting("s")])
    assert await stores.catalogue.revision() == 2
    await stores.catalogue.apply([], [], [ITEM], secrets=[setting(None, "unknown")])
    assert await stores.catalogue.revision() == 2
    await stores.catalogue.apply([], [], [ITEM], secrets=[setting(None)])
    assert await stores.catalogue.revision() == 3
    assert await stores.secrets.names(OWNER) == []


async def test_what_cannot_be_stored_is_told_at_once(stores: Stores, database_url: str) -> None:
    with pytest.raises(ValueTooLarge):
        _ = stores.catalogue.apply([], [], secrets=[setting("x" * 10_000_000)])
    with pytest.raises(InvalidRecord, match="must be given once"):
        _ = stores.catalogue.apply([], [], keys=[a_key(), a_key()])
    without_keys = await open_stores(database_url)
    with pytest.raises(SecretKeyUnusable):
        _ = without_keys.catalogue.apply([], [], secrets=[setting("s")])
    await without_keys.close()


async def test_apply_goes_by_the_revision_that_was_read(stores: Stores) -> None:
    await stores.catalogue.apply([an_agent()], [], expected_revision=0)
    for stale in (0, 2):
        with pytest.raises(RevisionConflict, match=f"has revision 1, not {stale}"):
            await stores.catalogue.apply(
                [an_agent("other")], [], [ITEM], keys=[a_key()], expected_revision=stale
            )
    assert [agent.id for agent in await stores.catalogue.list_agents()] == ["agent"]
    assert await stores.keys.list() == []
    await stores.catalogue.apply([an_agent("other")], [], expected_revision=1)
    assert await stores.catalogue.revision() == 2


async def test_one_of_two_processes_at_one_revision_wins(stores: Stores, database_url: str) -> None:
    await stores.catalogue.apply([an_agent()], [])
    other = await open_stores(database_url)
    try:
        for revision in range(1, 11):
            outcomes = await asyncio.gather(
                *(
                    each.catalogue.apply(
                        [], [a_binding(f"{name}-{revision}")], expected_revision=revision
                    )
                    for name, each in (("a", stores), ("b", other))
                ),
                return_exceptions=True,
            )
            assert sum(isinstance(each, RevisionConflict) for each in outcomes) == 1, outcomes
            assert len(await stores.catalogue.list_bindings()) == revision
    finally:
        await other.close()
