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
        run.follow_ups.append(response)
        run.tell()
        return response.steering_id

    async def pull(
        self, run: ActiveRun, _: api.PullSteeringRequest
    ) -> AsyncIterator[api.PullSteeringResponse]:
        """Yields what has not been acknowledged, then what comes, until the run ends.

        A new stream ends the one before it.
        """
        run.pulls += 1
        run.tell()
        own, position = run.pulls, 0
        while run.pulls == own:
            if position == len(run.follow_ups):
                await run.changed.wait()
                continue
            response = run.follow_ups[position]
            position += 1
            if response.steering_id not in run.acknowledged:
                yield response

    def acknowledge(
        self, run: ActiveRun, request: api.AcknowledgeSteeringRequest
    ) -> api.AcknowledgeSteeringResponse:
        """Notes what was taken up: all of it, or nothing where something is unknown."""
        known = {response.steering_id for response in run.follow_ups}
        for steering_id in request.steering_ids:
            if steering_id not in known:
                raise not_found("follow-up input", steering_id)
        run.acknowledged += [
            entry for entry in request.steering_ids if entry not in run.acknowledged
        ]
        return api.AcknowledgeSteeringResponse()


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
