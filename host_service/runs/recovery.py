"""Runs whose host is gone: what waited is started, what was under way is ended.

A run carries the start of the host that owns it, and the host a lease that it renews. A host that
comes back takes care of the runs of its own earlier starts at once; any host takes care of runs
whose owner's lease ran out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from runmesh.v1 import result_pb2, types_pb2

from host_service.actions.desk import ActionDesk
from host_service.identity import new_id
from host_service.limits import Limits
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.transcript import item_of_message
from stores import Stores
from stores.errors import StoreError
from stores.records import (
    Checkpoint,
    Failure,
    LogEntry,
    ResultRecord,
    RunEnd,
    RunFacts,
    RunRecord,
    RunStatus,
    TranscriptItem,
)

_log = logging.getLogger("runmesh.runs")

RESTARTED = Failure(
    "host.restarted", "the host was restarted in the middle of the run", retryable=True
)


class Recovery:
    """Keeps this host's lease, and takes care of the runs of hosts that lost theirs.

    Args:
        stores: Where runs, events and hosts are.
        orchestrator: Starts what was waiting.
        actions: Ends what was executing.
        host_id: This host.
        incarnation: This start of it.
        limits: The length of a lease.
        clock: Tells the time.
    """

    def __init__(
        self,
        *,
        stores: Stores,
        orchestrator: Orchestrator,
        actions: ActionDesk,
        host_id: str,
        incarnation: str,
        limits: Limits,
        clock: Callable[[], datetime],
    ) -> None:
        self._stores = stores
        self._orchestrator = orchestrator
        self._actions = actions
        self._host_id = host_id
        self._incarnation = incarnation
        self._limits = limits
        self._clock = clock

    async def register(self) -> None:
        """Take the lease for this start of the host."""
        await self._stores.hosts.register(self._host_id, self._incarnation, self._lease_until())

    async def release(self) -> None:
        """Give the lease up, at a clean stop."""
        await self._stores.hosts.release(self._host_id, self._incarnation)

    async def keep(self, lost: Callable[[], None]) -> None:
        """Renew the lease and look after lost hosts' runs, until cancelled.

        Args:
            lost: Called when another start of this host took over: this one must stop.
        """
        # A third of the lease: two lost heartbeats must not lose the runs.
        interval = self._limits.host_lease_seconds / 3
        while True:
            await asyncio.sleep(interval)
            try:
                if not await self._stores.hosts.renew(
                    self._host_id, self._incarnation, self._lease_until()
                ):
                    _log.error("another start of host %s took over: this one stops", self._host_id)
                    lost()
                    return
                await self.recover()
            except StoreError as error:
                _log.warning("the lease could not be renewed and is tried again: %s", error)

    async def recover(self) -> int:
        """Take care of every run whose host is lost, the oldest first; return how many there were.

        What one run was handed to another and was not taken up is a run that waits like any other.
        """
        await self._actions.recover()
        runs = await self._stores.ledger.active_of_lost_hosts(self._clock())
        for run in runs:
            # Whoever wanted a replay was told that its host is gone: nobody waits for it any more.
            is_wanted = run.replay_of is None
            if is_wanted and run.status in {RunStatus.ACCEPTED, RunStatus.QUEUED}:
                await self._take_up(run)
            else:
                await self._end(run)
        return len(runs)

    async def _take_up(self, run: RunRecord) -> None:
        """Start a run here, and all of its session that waited with it, unless another host does.

        Those that went with an earlier one are not to be had any more when their turn comes.
        """
        claimed = await self._stores.ledger.claim(
            run.run_id, run.host_incarnation, self._host_id, self._incarnation
        )
        for run_id in claimed:
            event = await self._stores.events.get_for_run(run_id)
            record = await self._stores.ledger.get(run_id)
            if event is not None and record is not None:
                _log.info("run %s was waiting on a host that is gone: it starts here", run_id)
                self._orchestrator.resume(record, event)

    async def _end(self, run: RunRecord) -> None:
        end, facts = await self._last_facts(run)
        if await self._stores.ledger.finish(end, facts):
            _log.warning(
                "run %s was under way on a host that is gone: it ends as host.restarted", run.run_id
            )

    async def _last_facts(self, run: RunRecord) -> tuple[RunEnd, RunFacts]:
        """Return the end of a run: its text in progress as incomplete messages, then the terminal.

        Their numbers stand above every number that may have been delivered.
        """
        now = self._clock()
        number = max(run.reserved_sequence, run.last_sequence)
        first = run.last_sequence + 1
        results: list[ResultRecord] = []
        items: list[TranscriptItem] = []
        for message in await self._messages(run):
            number += 1
            result = result_pb2.RunResult(message_completed=message)
            results.append(_stored(run, result, "message_completed", first, number, now))
            first = number + 1
            item = await self._item(run, message, now)
            if item is not None:
                items.append(item)
        failed = result_pb2.RunFailed(
            code=RESTARTED.code, message=RESTARTED.message, retryable=True
        )
        number += 1
        terminal = _stored(
            run, result_pb2.RunResult(run_failed=failed), "run_failed", first, number, now
        )
        entry = LogEntry(
            run_id=run.run_id, kind="run_failed", at=now, payload=terminal.payload, sequence=number
        )
        end = RunEnd(
            run_id=run.run_id,
            status=RunStatus.FAILED,
            ended_at=now,
            last_sequence=number,
            failure=RESTARTED,
        )
        facts = RunFacts(
            run_id=run.run_id,
            results=(*results, terminal),
            items=tuple(items),
            entries=(entry,),
            reserved_sequence=number,
        )
        return end, facts

    async def _messages(self, run: RunRecord) -> list[result_pb2.MessageCompleted]:
        messages: dict[str, tuple[list[str], list[str]]] = {}
        pieces: list[Checkpoint] = list(await self._stores.ledger.checkpoints(run.run_id))
        for piece in pieces:
            text, reasoning = messages.setdefault(piece.message_id, ([], []))
            text.append(piece.text)
            reasoning.append(piece.reasoning)
        completed = []
        for message_id, (text, reasoning) in messages.items():
            message = types_pb2.ChatMessage(
                message_id=message_id,
                role=types_pb2.CHAT_ROLE_ASSISTANT,
                parts=[types_pb2.ContentPart(text="".join(text))] if any(text) else [],
            )
            if any(reasoning):
                message.reasoning_text = "".join(reasoning)
            completed.append(result_pb2.MessageCompleted(message=message, incomplete=True))
        artifacts = await self._unattached(run)
        if artifacts and not completed:
            alone = types_pb2.ChatMessage(message_id=new_id(), role=types_pb2.CHAT_ROLE_ASSISTANT)
            completed.append(result_pb2.MessageCompleted(message=alone))
        if artifacts:
            completed[0].message.artifacts.extend(artifacts)
        return completed

    async def _unattached(self, run: RunRecord) -> list[types_pb2.ArtifactRef]:
        """Return the artifacts that still wait for a message: those told of since the last one."""
        waiting: dict[str, types_pb2.ArtifactRef] = {}
        after = 0
        while page := await self._stores.ledger.results(run.run_id, after_sequence=after):
            for record in page:
                if record.kind == "message_completed":
                    waiting.clear()
                elif record.kind == "artifact_created":
                    ref = result_pb2.RunResult.FromString(record.payload).artifact_created.ref
                    waiting[ref.artifact_id] = ref
            after = page[-1].sequence
        return list(waiting.values())

    async def _item(
        self, run: RunRecord, completed: result_pb2.MessageCompleted, now: datetime
    ) -> TranscriptItem | None:
        if not run.conversation_key or run.replay_of is not None:
            return None
        return item_of_message(
            completed,
            conversation_key=run.conversation_key,
            workspace=run.workspace,
            bot=run.bot,
            event_id=run.event_id,
            run_id=run.run_id,
            runner_id=run.runner_id,
            created_at=now,
        )

    def _lease_until(self) -> datetime:
        return self._clock() + timedelta(seconds=self._limits.host_lease_seconds)


def _stored(
    run: RunRecord, result: result_pb2.RunResult, kind: str, first: int, number: int, now: datetime
) -> ResultRecord:
    result.run_id = run.run_id
    result.first_sequence, result.sequence = first, number
    result.timestamp.FromDatetime(now.astimezone(UTC))
    return ResultRecord(
        run_id=run.run_id,
        sequence=number,
        first_sequence=first,
        runner_sequence=0,
        kind=kind,
        payload=result.SerializeToString(),
        at=now,
    )
