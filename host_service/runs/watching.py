"""Reading a run from any number on, whether it is active, ended, or another host's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from runmesh.v1 import gateway_pb2, result_pb2

from host_service.errors import NotFound
from host_service.limits import Limits
from host_service.runs.log import Batch, Bookmark, Ended
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.run import ActiveRun
from stores.ledger import RunLedger

# A run that is not on this host is looked at that often.
_LOOK_SECONDS = 0.5
_RESULTS_AT_ONCE = 256
# What a result has beside its content, at most: ids of 255 bytes, numbers.
_ENVELOPE_BYTES = 1024


class RunWatcher:
    """Replays what was delivered, then follows.

    Args:
        orchestrator: Knows the active runs.
        ledger: Knows the others.
        limits: Sizes of what goes out together.
    """

    def __init__(self, *, orchestrator: Orchestrator, ledger: RunLedger, limits: Limits) -> None:
        self._orchestrator = orchestrator
        self._ledger = ledger
        self._limits = limits

    async def watch(self, run_id: str, after: int = 0) -> AsyncIterator[Batch | Bookmark | Ended]:
        """Yield everything of a run after a delivered number, in order; last its end.

        Raises:
            NotFound: There is no such run.
            Overloaded: The watcher reads slower than the run writes.
        """
        run = self._orchestrator.active.get(run_id)
        if run is None:
            async for item in self._replay_to_end(run_id, after):
                yield item
            return
        # What is taken from memory and from the ledger is what the reader, which is made without a
        # pause in between, leaves out.
        shown = run.delivery.delivered
        reader = run.log.subscribe(patient=False, after=max(shown, after))
        try:
            in_memory = catch_up(run, after, limits=self._limits)
            stored = await self._stored(run_id, after, through=shown)
            for batch in self._batches({**stored, **in_memory}):
                yield batch
            while not isinstance(item := await reader.take(), Ended):
                yield item
            yield item
        finally:
            reader.close()

    async def _replay_to_end(
        self, run_id: str, after: int
    ) -> AsyncIterator[Batch | Bookmark | Ended]:
        loop = asyncio.get_running_loop()
        last_sent = loop.time()
        while True:
            record = await self._ledger.get(run_id)
            if record is None:
                raise NotFound("run", run_id)
            for batch in self._batches(await self._stored(run_id, after)):
                after, last_sent = batch.last_sequence, loop.time()
                yield batch
            if record.status.is_terminal:
                yield Ended(record)
                return
            if loop.time() - last_sent >= self._limits.bookmark_seconds:
                last_sent = loop.time()
                yield Bookmark(after)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _stored(
        self, run_id: str, after: int, through: int | None = None
    ) -> dict[int, bytes]:
        results: dict[int, bytes] = {}
        while True:
            page = await self._ledger.results(run_id, after_sequence=after, limit=_RESULTS_AT_ONCE)
            for record in page:
                if through is None or record.sequence <= through:
                    results[record.sequence] = record.payload
            if len(page) < _RESULTS_AT_ONCE:
                return results
            after = page[-1].sequence

    def _batches(self, results: dict[int, bytes]) -> Sequence[Batch]:
        """Put encoded results together, up to the size of a frame."""
        batches: list[Batch] = []
        pieces: list[bytes] = []
        size = last = 0
        for sequence, payload in sorted(results.items()):
            if pieces and size + len(payload) > self._limits.frame_bytes:
                batches.append(Batch(b"".join(pieces), last))
                pieces, size = [], 0
            # The result as the one field of a ResultBatch: batches are joined by joining their
            # bytes.
            piece = gateway_pb2.ResultBatch(
                results=[result_pb2.RunResult.FromString(payload)]
            ).SerializeToString()
            pieces.append(piece)
            size += len(piece)
            last = sequence
        if pieces:
            batches.append(Batch(b"".join(pieces), last))
        return batches


def catch_up(run: ActiveRun, after: int, *, limits: Limits) -> dict[int, bytes]:
    """Return, by number, what an active run has delivered and the ledger may not have yet.

    These are durable results on their way to the ledger, and the text of messages in progress, each
    in as few deltas as may be.
    """
    results = {
        result.sequence: result.SerializeToString()
        for result in run.delivery.uncommitted
        if result.sequence > after
    }
    if run.agent.streaming:
        for message in run.delivery.progress.messages():
            limit = limits.result_bytes - _ENVELOPE_BYTES
            for tail in message.tail(run.run_id, after, limit_bytes=limit):
                results[tail.sequence] = tail.SerializeToString()
    return results
