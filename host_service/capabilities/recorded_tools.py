"""What tools answered in a run, for its replays: nothing outside is done a second time."""

from __future__ import annotations

from collections.abc import Iterable

from runmesh.v1 import host_api_pb2, result_pb2, types_pb2

from host_service.errors import Unavailable
from host_service.validation.json_exact import Number, read_exactly
from stores.ledger import RunLedger

_RESULTS_AT_ONCE = 256


class RecordedTools:
    """Finds calls of tools in the results of runs.

    Args:
        ledger: Where results are.
    """

    def __init__(self, *, ledger: RunLedger) -> None:
        self._ledger = ledger

    async def answer(
        self, run_id: str, request: host_api_pb2.CallToolRequest
    ) -> host_api_pb2.CallToolResponse:
        """Return what a run was answered to the same call: the same tool, the same parameters.

        Of several, the one with the same id comes first, then the first of all.

        Raises:
            Unavailable: It made no such call, or its runner told nothing of the answer.
        """
        ended = _same_call(await self._results(run_id), request)
        if ended is None:
            raise Unavailable(
                f"a replay without side effects calls no tool, and the run it replays has no "
                f"answer of {request.tool_name} to these parameters: replay it with side effects",
                facts={"tool": request.tool_name, "run_id": run_id},
            )
        response = host_api_pb2.CallToolResponse(is_error=bool(ended.error_code))
        if ended.HasField("result_json"):
            response.result_json = ended.result_json
        text = ended.preview or ended.error_message
        if text and not ended.HasField("result_json"):
            response.parts.append(types_pb2.ContentPart(text=text))
        return response

    async def _results(self, run_id: str) -> list[result_pb2.RunResult]:
        found: list[result_pb2.RunResult] = []
        after = 0
        while True:
            page = await self._ledger.results(run_id, after_sequence=after, limit=_RESULTS_AT_ONCE)
            found += (result_pb2.RunResult.FromString(each.payload) for each in page)
            if len(page) < _RESULTS_AT_ONCE:
                return found
            after = page[-1].sequence


def _same_call(
    results: Iterable[result_pb2.RunResult], request: host_api_pb2.CallToolRequest
) -> result_pb2.ToolCallCompleted | None:
    wanted = _canonical(request.parameters_json)
    begun: dict[str, int] = {}
    found: list[result_pb2.ToolCallCompleted] = []
    for result in results:
        kind = result.WhichOneof("payload")
        if kind == "tool_call_started":
            started = result.tool_call_started
            same = started.tool_name == request.tool_name and wanted == _canonical(
                started.parameters_json
            )
            if same:
                begun[started.call_id] = 1
        elif kind == "tool_call_completed" and result.tool_call_completed.call_id in begun:
            found.append(result.tool_call_completed)
    return next((each for each in found if each.call_id == request.call_id), None) or next(
        iter(found), None
    )


def _canonical(text: str) -> object:
    """Return parameters so that two that are the same are equal, and no others."""
    try:
        return _frozen(read_exactly(text or "{}"))
    except (ValueError, RecursionError):
        return text


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return frozenset((name, _frozen(entry)) for name, entry in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    # True is no 1 here.
    return value if isinstance(value, Number | str) else (type(value).__name__, value)
