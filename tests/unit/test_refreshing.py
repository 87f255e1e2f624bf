"""What one host changes, another on the same database goes by."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from host_service.agents.agent import Agent
from host_service.authorization.callers import CallerDirectory
from host_service.authorization.secrets import hash_secret
from host_service.errors import Unauthenticated
from host_service.refreshing import keep_refreshed
from stores import Stores, open_stores
from stores.records import ApiKeyRecord
from tests.unit.agents.directories import apply, directory_over

NOW = datetime(2026, 3, 1, tzinfo=UTC)
KEY = "rmk_one"


@pytest.fixture
async def databases(tmp_path: Path) -> AsyncIterator[tuple[Stores, Stores]]:
    """The stores of two hosts on one database."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    here, there = await open_stores(url), await open_stores(url)
    yield here, there
    await there.close()
    await here.close()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110 - a database tells nobody of a change
            await asyncio.sleep(0.01)


async def test_agents_and_keys_that_another_host_changes_are_noticed(
    databases: tuple[Stores, Stores],
) -> None:
    here, there = databases
    await here.keys.create(
        ApiKeyRecord(
            key_id="key-1", name="one", hash=hash_secret(KEY), role="viewer", created_at=NOW
        )
    )
    callers = CallerDirectory(keys=here.keys, clock=lambda: NOW)
    directory = directory_over(here)
    await callers.reload()
    await directory.reload()
    assert (await callers.identify(f"Bearer {KEY}")).key_id == "key-1"

    watching = asyncio.create_task(
        keep_refreshed(
            directory=directory, callers=callers, catalogue=here.catalogue, look_seconds=0.01
        )
    )
    try:
        await there.keys.revoke("key-1", NOW)
        elsewhere = directory_over(there)
        await apply(elsewhere, [Agent(id="new", runner_id="plugin:acme/desk/default")], [])

        async def is_refused() -> bool:
            with suppress(Unauthenticated):
                await callers.identify(f"Bearer {KEY}")
                return False
            return True

        async def is_known() -> bool:
            return "new" in directory.agents

        await until(is_refused)
        await until(is_known)
    finally:
        watching.cancel()
