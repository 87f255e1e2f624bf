"""One run as a stand-in host sees it: its stream, checked against the contract, and its outcome."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from runmesh.v1 import run_pb2
from runmesh.v1.result_pb2 import RunCompleted, RunFailed, RunResult
from runmesh.v1.run_pb2_grpc import RunServiceStub
from runmesh.v1.types_pb2 import ChatMessage

from runner_sdk._standin.active_run import ActiveRun
from runner_sdk._standin.api import StandInApi
from runner_sdk._wire import FRAME_BYTES, RESULT_BYTES

_TERMINAL = ("run_completed", "run_failed")


class ContractBroken(AssertionError):
    """The runner did something that the contract does not allow."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What came of a run.

    Attributes:
        run_id: The run.
        results: All results, in order.
        frames: In how many frames they came.
    """

    run_id: str
    results: tuple[RunResult, ...] = field(repr=False)
    frames: int

    @property
    def messages(self) -> list[ChatMessage]:
        """The completed messages, that of the terminal result included."""
        found = [
            result.message_completed.message
            for result in self.results
            if result.HasField("message_completed")
        ]
        if self.completed is not None and self.completed.HasField("message"):
            found.append(self.completed.message)
        return found

    @property
    def streamed_text(self) -> str:
        """The text of all deltas, joined."""
        return "".join(result.message_delta.text for result in self.results)

    @property
    def text(self) -> str:
        """What the runner said: the text of its messages, or of its deltas where it sent none."""
        if not self.messages:
            return self.streamed_text
        return "".join(part.text for message in self.messages for part in message.parts)

    @property
    def completed(self) -> RunCompleted | None:
        """How the run ended well, or None."""
        last = self.results[-1] if self.results else RunResult()
        return last.run_completed if last.HasField("run_completed") else None

    @property
    def failed(self) -> RunFailed | None:
        """How the run ended badly, or None."""
        last = self.results[-1] if self.results else RunResult()
        return last.run_failed if last.HasField("run_failed") else None

    def of_kind(self, kind: str) -> list[Any]:
        """Returns the payloads of one kind, such as `tool_call_started`."""
        return [
            getattr(result, kind) for result in self.results if result.WhichOneof("payload") == kind
        ]


class RunCall:
    """A run under way: iterate over it for its results as they come, and read on at any time."""

    def __init__(
        self,
        *,
        request: run_pb2.RunRequest,
        stub: RunServiceStub,
        api: StandInApi,
        run: ActiveRun,
    ) -> None:
        self.run_id = request.context.run_id
        self._run = run
        self._token = request.host_access.run_token
        self._stub = stub
        self._api = api
        timeout = request.timeout.ToMilliseconds() / 1000 if request.HasField("timeout") else None
        self._call = stub.Run(request, timeout=timeout)
        self._results: list[RunResult] = []
        self._frames = 0
        self._iterator = self._iterate()

    def __aiter__(self) -> AsyncIterator[RunResult]:
        """Iterates over the results that were not read yet."""
        return self

    async def __anext__(self) -> RunResult:
        """Returns the next result, checked against the contract."""
        return await anext(self._iterator)

    async def _iterate(self) -> AsyncIterator[RunResult]:
        try:
            async for frame in self._call:
                self._frames += 1
                if frame.ByteSize() > FRAME_BYTES and len(frame.results) > 1:
                    raise ContractBroken(f"a frame has {frame.ByteSize()} bytes")
                for result in frame.results:
                    self._check(result)
                    self._results.append(result)
                    self._api.world.take(self._run, result)
                    yield result
            if not self._results or self._results[-1].WhichOneof("payload") not in _TERMINAL:
                raise ContractBroken("the stream ended without a terminal result")
        finally:
            self._api.revoke(self._token)

    async def outcome(self) -> RunOutcome:
        """Reads on to the end of the run and returns all that came of it."""
        async for _ in self:
            pass
        return RunOutcome(self.run_id, tuple(self._results), self._frames)

    async def interrupt(self, reason: str = "cancelled", *, grace_seconds: float = 5.0) -> bool:
        """Asks the runner to stop; returns, when it has, whether the run was under way."""
        request = run_pb2.InterruptRequest(run_id=self.run_id, reason=reason)
        request.grace.FromMilliseconds(round(grace_seconds * 1000))
        response = await self._stub.Interrupt(request)
        return response.was_active

    def steer(self, text: str) -> str:
        """Gives the run follow-up input, as somebody who says more while it works does.

        Returns:
            The input's id, which is among `acknowledged` once the runner took it up.
        """
        return self._api.world.steering.push(self._run, text)

    @property
    def acknowledged(self) -> list[str]:
        """The ids of the follow-up input that the runner acknowledged, in order."""
        return list(self._run.acknowledged)

    def cancel(self) -> None:
        """Leaves: cancels the call, as a host does whose caller is gone."""
        self._call.cancel()

    def _check(self, result: RunResult) -> None:
        expected = len(self._results) + 1
        if result.run_id != self.run_id:
            raise ContractBroken(f"result {expected} names the run {result.run_id!r}")
        if result.sequence != expected:
            raise ContractBroken(f"result {expected} has the sequence {result.sequence}")
        if self._results and self._results[-1].WhichOneof("payload") in _TERMINAL:
            raise ContractBroken(f"result {expected} follows the terminal result")
        if result.WhichOneof("payload") is None:
            raise ContractBroken(f"result {expected} has no payload that this version knows")
        size = result.ByteSize() - len(result.artifact_created.inline.data)
        if size > RESULT_BYTES:
            raise ContractBroken(f"result {expected} has {size} bytes; the limit is {RESULT_BYTES}")
