"""AdminService's calls about single runs: why one came out as it did, and the same once more."""

from __future__ import annotations

import asyncio

from runmesh.admin.v1 import admin_pb2_grpc, explain_pb2

from host_service import wire
from host_service.admin_audit import AdminAudit
from host_service.explained import explanation_message
from host_service.interceptors import Context
from host_service.requests import RequestCheck
from host_service.runs.explaining import Explaining
from host_service.runs.log import Batch, Bookmark, Ended
from host_service.runs.orchestrator import CALLER_LEFT, Orchestrator
from host_service.runs.replaying import Replayed, Replaying, ReplayOrder
from stores.records import RunRecord


class RunCalls(admin_pb2_grpc.AdminServiceServicer):
    """Decodes, does one thing, encodes. A part of `AdminServicer`, which gives it what it needs.

    Attributes:
        _explaining: Explains runs.
        _replaying: Replays them.
        _orchestrator: Knows the active ones.
        _audit: Where replays are written down.
        _check: Refuses bad requests.
    """

    _explaining: Explaining
    _replaying: Replaying
    _orchestrator: Orchestrator
    _audit: AdminAudit
    _check: RequestCheck

    async def ExplainRun(
        self, request: explain_pb2.ExplainRunRequest, context: Context
    ) -> explain_pb2.ExplainRunResponse:
        """Tell all that is known of a run."""
        self._check.require(request)
        return explanation_message(await self._explaining.explain(request.run_id))

    # Written rather than yielded, as in the gateway: a caller who leaves ends the code right here.
    async def ReplayRun(  # type: ignore[override]
        self, request: explain_pb2.ReplayRunRequest, context: Context
    ) -> None:
        """Run the event of a run once more, and stream what comes of it."""
        self._check.require(request)
        order = ReplayOrder(
            run_id=request.run_id,
            runner_address=request.runner_address,
            runner_id=request.runner_id,
            side_effects=request.with_side_effects,
        )
        with self._audit.watched("ReplayRun", request.run_id):
            replayed = await self._replaying.start(order)
        try:
            await self._stream(replayed, context)
        except asyncio.CancelledError:
            self._orchestrator.give_up(replayed.started.run.run_id, CALLER_LEFT)
            raise
        finally:
            if replayed.started.reader is not None:
                replayed.started.reader.close()

    async def _stream(self, replayed: Replayed, context: Context) -> None:
        accepted = wire.run_message(replayed.started.run)
        await context.write(explain_pb2.ReplayRunResponse(accepted=accepted))
        reader = replayed.started.reader
        while reader is not None:
            match await reader.take():
                case Batch(encoded=encoded):
                    await context.write(wire.encode_results(encoded))
                case Bookmark(sequence=sequence):
                    await context.write(explain_pb2.ReplayRunResponse(bookmark=sequence))
                case Ended(run=run):
                    ended = await self._ended(run, replayed.original_id)
                    await context.write(explain_pb2.ReplayRunResponse(ended=ended))
                    return

    async def _ended(self, run: RunRecord, original_id: str) -> explain_pb2.ReplayEnd:
        original = await self._orchestrator.get(original_id)
        if original is None:
            # It was purged meanwhile.
            return explain_pb2.ReplayEnd(run=wire.run_message(run))
        return explain_pb2.ReplayEnd(
            run=wire.run_message(run),
            original=wire.run_message(original),
            differs_in=await self._replaying.compare(original, run),
        )
