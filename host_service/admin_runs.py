"""AdminService's calls about single runs: why one came out as it did, and the same once more."""

from __future__ import annotations

from runmesh.admin.v1 import admin_pb2_grpc, explain_pb2

from host_service.explained import explanation_message
from host_service.interceptors import Context
from host_service.requests import RequestCheck
from host_service.runs.explaining import Explaining


class RunCalls(admin_pb2_grpc.AdminServiceServicer):
    """Decodes, does one thing, encodes. A part of `AdminServicer`, which gives it what it needs.

    Attributes:
        _explaining: Explains runs.
        _check: Refuses bad requests.
    """

    _explaining: Explaining
    _check: RequestCheck

    async def ExplainRun(
        self, request: explain_pb2.ExplainRunRequest, context: Context
    ) -> explain_pb2.ExplainRunResponse:
        """Tell all that is known of a run."""
        self._check.require(request)
        return explanation_message(await self._explaining.explain(request.run_id))
