"""The rules of a run's stream: what the author yields is numbered, mended, checked and put out."""

import logging

from runmesh.v1.result_pb2 import RunFailed, RunResult

from runner_sdk._outbox import Outbox
from runner_sdk._text import BrokenText, TextMender
from runner_sdk._wire import RESULT_BYTES, FrameEncoder, Unchecked, encode_unchecked
from runner_sdk.errors import RunFailure
from runner_sdk.results import Result, ResultConstructors

_logger = logging.getLogger("runner_sdk.run")

_ENDS_TEXT = frozenset({"message_completed", "run_completed", "run_failed"})
_TERMINAL = frozenset({"run_completed", "run_failed"})


class ResultWriter:
    """Writes the results of one run to its outbox.

    Once a terminal result is written, or the caller has left, the run is over: what comes then is
    not written.
    """

    __slots__ = ("_encoder", "_mender", "_outbox", "_raw", "_run_id", "_sequence")

    def __init__(self, *, run_id: str, outbox: Outbox) -> None:
        self._run_id = run_id
        self._outbox = outbox
        self._encoder = FrameEncoder(run_id)
        self._mender = TextMender()
        self._sequence = 0
        self._raw = False

    @property
    def over(self) -> bool:
        """Whether nothing more is written."""
        return self._outbox.closed

    def write(self, result: Result | Unchecked) -> bool:
        """Writes what the author yielded; returns whether the outbox asks for a pause.

        Raises:
            TypeError: It is no result.
            RunFailure: It is larger than the contract allows.
        """
        if type(result) is not RunResult:
            return self._write_other(result)
        kind = result.WhichOneof("payload")
        if kind != "message_delta" or self._mender:
            return self._write_checked(result, kind)
        return self._put(result)

    def finish(self, failure: RunFailed | None) -> None:
        """Ends the stream; without a terminal result from the author, it ends as told."""
        if not self.over and not self._raw:
            result = RunResult(run_failed=failure) if failure else ResultConstructors.completed()
            self._write_checked(result, result.WhichOneof("payload"))
        self._outbox.close()

    def _put(self, result: RunResult) -> bool:
        piece = self._encoder.encode(result, self._sequence + 1)
        if len(piece) > RESULT_BYTES:
            _check_size(result)
        self._sequence += 1
        return self._outbox.put(piece)

    def _write_checked(self, result: RunResult, kind: str | None) -> bool:
        if kind is None:
            raise TypeError(
                "run() yielded a result without a payload: make one with ctx.delta(...)"
            )
        if kind == "message_delta":
            return self._put(self._join(result))
        if kind in _ENDS_TEXT:
            for half in self._mender.release():
                self._put_text(half, half.text)
        if not result.HasField("timestamp"):
            result.timestamp.GetCurrentTime()
        pause = self._put(result)
        if kind in _TERMINAL:
            self._outbox.close()
        return pause

    def _join(self, result: RunResult) -> RunResult:
        """Returns a sound delta with the half that waits for it, if one does."""
        joined = RunResult()
        joined.CopyFrom(result)
        delta = joined.message_delta
        if delta.text:
            delta.text = self._mender.mend(
                BrokenText(delta.text, reasoning=False, message_id=delta.message_id)
            )
        if delta.reasoning_text:
            delta.reasoning_text = self._mender.mend(
                BrokenText(delta.reasoning_text, reasoning=True, message_id=delta.message_id)
            )
        return joined

    def _write_other(self, result: object) -> bool:
        if isinstance(result, BrokenText):
            return self._put_text(result, self._mender.mend(result))
        if isinstance(result, Unchecked):
            self._raw = True
            pauses = [self._outbox.put(encode_unchecked(entry)) for entry in result.results]
            return any(pauses)
        raise TypeError(
            f"run() yielded {type(result).__name__}: yield results, such as ctx.delta(text)"
        )

    def _put_text(self, delta: BrokenText, text: str) -> bool:
        if not text:
            return False
        make = ResultConstructors.reasoning if delta.reasoning else ResultConstructors.delta
        result = make(text, delta.message_id)
        assert isinstance(result, RunResult), "mended text can be encoded"  # noqa: S101
        return self._put(result)


def _check_size(result: RunResult) -> None:
    size = result.ByteSize()
    if result.HasField("artifact_created"):
        size -= len(result.artifact_created.inline.data)
    if size > RESULT_BYTES:
        raise RunFailure(
            "runner.protocol",
            f"a {result.WhichOneof('payload')} result has {size} bytes; the limit is "
            f"{RESULT_BYTES}: send large content as an artifact",
            details={"size": str(size), "limit": str(RESULT_BYTES)},
        )
