"""Giving terms to items that have none yet, while the host runs.

They are from before there were terms, or a migration took theirs because the rules had changed.
The newest go first, in small pieces of work between those of others. Each piece is whole by
itself, so that it may end anywhere and go on at the next start. Until it is through, a search does
not find what it has not come to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

import sqlalchemy as sa

from stores.errors import StoreError
from stores.sql.connection import Connection
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.rows import Encoded
from stores.sql.search_terms import item_terms
from stores.sql.tables import is_unindexed, transcript_items
from stores.sql.values import INTEGER_MAX

logger = logging.getLogger(__name__)

# A piece of work that holds up the others for some milliseconds.
_ITEMS = 50

_SELECT = (
    sa.select(
        transcript_items.c.number,
        transcript_items.c.text,
        transcript_items.c.conversation_key,
        transcript_items.c.workspace,
    )
    .where(is_unindexed, transcript_items.c.number < sa.bindparam("below"))
    .order_by(transcript_items.c.number.desc())
    .limit(sa.bindparam("most"))
)
# Another host may have been here: what has terms keeps them.
_UPDATE = (
    sa.update(transcript_items)
    .where(transcript_items.c.number == sa.bindparam("of_number"), is_unindexed)
    .values(terms=sa.bindparam("to_terms"))
)


class SearchBackfill:
    """A task that ends when every item with a text has terms. It belongs to the event loop."""

    def __init__(self, *, journal: SqlJournal, readers: Readers) -> None:
        """Take the ways to write and to read; nothing is begun yet."""
        self._journal = journal
        self._readers = readers
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, or go on."""
        self._task = asyncio.create_task(self._run(), name="runmesh-search-backfill")

    async def wait(self) -> None:
        """Wait until it has ended."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """End it where it is. May be called again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            done = await self._fill()
        except StoreError as error:
            # Searching is poorer until then, and nothing else is: the host goes on.
            logger.warning("old items are not searchable before the next start: %s", error)
        else:
            if done:
                logger.info("%d old transcript items were made searchable", done)

    async def _fill(self) -> int:
        done = 0
        below = INTEGER_MAX
        while rows := await self._readers.all(_SELECT, {"below": below, "most": _ITEMS}):
            encoded = await asyncio.to_thread(_encode, rows)
            await self._journal.room()
            await self._journal.submit(partial(_write, encoded))
            done += len(rows)
            below = rows[-1][0]
        return done


def _encode(rows: Sequence[tuple[int, str, str, str]]) -> list[Encoded]:
    return [
        {"of_number": number, "to_terms": item_terms(text, conversation_key, workspace)}
        for number, text, conversation_key, workspace in rows
    ]


def _write(rows: Sequence[Encoded], connection: Connection) -> None:
    connection.run_many(_UPDATE, rows)
