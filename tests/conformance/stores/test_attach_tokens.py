"""The promises of attach tokens."""

from dataclasses import replace

import pytest

from stores import Stores
from stores.errors import AlreadyExists
from tests.conformance.stores.samples import an_attach_token, at


async def test_created_token_is_found_by_its_hash(stores: Stores) -> None:
    token = an_attach_token(revoked_at=at(2), last_used_at=at(1))
    await stores.attach_tokens.create(token)
    await stores.attach_tokens.create(an_attach_token("other"))
    assert await stores.attach_tokens.find_by_hash(token.hash) == token
    assert await stores.attach_tokens.get("token") == token
    assert await stores.attach_tokens.find_by_hash(b"unknown") is None
    assert await stores.attach_tokens.get("unknown") is None


@pytest.mark.parametrize("field", ["token_id", "hash"])
async def test_taken_id_or_hash_is_refused(stores: Stores, field: str) -> None:
    await stores.attach_tokens.create(an_attach_token())
    other = replace(an_attach_token("other"), **{field: getattr(an_attach_token(), field)})
    with pytest.raises(AlreadyExists) as caught:
        await stores.attach_tokens.create(other)
    assert caught.value.field == field
    assert "hash of" not in str(caught.value)
    assert await stores.attach_tokens.list() == [an_attach_token()]


async def test_token_is_revoked_once(stores: Stores) -> None:
    await stores.attach_tokens.create(an_attach_token())
    assert await stores.attach_tokens.revoke("token", at(1)) is True
    assert await stores.attach_tokens.revoke("token", at(2)) is False
    assert await stores.attach_tokens.revoke("unknown", at(2)) is False
    assert await stores.attach_tokens.get("token") == an_attach_token(revoked_at=at(1))


async def test_last_use_only_moves_forward(stores: Stores) -> None:
    await stores.attach_tokens.create(an_attach_token())
    for seconds in (5, 3, 9, 4):
        await stores.attach_tokens.mark_used("token", at(seconds))
    await stores.attach_tokens.mark_used("unknown", at(1))
    assert await stores.attach_tokens.get("token") == an_attach_token(last_used_at=at(9))


async def test_tokens_are_listed_oldest_first_then_by_id(stores: Stores) -> None:
    await stores.attach_tokens.create(an_attach_token("c", created_at=at(1)))
    await stores.attach_tokens.create(an_attach_token("b", created_at=at(2)))
    await stores.attach_tokens.create(an_attach_token("a", created_at=at(2)))
    assert [token.token_id for token in await stores.attach_tokens.list()] == ["c", "a", "b"]
