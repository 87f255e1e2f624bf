"""Keeps what is held in memory up to what other hosts on the same database change."""

from __future__ import annotations

import asyncio
import logging

from host_service.agents.directory import AgentDirectory
from host_service.authorization.callers import CallerDirectory
from stores.catalogue import Catalogue
from stores.errors import StoreError

_log = logging.getLogger("runmesh.host")

# A key that was revoked through another host is refused here after this long at the most.
_LOOK_SECONDS = 2.0


async def keep_refreshed(
    *,
    directory: AgentDirectory,
    callers: CallerDirectory,
    catalogue: Catalogue,
    look_seconds: float = _LOOK_SECONDS,
) -> None:
    """Look for changes until cancelled: agents and bindings by the catalogue's revision, keys all.

    Args:
        directory: Agents and bindings.
        callers: API keys.
        catalogue: Tells its revision.
        look_seconds: How often.
    """
    seen = await catalogue.revision()
    while True:
        await asyncio.sleep(look_seconds)
        try:
            await callers.reload()
            revision = await catalogue.revision()
            if revision != seen:
                await directory.reload()
                seen = revision
        except StoreError as error:
            _log.warning("changes of other hosts could not be looked for: %s", error)
