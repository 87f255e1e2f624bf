"""Follow-up input that arrives for a run while it is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import datetime

from runmesh.v1 import host_api_pb2

from host_service.authorization.tokens import RunAccess
from host_service.errors import NotFound, Unavailable
from host_service.runs.context import duration, event_context, fitting_input
from host_service.runs.steering import SteeredItem, SteeringBox


class Steering:
    """Hands a run what came for it, and takes note of what it took up.

    Args:
        box_of: Gives the box of an active run; None for a run that has ended.
        clock: Tells the time.
    """

    def __init__(
        self, *, box_of: Callable[[str], SteeringBox | None], clock: Callable[[], datetime]
    ) -> None:
        self._box_of = box_of
        self._clock = clock

    async def pull(
        self, access: RunAccess, _request: host_api_pb2.PullSteeringRequest
    ) -> AsyncGenerator[host_api_pb2.PullSteeringResponse, None]:
        """Yield what has not been acknowledged, then what comes, until the run ends.

        A new stream ends the one before it, and begins with what that one did not see
        acknowledged.
        """
        box = self._box_of(access.snapshot.run_id)
        if box is not None:
            async for item in box.read():
                response, left_out = self._response(item, access)
                if left_out:
                    box.warn(
                        "input_left_out",
                        f"the runner takes text only: {left_out} images or files of a follow-up "
                        "were left out",
                    )
                yield response

    async def acknowledge(
        self, access: RunAccess, request: host_api_pb2.AcknowledgeSteeringRequest
    ) -> host_api_pb2.AcknowledgeSteeringResponse:
        """End the runs of items that were taken up; return once that is durable.

        Raises:
            NotFound: An item is not of this run; then none is taken out.
            Unavailable: The end of one could not be stored.
        """
        box = self._box_of(access.snapshot.run_id)
        if box is None:
            raise NotFound("steering item", ", ".join(request.steering_ids))
        ends = [item.ended for item in box.acknowledge(request.steering_ids)]
        if ends:
            await asyncio.wait(ends)
        if any(end.cancelled() or end.exception() is not None for end in ends):
            raise Unavailable("what was taken up could not be stored", retry_after_seconds=1)
        return host_api_pb2.AcknowledgeSteeringResponse()

    def _response(
        self, item: SteeredItem, access: RunAccess
    ) -> tuple[host_api_pb2.PullSteeringResponse, int]:
        envelope = item.event.envelope
        content, left_out = fitting_input(envelope, access.snapshot)
        response = host_api_pb2.PullSteeringResponse(
            steering_id=item.run_id, event=event_context(envelope), input=content
        )
        if envelope.HasField("actor"):
            response.actor.CopyFrom(envelope.actor)
        waited = (self._clock() - item.event.received_at).total_seconds()
        response.waited.CopyFrom(duration(max(waited, 0)))
        return response, left_out
