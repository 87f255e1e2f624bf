"""The promises of API keys."""

from dataclasses import replace

import pytest

from stores import Stores
from stores.errors import AlreadyExists
from tests.conformance.stores.samples import a_key, at


async def test_created_key_is_found_by_its_hash(stores: Stores) -> None:
    key = a_key(
        workspace="acme", bot="helper", expires_at=at(60), revoked_at=at(2), last_used_at=at(1)
    )
    await stores.keys.create(key)
    await stores.keys.create(a_key("other"))
    assert await stores.keys.find_by_hash(key.hash) == key
    assert await stores.keys.get("key") == key
    assert await stores.keys.find_by_hash(b"unknown") is None
    assert await stores.keys.get("unknown") is None


@pytest.mark.parametrize("field", ["key_id", "hash"])
async def test_taken_id_or_hash_is_refused(stores: Stores, field: str) -> None:
    await stores.keys.create(a_key())
    other = replace(a_key("other"), **{field: getattr(a_key(), field)})
    with pytest.raises(AlreadyExists) as caught:
        await stores.keys.create(other)
    assert caught.value.field == field
    assert "hash of" not in str(caught.value)
    assert await stores.keys.list() == [a_key()]


async def test_key_is_revoked_once(stores: Stores) -> None:
    await stores.keys.create(a_key())
    assert await stores.keys.revoke("key", at(1)) is True
    assert await stores.keys.revoke("key", at(2)) is False
    assert await stores.keys.revoke("unknown", at(2)) is False
    assert await stores.keys.get("key") == a_key(revoked_at=at(1))


async def test_last_use_only_moves_forward(stores: Stores) -> None:
    await stores.keys.create(a_key())
    for seconds in (5, 3, 9, 4):
        await stores.keys.mark_used("key", at(seconds))
    await stores.keys.mark_used("unknown", at(1))
    assert await stores.keys.get("key") == a_key(last_used_at=at(9))


async def test_keys_are_listed_oldest_first_then_by_id(stores: Stores) -> None:
    await stores.keys.create(a_key("c", created_at=at(1)))
    await stores.keys.create(a_key("b", created_at=at(2)))
    await stores.keys.create(a_key("a", created_at=at(2)))
    assert [key.key_id for key in await stores.keys.list()] == ["c", "a", "b"]
