"""Actions that runs asked for: what was asked, what became of it, and never twice.

An action is known by its scope key and its idempotency key: opaque text that the host builds, and
the runner's own word. It executes at most once. `EXECUTING` is stored before anything is done, and
an action that has it, and whose host is gone, ends as failed: whether it took effect nobody knows,
and nobody tries again.

An action belongs to the run that asked for it last, and goes with it when the run is purged; its
key is then forgotten, as the id of a purged event is.

Beside each step goes an entry of the event log, in the same transaction. Since only the store knows
which action a key has, entries are made by a function of the action as it will be; it is called in
the writer's thread, maybe twice, and must do nothing else.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Protocol

from stores.records import LogEntry, Page


class ActionStatus(IntEnum):
    """Where an action stands. Those below `RECORDED` wait for something."""

    EXECUTING = 1
    AWAITING_APPROVAL = 2
    RECORDED = 3
    EXECUTED = 4
    FAILED = 5
    REJECTED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """An action that a run asked for.

    Attributes:
        action_id: Its id, a UUIDv7.
        scope_key: Within what its idempotency key is unique; up to 2,048 bytes.
        idempotency_key: The runner's key.
        digest: Of what was asked, by which a repetition is told from a conflict.
        run_id: The run that asked for it last.
        workspace: The workspace of that run, or empty.
        agent_id: The agent that asked.
        runner_id: Its runner.
        name: The action, such as `message.send`.
        target: What to act on, as the JSON text it came as; `None` if nothing was said.
        payload: What to do it with, likewise.
        hint: The runner's view on approval, opaque.
        status: Where it stands.
        missing: What an execution lacks; only of one that is `RECORDED`.
        result: What the executor answered, as JSON; `None` for nothing.
        detail: More, for people.
        requested_at: When it was first asked for.
        decided_at: When a person said yes or no.
        decided_by: Who that was.
        started_at: When its execution began.
        ended_at: When it was executed, failed or was rejected.
        host_id: The host that executes it, or had the run.
        host_incarnation: The start of that host.
    """

    action_id: str
    scope_key: str
    idempotency_key: str
    digest: bytes
    run_id: str
    workspace: str
    agent_id: str
    runner_id: str
    name: str
    requested_at: datetime
    host_id: str
    host_incarnation: str
    target: str | None = None
    payload: str | None = None
    hint: int = 0
    status: ActionStatus = ActionStatus.RECORDED
    missing: tuple[str, ...] = ()
    result: str | None = None
    detail: str = ""
    decided_at: datetime | None = None
    decided_by: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PutAction:
    """What became of an action that was handed in.

    Attributes:
        action: The action as it is stored.
        is_new: Whether that is what was handed in; otherwise it was there before, and stands
            where it stands.
    """

    action: ActionRecord
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionQuery:
    """Which actions to list; what is `None` does not narrow.

    Attributes:
        status: Actions that stand there.
        agent_id: Actions of this agent.
        run_id: Actions of this run.
    """

    status: ActionStatus | None = None
    agent_id: str | None = None
    run_id: str | None = None


EntryOf = Callable[[ActionRecord], LogEntry | None]


class Actions(Protocol):
    """Stores actions and moves them on. Writes go through the journal, in the order of the calls.

    For all hosts on the database: of several that move an action on at once, one does.
    """

    def put(self, action: ActionRecord, *, entry: EntryOf) -> Future[PutAction]:
        """Store an action, unless its key is known.

        A known one that was only recorded, since something was missing, takes the place that is
        handed in, and keeps its id and its time: it is asked for anew.

        Args:
            action: The action; its run must be active, and of the incarnation it names.
            entry: Makes the entry for the event log if something was stored.

        Raises:
            InvalidRecord: At once; a field cannot be stored.
            ActionConflict: Another action has the key.
            RunNotWritable: The run is unknown, has ended, or belongs to another host.
        """

    def begin(
        self,
        action_id: str,
        *,
        at: datetime,
        decided_by: str,
        detail: str,
        host_id: str,
        host_incarnation: str,
        entry: EntryOf,
    ) -> Future[ActionRecord | None]:
        """Say that an action which waits for approval is approved and executes from now on.

        What is missing of it is nothing any more. The detail stands until it is executed.

        Returns:
            The action, or `None` if it does not wait for approval.
        """

    def reject(
        self, action_id: str, *, at: datetime, decided_by: str, detail: str, entry: EntryOf
    ) -> Future[ActionRecord | None]:
        """Say that an action which waits for approval will not be executed.

        Returns:
            The action, or `None` if it does not wait for approval.
        """

    def settle(
        self,
        action_id: str,
        status: ActionStatus,
        *,
        at: datetime,
        host_incarnation: str,
        result: str | None = None,
        detail: str = "",
        entry: EntryOf,
    ) -> Future[ActionRecord | None]:
        """Say how an execution ended: `EXECUTED` or `FAILED`.

        Returns:
            The action, or `None` if this incarnation does not execute it.

        Raises:
            InvalidRecord: At once; a field cannot be stored, or the status is another.
        """

    def fail_lost(
        self, now: datetime, *, detail: str, entry: EntryOf
    ) -> Future[Sequence[ActionRecord]]:
        """Let actions fail whose execution began on a host that is gone; up to 100 at once."""

    async def get(self, action_id: str) -> ActionRecord | None:
        """Return an action, or `None`."""

    async def list(
        self, query: ActionQuery, *, limit: int = 50, after: str | None = None
    ) -> Page[ActionRecord, str]:
        """Return actions, newest first by id.

        Args:
            query: Which ones.
            limit: How many at most, from 1 to 10,000.
            after: Only those older than the one with this id: the `next_cursor` of the page before.
        """
