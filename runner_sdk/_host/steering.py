"""Follow-up input that arrives while the run is active.

::

    host --PullSteering--> listener task --queue--> SteeringStream --> the runner

The listener alone reads the call: a runner that waits for input with a timeout, and gives up, must
not end the one stream that a run has.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from runmesh.v1 import context_pb2, event_pb2
from runmesh.v1 import host_api_pb2 as api

from runner_sdk._host.calls import HostCalls
from runner_sdk._host.requests import make
from runner_sdk._host.streams import HostStream

# So many wait in the process; the host keeps the others.
_WAITING = 64


@dataclass(frozen=True, slots=True)
class FollowUp:
    """One piece of follow-up input.

    Attributes:
        proto: The whole of it.
    """

    calls: HostCalls
    proto: api.PullSteeringResponse

    @property
    def text(self) -> str:
        """What was said, as plain text."""
        return self.proto.input.text

    @property
    def input(self) -> event_pb2.EventInput:
        """What was said: text, parts, attachments."""
        return self.proto.input

    @property
    def event(self) -> context_pb2.EventContext:
        """The event that brought it."""
        return self.proto.event

    @property
    def actor(self) -> event_pb2.Actor | None:
        """Who said it, or None where nobody is named."""
        return self.proto.actor if self.proto.HasField("actor") else None

    @property
    def waited_seconds(self) -> float:
        """How long it had waited."""
        return self.proto.waited.seconds + self.proto.waited.nanos / 1e9

    async def acknowledge(self) -> None:
        """Says that it was taken up. What is not acknowledged becomes a run of its own."""
        await _acknowledge(self.calls, [self.proto.steering_id])


class SteeringStream:
    """Follow-up input as it arrives: iterate over it, or look now and then with `waiting`.

    It listens between `async with` and its end, and never loses anything to a wait that is given
    up, by `asyncio.timeout` for instance.
    """

    def __init__(self, calls: HostCalls) -> None:
        self._calls = calls
        self._arrived: asyncio.Queue[FollowUp | None] = asyncio.Queue(_WAITING)
        self._listener: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        """Begins to listen."""
        self._listener = asyncio.create_task(self._listen(), name="steering")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops listening. What was not acknowledged becomes a run of its own."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait({self._listener})

    def __aiter__(self) -> Self:
        """Returns the stream itself."""
        return self

    async def __anext__(self) -> FollowUp:
        """Waits for the next input, until the host ends the stream with the run.

        Raises:
            HostCallError: The host refused the call, or broke off.
        """
        follow_up = await self._arrived.get()
        if follow_up is None:
            self._end()
            raise StopAsyncIteration
        return follow_up

    async def waiting(self) -> list[FollowUp]:
        """Returns what has arrived and was not returned yet, without waiting for more.

        Raises:
            HostCallError: Nothing is left, and the host refused the call or broke off.
        """
        found: list[FollowUp] = []
        while not self._arrived.empty():
            follow_up = self._arrived.get_nowait()
            if follow_up is not None:
                found.append(follow_up)
            elif found:
                # What was read comes first; the end waits for the next look.
                self._arrived.put_nowait(None)
                break
            else:
                self._end()
                break
        return found

    async def _listen(self) -> None:
        stream = self._calls.stream(
            HostStream[api.PullSteeringResponse], "PullSteering", api.PullSteeringRequest()
        )
        try:
            async with stream as responses:
                async for response in responses:
                    await self._arrived.put(FollowUp(self._calls, response))
        except Exception as error:  # noqa: BLE001 - raised where input is waited for
            self._error = error
        await self._arrived.put(None)

    def _end(self) -> None:
        """Raises the error that ended the stream; without one, lets the end be found again."""
        self._arrived.put_nowait(None)
        if self._error is not None:
            raise self._error


@dataclass(frozen=True, slots=True)
class Steering:
    """Follow-up input of this session while the run is active: `ctx.host.steering`.

    Needs the capability `steering`, and an agent whose follow-up policy is `steer`. A run has one
    stream of it at a time: a new one begins with what was not acknowledged::

        async with ctx.host.steering.pull() as inputs:
            ...  # one step of the work
            for follow_up in await inputs.waiting():
                await follow_up.acknowledge()
    """

    calls: HostCalls

    def pull(self) -> SteeringStream:
        """Listens for follow-up input; use it with `async with`.

        Raises, where it is first waited for:
            Unauthorized: The manifest has no capability `steering`.
        """
        return SteeringStream(self.calls)

    async def __aiter__(self) -> AsyncIterator[FollowUp]:
        """Yields follow-up input as it arrives, until the run ends."""
        async with self.pull() as inputs:
            async for follow_up in inputs:
                yield follow_up

    async def acknowledge(self, follow_ups: Iterable[FollowUp | str]) -> None:
        """Says that several were taken up, by themselves or by their ids.

        Raises:
            NotFound: One of them is another run's.
        """
        await _acknowledge(
            self.calls,
            [entry if isinstance(entry, str) else entry.proto.steering_id for entry in follow_ups],
        )


async def _acknowledge(calls: HostCalls, steering_ids: list[str]) -> None:
    if steering_ids:
        request = make(api.AcknowledgeSteeringRequest, steering_ids=steering_ids)
        await calls.call("AcknowledgeSteering", request)
