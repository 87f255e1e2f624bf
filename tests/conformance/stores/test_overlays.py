"""What is written over state and storage is seen there, and nowhere else."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores import Stores
from stores.errors import InvalidRecord, ValueTooLarge, VersionConflict
from stores.overlays import StateOverlay, StorageOverlay
from stores.state import State
from stores.storage import Storage
from tests.conformance.stores.examples import EXAMPLES, holds_for_all_examples
from tests.conformance.stores.samples import NOON

SCOPE, AREA, OWNER = "scope", "plugin", "acme/helper"

_keys = st.sampled_from(["a", "aa", "ab", "b", "世", "\U0010ffff", "conversation_id"])
_changes = st.lists(st.tuples(_keys, st.none() | st.integers(0, 9)), max_size=8)


def state_over(stores: Stores) -> StateOverlay:
    return StateOverlay(stores.state, clock=lambda: NOON, most_bytes=100)


def storage_over(stores: Stores) -> StorageOverlay:
    return StorageOverlay(stores.storage, clock=lambda: NOON, most_bytes=100)


async def change(state: State, changes: Sequence[tuple[str, int | None]], scope: str) -> None:
    for key, value in changes:
        if value is None:
            await state.delete(scope, key)
        else:
            await state.set(scope, key, str(value))


async def seen(state: State, scope: str, **query: Any) -> list[tuple[str, str]]:
    """Return all values, page by page."""
    found: list[tuple[str, str]] = []
    after: str | None = None
    while True:
        page = await state.list(scope, after=after, **query)
        found += [(entry.key, entry.value) for entry in page.items]
        after = page.next_cursor
        if after is None:
            return found


async def test_overlay_shows_what_the_store_would_after_the_same_changes(stores: Stores) -> None:
    scopes = iter(range(10_000))

    @EXAMPLES
    @given(before=_changes, after=_changes, limit=st.integers(1, 3), prefix=st.sampled_from("ab世"))
    async def holds(
        before: list[tuple[str, int | None]],
        after: list[tuple[str, int | None]],
        limit: int,
        prefix: str,
    ) -> None:
        number = next(scopes)
        below, beside = f"below-{number}", f"beside-{number}"
        for scope in (below, beside):
            await change(stores.state, before, scope)
        untouched = await seen(stores.state, below)
        overlay = state_over(stores)
        await change(overlay, after, below)
        await change(stores.state, after, beside)
        for query in ({}, {"limit": limit}, {"prefix": prefix, "limit": limit}, {"most_bytes": 3}):
            assert await seen(overlay, below, **query) == await seen(stores.state, beside, **query)
        taken = await overlay.snapshot([below])
        assert [(entry.key, entry.value) for entry in taken.entries[below]] == await seen(
            stores.state, beside
        )
        assert await seen(stores.state, below) == untouched

    await holds_for_all_examples(holds)


async def test_versions_go_on_above_those_that_are_stored(stores: Stores) -> None:
    await stores.state.set(SCOPE, "key", "1")
    overlay = state_over(stores)
    assert (await overlay.set(SCOPE, "key", "2", expected_version=1)).version == 2
    assert (await overlay.set(SCOPE, "new", "2", expected_version=0)).version == 1
    with pytest.raises(VersionConflict):
        await overlay.set(SCOPE, "key", "3", expected_version=1)
    with pytest.raises(VersionConflict):
        await overlay.delete(SCOPE, "key", expected_version=1)
    assert await overlay.delete(SCOPE, "key", expected_version=2)
    assert not await overlay.delete(SCOPE, "key")
    assert await overlay.get(SCOPE, "key") is None
    assert (await overlay.set(SCOPE, "key", "4", expected_version=0)).version == 3
    stored = await stores.state.get(SCOPE, "key")
    assert stored is not None
    assert (stored.value, stored.version) == ("1", 1)


async def test_writes_take_place_in_the_order_of_the_calls(stores: Stores) -> None:
    overlay = state_over(stores)
    writes = [overlay.set(SCOPE, "key", str(number)) for number in range(20)]
    entries = await asyncio.gather(*writes)
    assert [entry.version for entry in entries] == [*range(1, 21)]
    last = await overlay.get(SCOPE, "key")
    assert last is not None
    assert last.value == "19"


async def test_what_cannot_be_stored_is_refused_at_once(stores: Stores) -> None:
    with pytest.raises(InvalidRecord):
        _ = state_over(stores).set(SCOPE, "key", "NaN")
    with pytest.raises(InvalidRecord):
        _ = state_over(stores).set(SCOPE, "", "1")
    with pytest.raises(ValueTooLarge):
        _ = state_over(stores).set(SCOPE, "key", f'"{"x" * 100}"')
    with pytest.raises(ValueTooLarge):
        _ = storage_over(stores).set(AREA, OWNER, "key", b"x" * 101)


async def storage_shows(storage: Storage, **query: Any) -> list[tuple[str, int]]:
    page = await storage.list(AREA, OWNER, **query)
    return [(entry.key, entry.size_bytes) for entry in page.items]


async def test_storage_written_over_is_seen_there_and_nowhere_else(stores: Stores) -> None:
    for key in ("a", "b", "c"):
        await stores.storage.set(AREA, OWNER, key, b"stored")
    overlay = storage_over(stores)
    await overlay.set(AREA, OWNER, "b", b"own")
    await overlay.set(AREA, OWNER, "bb", b"")
    assert await overlay.delete(AREA, OWNER, "c")
    assert not await overlay.delete(AREA, OWNER, "c")
    assert await storage_shows(overlay) == [("a", 6), ("b", 3), ("bb", 0)]
    assert await storage_shows(overlay, prefix="b", after="b") == [("bb", 0)]
    page = await overlay.list(AREA, OWNER, limit=2)
    assert page.next_cursor == "b"
    values = [await overlay.get(AREA, OWNER, key) for key in ("a", "b", "bb", "c", "d")]
    assert [each and each.value for each in values] == [b"stored", b"own", b"", None, None]
    assert await storage_shows(stores.storage) == [("a", 6), ("b", 6), ("c", 6)]
    stored = await stores.storage.get(AREA, OWNER, "b")
    assert stored is not None
    assert stored.value == b"stored"
