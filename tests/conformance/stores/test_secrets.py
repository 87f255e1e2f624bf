"""The promises of secrets."""

import asyncio
import copy
import logging
import pickle
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from stores import Stores, open_stores
from stores.errors import InvalidRecord, SecretKeyUnusable, SecretUnreadable, ValueTooLarge
from stores.records import CatalogueItem, CatalogueKind
from stores.secret_keys import SecretKeys, new_secret_key, parse_secret_keys
from stores.secrets import Reencrypted, Secret, SecretOwner
from stores.sql.opening import open_database
from tests.conformance.stores.examples import EXAMPLES, KEYS, TEXTS, holds_for_all_examples
from tests.conformance.stores.samples import an_agent

OWNER = SecretOwner(CatalogueKind.MODEL, "gpt")
CANARY = "canary-5f1e-世界"
OLD, NEW = new_secret_key(), new_secret_key()


def keys(*texts: str) -> SecretKeys:
    return parse_secret_keys("\n".join(texts), source="the test")


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[Stores]:
    opened = await open_stores(database_url, secret_keys=keys(OLD))
    yield opened
    await opened.close()


async def revealed(stores: Stores, name: str, owner: SecretOwner = OWNER) -> str | None:
    secret = await stores.secrets.get(owner, name)
    return None if secret is None else secret.reveal()


def rows(url: str, statement: str) -> list[Any]:
    with open_database(url, synchronous="FULL").engine.begin() as connection:
        result = connection.execute(sa.text(statement))
        return list(result) if result.returns_rows else []


async def test_secret_comes_back_and_is_replaced_and_deleted(stores: Stores) -> None:
    assert await revealed(stores, "api_key") is None
    await stores.secrets.put(OWNER, "api_key", CANARY)
    assert await revealed(stores, "api_key") == CANARY
    await stores.secrets.put(OWNER, "api_key", Secret("other"))
    await stores.secrets.put(OWNER, "Z", "")
    assert await revealed(stores, "api_key") == "other"
    assert await stores.secrets.names(OWNER) == ["Z", "api_key"]
    assert await stores.secrets.delete(OWNER, "api_key") is True
    assert await stores.secrets.delete(OWNER, "api_key") is False
    assert await stores.secrets.names(OWNER) == ["Z"]
    assert await stores.secrets.names(SecretOwner("model", "other")) == []


async def test_any_text_comes_back_for_any_place(stores: Stores) -> None:
    @EXAMPLES
    @given(kind=KEYS, id=KEYS, name=KEYS, text=TEXTS | st.just("a\0b"))
    async def holds(kind: str, id: str, name: str, text: str) -> None:
        owner = SecretOwner(kind, id)
        await stores.secrets.put(owner, name, text)
        assert await revealed(stores, name, owner) == text
        assert await stores.secrets.delete(owner, name)

    await holds_for_all_examples(holds)


async def test_nothing_of_a_secret_is_in_the_database(stores: Stores, database_url: str) -> None:
    await stores.secrets.put(OWNER, "api_key", CANARY)
    await stores.secrets.put(OWNER, "again", CANARY)
    stored = rows(database_url, "SELECT * FROM secrets ORDER BY name")
    assert CANARY not in str(stored)
    sealed = [bytes(row[-1]) for row in stored]
    assert all(CANARY.encode() not in each for each in sealed)
    assert sealed[0] != sealed[1]


async def test_secret_that_was_moved_or_changed_does_not_decrypt(
    stores: Stores, database_url: str
) -> None:
    places = [("model", "gpt", "b"), ("model", "gpt2", "a"), ("plugin", "gpt", "a")]
    changes = [
        *(
            f"UPDATE secrets SET owner_kind = '{kind}', owner_id = '{owner}', name = '{name}'"
            for kind, owner, name in places
        ),
        "UPDATE secrets SET sealed = {flipped}",
        "UPDATE secrets SET sealed = {short}",
        "UPDATE secrets SET sealed = {other_form}",
    ]
    for number, change in enumerate(changes):
        await stores.secrets.put(OWNER, "a", CANARY)
        ((sealed,),) = rows(database_url, "SELECT sealed FROM secrets")
        forms = {
            "flipped": sealed[:-1] + bytes([sealed[-1] ^ 1]),
            "short": sealed[:5],
            "other_form": b"\x02" + sealed[1:],
        }
        rows(
            database_url, change.format(**{k: _literal(database_url, v) for k, v in forms.items()})
        )
        kind, owner, name = places[number] if number < len(places) else (*_texts(OWNER), "a")
        with pytest.raises(SecretUnreadable, match="changed or moved; store it again") as caught:
            await stores.secrets.get(SecretOwner(kind, owner), name)
        assert CANARY not in str(caught.value)
        rows(database_url, "DELETE FROM secrets")


def _texts(owner: SecretOwner) -> tuple[str, str]:
    return str(owner.kind), owner.id


def _literal(url: str, value: bytes) -> str:
    return f"x'{value.hex()}'" if url.startswith("sqlite") else f"'\\x{value.hex()}'"


async def test_places_that_read_alike_are_not_one(stores: Stores, database_url: str) -> None:
    await stores.secrets.put(SecretOwner("model", "a"), "bc", CANARY)
    rows(database_url, "UPDATE secrets SET owner_id = 'ab', name = 'c'")
    with pytest.raises(SecretUnreadable):
        await stores.secrets.get(SecretOwner("model", "ab"), "c")


async def test_wrong_key_says_what_to_do_and_nothing_else(
    stores: Stores, database_url: str
) -> None:
    await stores.secrets.put(OWNER, "api_key", CANARY)
    other = await open_stores(database_url, secret_keys=keys(NEW))
    with pytest.raises(SecretUnreadable, match="add that key to RUNMESH_SECRET_KEY") as caught:
        await other.secrets.get(OWNER, "api_key")
    told = str(caught.value) + repr(caught.value)
    assert caught.value.key_id == keys(OLD).newest.id
    assert "'api_key' of model 'gpt'" in told
    assert not any(each in told for each in (CANARY, OLD, NEW, OLD[4:]))
    assert await other.secrets.missing_keys() == [keys(OLD).newest.id]
    assert await other.secrets.names(OWNER) == ["api_key"]
    assert await stores.secrets.missing_keys() == []
    await other.close()


async def test_without_keys_secrets_are_named_and_deleted_only(
    stores: Stores, database_url: str
) -> None:
    await stores.secrets.put(OWNER, "api_key", CANARY)
    without = await open_stores(database_url)
    with pytest.raises(SecretKeyUnusable, match="set RUNMESH_SECRET_KEY"):
        _ = without.secrets.put(OWNER, "other", CANARY)
    with pytest.raises(SecretUnreadable):
        await without.secrets.get(OWNER, "api_key")
    assert await without.secrets.names(OWNER) == ["api_key"]
    assert await without.secrets.delete(OWNER, "api_key") is True
    await without.close()


async def test_rotation_encrypts_everything_anew_and_may_be_started_again(
    stores: Stores, database_url: str
) -> None:
    for number in range(7):
        await stores.secrets.put(OWNER, f"secret-{number}", f"{CANARY} {number}")
    rotating = await open_stores(database_url, secret_keys=keys(NEW, OLD))
    assert await revealed(rotating, "secret-3") == f"{CANARY} 3"
    await rotating.secrets.put(OWNER, "secret-0", "new")
    revision = await rotating.catalogue.revision()
    interrupted = asyncio.create_task(rotating.secrets.reencrypt(batch=2))
    while dict(_key_ids(database_url)).get(_id(NEW), 0) < 2:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    interrupted.cancel()
    await asyncio.gather(interrupted, return_exceptions=True)
    await rotating.secrets.reencrypt(batch=2)
    assert await rotating.secrets.reencrypt() == Reencrypted(0, ())
    assert await rotating.catalogue.revision() == revision
    await rotating.close()
    assert _key_ids(database_url) == [(_id(NEW), 7)]
    rotated = await open_stores(database_url, secret_keys=keys(NEW))
    for number in range(1, 7):
        assert await revealed(rotated, f"secret-{number}") == f"{CANARY} {number}"
    await rotated.close()


def _id(key: str) -> str:
    return keys(key).newest.id


def _key_ids(url: str) -> list[tuple[str, int]]:
    return [tuple(row) for row in rows(url, "SELECT key_id, count(*) FROM secrets GROUP BY key_id")]


async def test_rotation_leaves_what_it_cannot_read_and_says_so(
    stores: Stores, database_url: str
) -> None:
    for number in range(5):
        await stores.secrets.put(OWNER, f"{number}", CANARY)
    rows(database_url, "UPDATE secrets SET key_id = 'unknown' WHERE name = '2'")
    rotating = await open_stores(database_url, secret_keys=keys(NEW, OLD))
    assert await rotating.secrets.reencrypt(batch=1) == Reencrypted(
        4, ((SecretOwner("model", "gpt"), "2"),)
    )
    await rotating.close()


async def test_rotation_does_not_undo_what_is_written_meanwhile(
    stores: Stores, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("changed", "deleted", "left"):
        await stores.secrets.put(OWNER, name, "before")
    rotating = await open_stores(database_url, secret_keys=keys(NEW, OLD))

    async def write_between_reading_and_writing() -> None:
        await rotating.secrets.put(OWNER, "changed", "after")
        await rotating.secrets.delete(OWNER, "deleted")

    monkeypatch.setattr(rotating.journal, "room", write_between_reading_and_writing)
    assert await rotating.secrets.reencrypt() == Reencrypted(1, ())
    found = [await revealed(rotating, name) for name in ("changed", "deleted", "left")]
    assert found == ["after", None, "before"]
    await rotating.close()


async def test_deleted_records_take_their_secrets_along(stores: Stores) -> None:
    item = CatalogueItem(kind=CatalogueKind.MODEL, id="gpt", document="{}")
    await stores.catalogue.put_item(item)
    await stores.catalogue.put_agent(an_agent("gpt"))
    for kind in ("model", "agent", "plugin"):
        await stores.secrets.put(SecretOwner(kind, "gpt"), "api_key", CANARY)
    await stores.catalogue.delete_item(CatalogueKind.MODEL, "gpt")
    assert await revealed(stores, "api_key") is None
    assert await revealed(stores, "api_key", SecretOwner("agent", "gpt")) == CANARY
    await stores.catalogue.delete_agent("gpt")
    assert await revealed(stores, "api_key", SecretOwner("agent", "gpt")) is None
    assert await revealed(stores, "api_key", SecretOwner("plugin", "gpt")) == CANARY


async def test_change_of_a_secret_grows_the_catalogues_revision(stores: Stores) -> None:
    await stores.secrets.put(OWNER, "api_key", CANARY)
    await stores.secrets.put(OWNER, "api_key", CANARY)
    await stores.secrets.delete(OWNER, "api_key")
    await stores.secrets.delete(OWNER, "api_key")
    assert await stores.catalogue.revision() == 3


async def test_what_cannot_be_stored_is_refused_without_being_told(stores: Stores) -> None:
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: stores.secrets.put(SecretOwner("", "x"), "n", CANARY), "owner_kind must not"),
        (lambda: stores.secrets.put(SecretOwner("x", ""), "n", CANARY), "owner_id must not"),
        (lambda: stores.secrets.put(OWNER, "", CANARY), "name must not be empty"),
        (lambda: stores.secrets.put(OWNER, "a\0", CANARY), "name must not contain"),
        (lambda: stores.secrets.put(OWNER, "n", CANARY + "\ud83d"), "lone surrogate"),
        (lambda: stores.secrets.put(OWNER, "n", CANARY + "x" * 65_536), "at most 65536 bytes"),
    ]
    for write, rule in refused:
        with pytest.raises(InvalidRecord, match=rule) as caught:
            write()
        assert CANARY not in str(caught.value)
    with pytest.raises(ValueTooLarge):
        refused[-1][0]()
    assert await stores.secrets.get(OWNER, "a\0") is None


async def test_secret_shows_itself_to_nobody(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    await stores.secrets.put(OWNER, "api_key", CANARY)
    secret = await stores.secrets.get(OWNER, "api_key")
    assert secret == Secret(CANARY)
    assert secret != Secret("other")
    logging.getLogger("runmesh.test").warning("%s %r", secret, [secret])
    shown = f"{secret} {secret!r} {secret:>9} {[secret]} {stores} {keys(OLD)} {caplog.text}"
    assert not any(each in shown for each in (CANARY, OLD, OLD[4:]))
    for take in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not to be pickled or copied"):
            take(secret)
