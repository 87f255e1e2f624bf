"""The promises of storage."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores import Stores, open_stores
from stores.errors import InvalidRecord, ValueTooLarge
from stores.limits import MIB, StoreLimits
from stores.storage import StorageEntry, StoredValue
from tests.conformance.stores.examples import EXAMPLES, KEYS, holds_for_all_examples
from tests.conformance.stores.samples import NOON, at

AREA, OWNER = "plugin", "acme/helper"


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stores(database_url: str, clock: Clock) -> AsyncIterator[Stores]:
    opened = await open_stores(database_url, clock=clock)
    yield opened
    await opened.close()


async def test_bytes_come_back_with_their_size_and_times(stores: Stores, clock: Clock) -> None:
    stored = await stores.storage.set(AREA, OWNER, "key", b"one")
    assert stored == StorageEntry("key", 3, NOON, NOON)
    clock.now = at(5)
    assert await stores.storage.set(AREA, OWNER, "key", b"four") == StorageEntry(
        "key", 4, NOON, at(5)
    )
    assert await stores.storage.get(AREA, OWNER, "key") == StoredValue(b"four", at(5))
    assert (await stores.storage.list(AREA, OWNER)).items == (StorageEntry("key", 4, NOON, at(5)),)


async def test_any_key_and_any_bytes_come_back(stores: Stores) -> None:
    @EXAMPLES
    @given(key=KEYS, value=st.binary(max_size=300))
    async def holds(key: str, value: bytes) -> None:
        await stores.storage.set(AREA, OWNER, key, value)
        found = await stores.storage.get(AREA, OWNER, key)
        assert found == StoredValue(value, NOON)

    await holds_for_all_examples(holds)


async def test_empty_value_is_not_an_absent_one(stores: Stores) -> None:
    await stores.storage.set(AREA, OWNER, "empty", b"")
    assert await stores.storage.get(AREA, OWNER, "empty") == StoredValue(b"", NOON)
    assert await stores.storage.get(AREA, OWNER, "absent") is None
    assert await stores.storage.delete(AREA, OWNER, "empty") is True
    assert await stores.storage.delete(AREA, OWNER, "empty") is False
    assert await stores.storage.get(AREA, OWNER, "empty") is None


async def test_no_owner_and_no_area_sees_what_is_anothers(stores: Stores) -> None:
    places = [
        ("plugin", "acme/helper"),
        ("workspace", "acme/helper"),
        ("plugin", "acme/Helper"),
        ("plugin", "acme"),
        ("plugin", "acme/helper "),
        ("plugina", "cme/helper"),
        ("plugin", "acme/helper/key"),
        ("plugin", "%"),
        ("", ""),
    ]
    for number, (area, owner) in enumerate(places):
        await stores.storage.set(area, owner, "key", bytes([number]))
    for number, (area, owner) in enumerate(places):
        assert await stores.storage.get(area, owner, "key") == StoredValue(bytes([number]), NOON)
        assert len((await stores.storage.list(area, owner)).items) == 1
    await stores.storage.delete("plugin", "acme", "key")
    assert await stores.storage.get("plugin", "acme/helper", "key") is not None


async def test_largest_value_is_stored_and_a_larger_one_refused(stores: Stores) -> None:
    assert StoreLimits().storage_value_bytes == 3 * MIB
    largest = bytes(range(256)) * (3 * MIB // 256)
    await stores.storage.set(AREA, OWNER, "key", largest)
    with pytest.raises(ValueTooLarge, match="at most 3145728 bytes, is 3145729") as caught:
        _ = stores.storage.set(AREA, OWNER, "key", largest + b"x")
    assert (caught.value.size, caught.value.limit) == (3 * MIB + 1, 3 * MIB)
    assert await stores.storage.get(AREA, OWNER, "key") == StoredValue(largest, NOON)


@pytest.mark.parametrize("bad", ["a\0b", "a\ud83d"])
async def test_text_that_cannot_be_stored_is_refused_and_finds_nothing(
    stores: Stores, bad: str
) -> None:
    writes: list[Callable[[], object]] = [
        lambda: stores.storage.set(bad, OWNER, "key", b""),
        lambda: stores.storage.set(AREA, bad, "key", b""),
        lambda: stores.storage.set(AREA, OWNER, bad, b""),
        lambda: stores.storage.delete(AREA, OWNER, bad),
    ]
    for write in writes:
        with pytest.raises(InvalidRecord):
            write()
    assert await stores.storage.get(AREA, OWNER, bad) is None
    assert (await stores.storage.list(AREA, OWNER, prefix=bad)).items == ()


async def test_longest_names_fit_and_longer_ones_are_refused(stores: Stores) -> None:
    letters = "".join(chr(0x4E00 + number) for number in range(682))
    area, owner, key = letters[:85], letters, letters[85:170]
    await stores.storage.set(area, owner, key, b"1")
    assert await stores.storage.get(area, owner, key) is not None
    for names in ((area + "x", owner, key), (area, owner + "xyz", key), (area, owner, key + "x")):
        with pytest.raises(InvalidRecord, match="must be at most"):
            _ = stores.storage.set(*names, b"")
    with pytest.raises(InvalidRecord, match="key must not be empty"):
        _ = stores.storage.set(area, owner, "", b"")


async def test_list_goes_by_the_bytes_of_the_keys(stores: Stores) -> None:
    keys = ["b", "a", "a%", "a_b", "aé", "A", "\U0010ffff", "\ue000", "\U0001f600"]
    await asyncio.gather(*(stores.storage.set(AREA, OWNER, key, b"1") for key in keys))
    for prefix in ("", "a", "a%", "a_", "\U0010ffff", "x"):
        page = await stores.storage.list(AREA, OWNER, prefix=prefix)
        expected = sorted((key for key in keys if key.startswith(prefix)), key=str.encode)
        assert [entry.key for entry in page.items] == expected


async def test_pages_are_stable_while_keys_come_and_go(stores: Stores) -> None:
    staying = [f"k{number:02}" for number in range(20)]
    await asyncio.gather(*(stores.storage.set(AREA, OWNER, key, b"1") for key in staying))
    going = asyncio.create_task(_come_and_go(stores))
    found: list[str] = []
    after = None
    while True:
        page = await stores.storage.list(AREA, OWNER, after=after, limit=3)
        found += [entry.key for entry in page.items]
        after = page.next_cursor
        if after is None:
            break
    await going
    assert found == sorted(set(found))
    assert set(staying) <= set(found)


async def _come_and_go(stores: Stores) -> None:
    for number in range(20):
        key = f"k{number:02}-and-gone"
        await stores.storage.set(AREA, OWNER, key, b"1")
        await stores.storage.set(AREA, OWNER, f"k{number:02}", b"22")
        if number % 2:
            await stores.storage.delete(AREA, OWNER, key)
