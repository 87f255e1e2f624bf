"""Removing what a workspace does not keep, on SQL.

Candidates are found by the readers; the writer looks again at each, in transactions of a batch.
After each the purge rests as long as that took, so that hosts get at least half of the writer.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from sqlalchemy.sql import ClauseElement

from stores.catalogue import Catalogue
from stores.records import CatalogueItem, CatalogueKind
from stores.retention import Purged, RetentionPolicy
from stores.sql import retention_statements as statements
from stores.sql.connection import Connection, Row
from stores.sql.journal import SqlJournal, Work
from stores.sql.orphans import delete_artifacts
from stores.sql.readers import Readers
from stores.sql.state import delete_value
from stores.sql.values import INTEGER_MAX, check_ids, check_limit, microseconds

T = TypeVar("T")

# Contents may be large: so many of a conversation are looked at at once.
_CONTENTS = 50


class SqlRetention:
    """Implements `stores.retention.Retention`."""

    def __init__(
        self,
        *,
        journal: SqlJournal,
        readers: Readers,
        catalogue: Catalogue,
        clock: Callable[[], datetime],
    ) -> None:
        """Take the ways to write and to read, where policies are, and what tells the time."""
        self._journal = journal
        self._readers = readers
        self._catalogue = catalogue
        self._clock = clock

    async def purge(
        self,
        workspace: str,
        *,
        before: datetime | None = None,
        max_items: int | None = None,
        dry_run: bool = False,
        batch: int = 200,
    ) -> Purged:
        """Remove what a workspace does not keep; see the protocol."""
        check_ids("retention", workspace=workspace)
        check_limit(batch)
        purge = _Purge(
            journal=self._journal,
            readers=self._readers,
            now=microseconds("clock", "now", self._clock()),
            workspace=workspace,
            dry_run=dry_run,
            batch=batch,
        )
        if before is not None:
            await purge.remove_old(microseconds("retention", "before", before))
        if max_items is not None:
            await purge.remove_items_beyond(max_items)
        if before is not None:
            await purge.remove_artifacts(microseconds("retention", "before", before))
        await purge.remove_snapshots()
        return Purged(**purge.counts)

    async def workspaces(self) -> list[str]:
        """Return all workspaces that have content, in order."""
        return sorted(row[0] for row in await self._readers.all(statements.WORKSPACES, {}))

    async def policies(self) -> dict[str, RetentionPolicy]:
        """Return the retention of each workspace that has one; see the protocol."""
        items = await self._catalogue.list_items(CatalogueKind.POLICY)
        told = {item.id: RetentionPolicy.parse(item.document) for item in items if item.enabled}
        return {workspace: policy for workspace, policy in told.items() if policy is not None}

    async def set_policy(self, workspace: str, policy: RetentionPolicy) -> None:
        """Set a workspace's retention; see the protocol."""
        found = await self._catalogue.get_item(CatalogueKind.POLICY, workspace)
        document = policy.within(None if found is None else found.document)
        item = CatalogueItem(kind=CatalogueKind.POLICY, id=workspace, document=document)
        revision = 0 if found is None else found.revision
        await self._catalogue.put_item(item, expected_revision=revision)


class _OldRun(NamedTuple):
    created_at: int
    run_id: str
    conversation_key: str


class _Purge:
    """One purge of one workspace."""

    def __init__(
        self,
        *,
        journal: SqlJournal,
        readers: Readers,
        now: int,
        workspace: str,
        dry_run: bool,
        batch: int,
    ) -> None:
        self._journal = journal
        self._readers = readers
        self._now = now
        self._workspace = workspace
        self._dry_run = dry_run
        self._batch = batch
        self.counts: Counter[str] = Counter()

    async def remove_old(self, before: int) -> None:
        """Remove items, runs, events and state that are older than a time."""
        await self._remove_old_items(before)
        await self._remove_old_runs(before)
        await self._remove_old_events(before)
        await self._remove_old_state(before)

    async def _remove_old_items(self, before: int) -> None:
        if self._dry_run:
            await self._count("items", statements.COUNT_OLD_ITEMS, before=before)
            return
        after = 0
        while rows := await self._read(statements.OLD_ITEMS, before=before, after=after):
            await self._delete_items([row[0] for row in rows])
            after = rows[-1][0]

    async def remove_items_beyond(self, max_items: int) -> None:
        """Remove the oldest items of conversations that have more than they may."""
        after = ""
        while rows := await self._read(
            statements.LONG_CONVERSATIONS, after=after, max_items=max_items
        ):
            for (conversation_key,) in rows:
                await self._shorten(conversation_key, max_items)
            after = rows[-1][0]

    async def _shorten(self, conversation_key: str, max_items: int) -> None:
        of = {"of_conversation": conversation_key}
        found = await self._read(statements.FIRST_BEYOND, **of, max_items=max_items)
        if not found:
            return
        of_rest = {**of, "last": found[0][0]}
        if self._dry_run:
            await self._count("items", statements.COUNT_ITEMS_BEYOND, **of_rest)
            return
        await self._delete_all(statements.ITEMS_BEYOND, **of_rest)

    async def _delete_all(self, statement: ClauseElement, **values: Any) -> None:
        while rows := await self._read(statement, **values):
            # None of them: a run has begun on them since they were found.
            if not await self._delete_items([row[0] for row in rows]):
                return

    async def _delete_items(self, numbers: Sequence[int]) -> int:
        def work(connection: Connection) -> int:
            return sum(
                connection.run(statements.DELETE_ITEM, {"of_number": number}) for number in numbers
            )

        deleted = await self._write(work)
        self.counts["items"] += deleted
        return deleted

    async def _remove_old_runs(self, before: int) -> None:
        after = {"after_time": -INTEGER_MAX, "after_run": ""}
        while rows := await self._read(statements.OLD_RUNS, before=before, **after):
            runs = [_OldRun(*row) for row in rows]
            if self._dry_run:
                await self._count_runs(runs)
            else:
                await self._remove_runs(runs, before)
            after = {"after_time": runs[-1].created_at, "after_run": runs[-1].run_id}

    async def _count_runs(self, runs: Sequence[_OldRun]) -> None:
        for run in runs:
            for name, statement in statements.COUNT_OF_RUN.items():
                await self._count(name, statement, of_run=run.run_id)
        self.counts["runs"] += len(runs)
        self.counts["events"] += len(runs)

    async def _remove_runs(self, runs: Sequence[_OldRun], before: int) -> None:
        for run in runs:
            of = {"of_conversation": run.conversation_key, "of_run": run.run_id}
            # A run that has ended gets no more items.
            await self._delete_all(statements.ITEMS_OF_RUN, **of)
        left = [run.run_id for run in runs]
        while left:
            work = partial(_remove_runs, run_ids=left, before=before, most=self._batch)
            done, counts = await self._write(work)
            self.counts += counts
            left = left[done:]

    async def _remove_old_events(self, before: int) -> None:
        if self._dry_run:
            await self._count("events", statements.COUNT_OLD_EVENTS, before=before)
            return
        after = 0
        while rows := await self._read(statements.OLD_EVENTS, before=before, after=after):
            work = partial(_remove_lone_events, positions=[row[0] for row in rows])
            self.counts["events"] += await self._write(work)
            after = rows[-1][0]

    async def _remove_old_state(self, before: int) -> None:
        if self._dry_run:
            await self._count("state_values", statements.COUNT_OLD_STATE, before=before)
            return
        while rows := await self._read(statements.OLD_STATE, before=before):
            of = {"of_workspace": self._workspace, "before": before}
            work = partial(_remove_state, places=rows, of=of, now=self._now)
            self.counts["state_values"] += await self._write(work)

    async def remove_artifacts(self, before: int) -> None:
        """Remove the artifacts that are older than a time and that nothing mentions any more."""
        after = {"after_time": -INTEGER_MAX, "after_artifact": ""}
        while rows := await self._read(statements.OLD_ARTIFACTS, before=before, **after):
            of_conversation: dict[str, list[str]] = defaultdict(list)
            for _, artifact_id, conversation_key in rows:
                of_conversation[conversation_key].append(artifact_id)
            for conversation_key, artifact_ids in of_conversation.items():
                await self._remove_unmentioned(conversation_key, artifact_ids, before)
            after = {"after_time": rows[-1][0], "after_artifact": rows[-1][1]}

    async def _remove_unmentioned(
        self, conversation_key: str, artifact_ids: Sequence[str], before: int
    ) -> None:
        left = list(artifact_ids)
        # Of a trial the old items are still there.
        place: dict[str, Any] = {
            "of_conversation": conversation_key,
            "above": 0,
            "since": before if self._dry_run else -INTEGER_MAX,
            "most": _CONTENTS,
        }
        while left and (rows := await self._readers.all(statements.CONTENTS, place)):
            left = _unmentioned(left, rows)
            place["above"] = rows[-1][1]
        if self._dry_run:
            self.counts["artifacts"] += len(left)
        elif left:
            of = {"of_workspace": self._workspace, "before": before}
            work = partial(_remove_artifacts, artifact_ids=left, place=place, of=of, now=self._now)
            self.counts["artifacts"] += await self._write(work)

    async def remove_snapshots(self) -> None:
        """Remove the agents that no run has any more."""
        if self._dry_run:
            return
        for (digest,) in await self._readers.all(statements.UNUSED_SNAPSHOTS, {}):
            # One at a time: each takes a look at all runs.
            work = partial(_remove_snapshot, digest=bytes(digest))
            self.counts["agent_snapshots"] += await self._write(work)

    async def _count(self, name: str, statement: ClauseElement, **values: Any) -> None:
        row = await self._readers.first(statement, {"of_workspace": self._workspace, **values})
        self.counts[name] += 0 if row is None else int(row[0])

    async def _read(self, statement: ClauseElement, **values: Any) -> list[Row]:
        of = {"of_workspace": self._workspace, "most": self._batch}
        return await self._readers.all(statement, {**of, **values})

    async def _write(self, work: Work[T]) -> T:
        await self._journal.room()
        started = perf_counter()
        result = await self._journal.submit(work)
        await asyncio.sleep(perf_counter() - started)
        return result


def _remove_runs(
    connection: Connection, *, run_ids: Sequence[str], before: int, most: int
) -> tuple[int, Counter[str]]:
    """Remove runs, one after the other; return how many are done and what was removed.

    It ends when so many rows were removed: a run with many results takes several transactions.
    """
    counts: Counter[str] = Counter()
    for done, run_id in enumerate(run_ids):
        of = {"of_run": run_id}
        event = connection.first(statements.STILL_OLD_RUN, {**of, "before": before})
        if event is None:
            continue
        for name, statement in (
            ("results", statements.DELETE_RESULTS),
            ("log_entries", statements.DELETE_ENTRIES),
            ("actions", statements.DELETE_ACTIONS),
        ):
            left = most - counts.total()
            counts[name] += connection.run(statement, {**of, "most": max(left, 0)})
        if counts.total() >= most:
            return done, counts
        key = dict(zip(("workspace", "bot", "event_source", "event_id"), event, strict=True))
        counts["events"] += connection.run(statements.DELETE_EVENT, {**of, **key})
        counts["runs"] += connection.run(statements.DELETE_RUN, of)
    return len(run_ids), counts


def _remove_lone_events(connection: Connection, *, positions: Sequence[int]) -> int:
    return sum(
        connection.run(statements.DELETE_LONE_EVENT, {"of_position": position})
        for position in positions
    )


def _remove_state(
    connection: Connection, *, places: Sequence[Row], of: dict[str, Any], now: int
) -> int:
    removed = 0
    for scope_key, key in places:
        values = {**of, "of_scope": scope_key, "of_key": key}
        found = connection.first(statements.STILL_OLD_STATE, values)
        if found is not None:
            delete_value(connection, scope_key, key, version=found[0], deleted_at=now)
            removed += 1
    return removed


def _remove_artifacts(
    connection: Connection,
    *,
    artifact_ids: Sequence[str],
    place: dict[str, Any],
    of: dict[str, Any],
    now: int,
) -> int:
    # What was written since it was looked at may mention one again.
    since = connection.all(statements.CONTENTS, {**place, "most": INTEGER_MAX})
    still_old = [
        artifact_id
        for artifact_id in _unmentioned(artifact_ids, since)
        if connection.first(statements.STILL_OLD_ARTIFACT, {**of, "of_artifact": artifact_id})
    ]
    return delete_artifacts(still_old, now, connection)


def _remove_snapshot(connection: Connection, *, digest: bytes) -> int:
    return connection.run(statements.DELETE_SNAPSHOT, {"of_digest": digest})


def _unmentioned(artifact_ids: Sequence[str], contents: Sequence[Row]) -> list[str]:
    return [
        artifact_id
        for artifact_id in artifact_ids
        if not any(_mentions(bytes(content), artifact_id) for _, _, content in contents)
    ]


def _mentions(content: bytes, artifact_id: str) -> bool:
    # As itself in the contract's encoding, or as text within a JSON that is content.
    return artifact_id.encode() in content or json.dumps(artifact_id)[1:-1].encode() in content
