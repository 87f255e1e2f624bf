"""Follow-up input and actions of the stand-in host."""

import uuid
from collections.abc import AsyncIterator

from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import result_pb2

from runner_sdk._standin.active_run import ActiveRun
from runner_sdk._standin.refusals import invalid, not_found, refused


class StandInSteering:
    """Hands out the follow-up input that a test pushes into a run."""

    def push(self, run: ActiveRun, text: str) -> str:
        """Gives a run follow-up input, and returns its id."""
        response = api.PullSteeringResponse(steering_id=str(uuid.uuid4()))
        response.event.CopyFrom(run.context.event)
        response.event.event_id = str(uuid.uuid4())
        response.input.text = text
        response.input.parts.add().text = text
        if run.context.HasField("actor"):
            response.actor.CopyFrom(run.context.actor)
        response.waited.FromMilliseconds(0)
        run.follow_ups.put_nowait(response)
        return response.steering_id

    def pull(
        self, run: ActiveRun, _: api.PullSteeringRequest
    ) -> AsyncIterator[api.PullSteeringResponse]:
        """Streams follow-up input until the run ends."""
        if run.pulls:
            raise refused("ALREADY_EXISTS", "the run has its one stream of follow-up input already")
        run.pulls = True
        return self._stream(run)

    def acknowledge(
        self, run: ActiveRun, request: api.AcknowledgeSteeringRequest
    ) -> api.AcknowledgeSteeringResponse:
        """Notes what was taken up."""
        for steering_id in request.steering_ids:
            if steering_id not in run.pulled:
                raise not_found("follow-up input", steering_id)
        run.acknowledged += [
            entry for entry in request.steering_ids if entry not in run.acknowledged
        ]
        return api.AcknowledgeSteeringResponse()

    async def _stream(self, run: ActiveRun) -> AsyncIterator[api.PullSteeringResponse]:
        try:
            while True:
                response = await run.follow_ups.get()
                run.pulled[response.steering_id] = response
                yield response
        finally:
            run.pulls = False


class StandInActions:
    """Records actions; none has an executor here."""

    def __init__(self) -> None:
        self.requested: dict[str, result_pb2.ActionRequested] = {}

    def request(self, _: ActiveRun, request: api.RequestActionRequest) -> api.RequestActionResponse:
        """Records an action, once for each key."""
        if not request.action.idempotency_key:
            raise invalid("action.idempotency_key", "must have 1 to 255 bytes, has 0")
        self.record(request.action)
        return api.RequestActionResponse(
            status=api.ACTION_STATUS_RECORDED,
            missing=["executor"],
            detail="the stand-in host executes nothing",
        )

    def record(self, action: result_pb2.ActionRequested) -> None:
        """Records an action.

        Raises:
            HostCallError: Its key was used for another one.
        """
        known = self.requested.setdefault(action.idempotency_key, action)
        if known != action:
            raise refused(
                "ALREADY_EXISTS",
                f"the key {action.idempotency_key!r} was used for another action",
                resource=action.idempotency_key,
            )
