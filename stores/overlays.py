"""State and storage whose writes stay in memory: for whoever wants to see them and keep none.

What is read is what is stored, with what was written here laid over it. Nothing that is written
here is seen by anybody else, and all of it is gone with the overlay.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from stores.errors import ValueTooLarge, VersionConflict
from stores.json_text import check_json
from stores.records import Page
from stores.sql.state import checked_key
from stores.state import PAGE_BYTES, State, StateEntry, StateSnapshot
from stores.storage import Storage, StorageEntry, StoredValue

T = TypeVar("T")


class _Writes:
    """Does writes in the order of the calls, each as one, and whoever waits for them."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()

    def begin(self, work: Callable[[], Coroutine[None, None, T]]) -> Future[T]:
        """Begin a write; what is returned is done when it is."""

        async def write() -> T:
            async with self._one_at_a_time:
                return await work()

        task = asyncio.create_task(write())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...


Entry = TypeVar("Entry", bound=_Keyed)


class StateOverlay:
    """Implements `stores.state.State` over another.

    Args:
        stored: What is read where nothing was written here.
        clock: Tells the time.
        most_bytes: How large a value may be.
    """

    def __init__(self, stored: State, *, clock: Callable[[], datetime], most_bytes: int) -> None:
        self._stored = stored
        self._clock = clock
        self._most_bytes = most_bytes
        self._own: defaultdict[str, dict[str, StateEntry | None]] = defaultdict(dict)
        # Of deleted keys too: one that comes again goes on above its own.
        self._versions: dict[tuple[str, str], int] = {}
        self._writes = _Writes()

    def set(
        self,
        scope_key: str,
        key: str,
        value: str,
        *,
        expected_version: int | None = None,
        workspace: str = "",  # noqa: ARG002 - nothing here is purged
    ) -> Future[StateEntry]:
        """Store a value; see the protocol."""
        key = checked_key(scope_key, key)
        size = len(value.encode())
        if size > self._most_bytes:
            raise ValueTooLarge("state", "value", size, self._most_bytes)
        check_json("state", "value", value)

        async def write() -> StateEntry:
            version = await self._version(scope_key, key, expected_version)
            version = self._versions.get((scope_key, key), version) + 1
            entry = StateEntry(key, value, version, self._clock())
            self._own[scope_key][key] = entry
            self._versions[scope_key, key] = version
            return entry

        return self._writes.begin(write)

    def delete(
        self, scope_key: str, key: str, *, expected_version: int | None = None
    ) -> Future[bool]:
        """Delete a value; see the protocol."""
        key = checked_key(scope_key, key)

        async def write() -> bool:
            version = await self._version(scope_key, key, expected_version)
            if version:
                self._own[scope_key][key] = None
                self._versions[scope_key, key] = version
            return version > 0

        return self._writes.begin(write)

    async def _version(self, scope_key: str, key: str, expected: int | None) -> int:
        entry = await self.get(scope_key, key)
        version = entry.version if entry is not None else 0
        if expected is not None and expected != version:
            raise VersionConflict(key, expected, version)
        return version

    async def get(self, scope_key: str, key: str) -> StateEntry | None:
        """Return a value, or `None`."""
        own = self._own[scope_key]
        key = checked_key(scope_key, key)
        return own[key] if key in own else await self._stored.get(scope_key, key)

    async def list(
        self,
        scope_key: str,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int = 50,
        most_bytes: int = PAGE_BYTES,
    ) -> Page[StateEntry, str]:
        """Return the values of a scope, by key; see the protocol."""

        def stored(cursor: str | None) -> Awaitable[Page[StateEntry, str]]:
            return self._stored.list(
                scope_key, prefix=prefix, after=cursor, limit=limit, most_bytes=most_bytes
            )

        after = checked_key(scope_key, after) if after else None
        page = await _merged(stored, self._own[scope_key], prefix=prefix, after=after, limit=limit)
        fitting = _fitting(page.items, most_bytes)
        if fitting == len(page.items):
            return page
        items = page.items[: max(1, fitting)]
        return Page(items, items[-1].key)

    async def snapshot(
        self, scope_keys: Sequence[str], *, most_bytes: int = PAGE_BYTES
    ) -> StateSnapshot:
        """Return all values of several scopes; see the protocol."""
        found = await self._stored.snapshot(scope_keys, most_bytes=most_bytes)
        entries: dict[str, Sequence[StateEntry]] = {}
        for scope_key in scope_keys:
            laid = {each.key: each for each in found.entries[scope_key]} | self._own[scope_key]
            entries[scope_key] = [entry for _, entry in sorted(laid.items()) if entry is not None]
        return StateSnapshot(entries, found.truncated)


class StorageOverlay:
    """Implements `stores.storage.Storage` over another.

    Args:
        stored: What is read where nothing was written here.
        clock: Tells the time.
        most_bytes: How large a value may be.
    """

    def __init__(self, stored: Storage, *, clock: Callable[[], datetime], most_bytes: int) -> None:
        self._stored = stored
        self._clock = clock
        self._most_bytes = most_bytes
        self._own: defaultdict[tuple[str, str], dict[str, StorageEntry | None]] = defaultdict(dict)
        self._values: dict[tuple[str, str, str], bytes] = {}
        self._writes = _Writes()

    def set(self, area: str, owner: str, key: str, value: bytes) -> Future[StorageEntry]:
        """Store a value; see the protocol."""
        size = len(value)
        if size > self._most_bytes:
            raise ValueTooLarge("storage", "value", size, self._most_bytes)

        async def write() -> StorageEntry:
            now = self._clock()
            own = self._own[area, owner].get(key)
            created_at = own.created_at if own is not None else now
            entry = StorageEntry(key, size, created_at, now)
            self._own[area, owner][key] = entry
            self._values[area, owner, key] = value
            return entry

        return self._writes.begin(write)

    def delete(self, area: str, owner: str, key: str) -> Future[bool]:
        """Delete a value; False if there is none."""

        async def write() -> bool:
            existed = await self.get(area, owner, key) is not None
            self._own[area, owner][key] = None
            self._values.pop((area, owner, key), None)
            return existed

        return self._writes.begin(write)

    async def get(self, area: str, owner: str, key: str) -> StoredValue | None:
        """Return a value, or `None`."""
        own = self._own[area, owner]
        if key not in own:
            return await self._stored.get(area, owner, key)
        entry = own[key]
        if entry is None:
            return None
        return StoredValue(self._values[area, owner, key], entry.updated_at)

    async def list(
        self, area: str, owner: str, *, prefix: str = "", after: str | None = None, limit: int = 50
    ) -> Page[StorageEntry, str]:
        """Return what an owner has, by key; see the protocol."""

        def stored(cursor: str | None) -> Awaitable[Page[StorageEntry, str]]:
            return self._stored.list(area, owner, prefix=prefix, after=cursor, limit=limit)

        own = self._own[area, owner]
        return await _merged(stored, own, prefix=prefix, after=after, limit=limit)


async def _merged(
    stored: Callable[[str | None], Awaitable[Page[Entry, str]]],
    own: Mapping[str, Entry | None],
    *,
    prefix: str,
    after: str | None,
    limit: int,
) -> Page[Entry, str]:
    """Return a page of what is stored with what is our own laid over it, by key."""
    # Texts compare by code points, which is the order of their bytes in UTF-8.
    ours = {
        key: entry
        for key, entry in own.items()
        if key.startswith(prefix) and (after is None or key > after)
    }
    items: list[Entry] = []
    cursor = after
    while True:
        page = await stored(cursor)
        laid: dict[str, Entry | None] = {entry.key: entry for entry in page.items}
        laid |= {
            key: entry
            for key, entry in ours.items()
            if (cursor is None or key > cursor)
            and (page.next_cursor is None or key <= page.next_cursor)
        }
        items += [entry for _, entry in sorted(laid.items()) if entry is not None]
        cursor = page.next_cursor
        if cursor is None or len(items) > limit:
            break
    if len(items) > limit:
        return Page(tuple(items[:limit]), items[limit - 1].key)
    return Page(tuple(items), None)


def _fitting(entries: Sequence[StateEntry], most_bytes: int) -> int:
    count = 0
    for entry in entries:
        most_bytes -= len(entry.key.encode()) + len(entry.value.encode())
        if most_bytes < 0:
            break
        count += 1
    return count
