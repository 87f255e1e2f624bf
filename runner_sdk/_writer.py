"""The rules of a run's stream: what the author yields is numbered, mended, checked and put out."""

from runmesh.v1 import result_pb2
from runmesh.v1.result_pb2 import RunResult

from runner_sdk._outbox import Outbox
from runner_sdk._text import Delta, TextMender, mend
from runner_sdk._wire import RESULT_BYTES, FrameEncoder, Unchecked, encode_unchecked
from runner_sdk.errors import RunFailure
from runner_sdk.results import Result, ResultConstructors

_ENDS_TEXT = frozenset({"message_completed", "run_completed", "run_failed"})
_TERMINAL = frozenset({"run_completed", "run_failed"})

_FAILURE_CHARACTERS = 10_000


class ResultWriter:
    """Writes the results of one run to its outbox.

    Once a terminal result is written, or the caller has left, the run is over: what comes then is
    not written.
    """

    __slots__ = ("_encoder", "_mender", "_outbox", "_raw", "_sequence")

    def __init__(self, *, run_id: str, outbox: Outbox) -> None:
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
        """Writes what the author yielded.

        Returns:
            Whether there is something to do before the next one: to stop, when the run was over
            already, else to let the outbox pause.

        Raises:
            TypeError: It is no result.
            RunFailure: It is larger than the contract allows.
        """
        if type(result) is not Delta:
            return self._write_other(result)
        if result.message_id or result.reasoning or self._mender:
            return self._write_delta(result)
        try:
            piece = self._encoder.encode_text(result.text, self._sequence + 1)
        except (UnicodeEncodeError, TypeError):
            return self._write_delta(result)
        if not result.text:
            # Nothing to send, but code that yields nothing for ever must not keep the loop.
            return True
        if len(piece) > RESULT_BYTES:
            return self._write_delta(result)
        self._sequence += 1
        return self._outbox.put(piece)

    def finish(self, failure: RunFailure | None) -> None:
        """Ends the stream; without a terminal result from the author, it ends as told."""
        if self.over or self._raw:
            return
        if failure is None:
            self._write_message(ResultConstructors.completed())
            return
        self._write_message(
            ResultConstructors.failed(
                failure.code,
                _shortened(failure.message),
                retryable=failure.retryable,
                details=failure.details,
            )
        )

    def _write_other(self, result: object) -> bool:
        if isinstance(result, RunResult):
            return self._write_message(result)
        if isinstance(result, Unchecked):
            self._raw = True
            pauses = [self._outbox.put(encode_unchecked(entry)) for entry in result.results]
            return any(pauses)
        raise TypeError(
            f"run() yielded {type(result).__name__}: yield results, such as ctx.delta(text)"
        )

    def _write_delta(self, delta: Delta) -> bool:
        """Writes any delta: of some message, of reasoning, or with halves of surrogate pairs."""
        if not isinstance(delta.text, str):
            raise TypeError(f"run() yielded a delta of {type(delta.text).__name__}: it takes text")
        mended = self._mender.mend(delta)
        if not mended.text:
            return True
        message = result_pb2.MessageDelta(message_id=mend(delta.message_id))
        if delta.reasoning:
            message.reasoning_text = mended.text
        else:
            message.text = mended.text
        return self._put(RunResult(message_delta=message))

    def _write_message(self, result: RunResult) -> bool:
        kind = result.WhichOneof("payload")
        if kind is None:
            raise TypeError("run() yielded a result without a payload: make it with ctx")
        if self._mender and kind in _ENDS_TEXT:
            for half in self._mender.release():
                self._write_delta(half)
        if not result.HasField("timestamp") and kind != "message_delta":
            result.timestamp.GetCurrentTime()
        to_do = self._put(result)
        if kind in _TERMINAL and not self.over:
            self._outbox.close()
            return False
        return to_do

    def _put(self, result: RunResult) -> bool:
        piece = self._encoder.encode(result, self._sequence + 1)
        if len(piece) > RESULT_BYTES:
            _check_size(result, self._encoder.size_of(result))
        self._sequence += 1
        return self._outbox.put(piece)


def _shortened(message: str) -> str:
    """Keeps the message of a failure to what people read."""
    left_out = len(message) - _FAILURE_CHARACTERS
    if left_out <= 0:
        return message
    return f"{message[:_FAILURE_CHARACTERS]}... ({left_out} more characters)"


def _check_size(result: RunResult, size: int) -> None:
    if result.HasField("artifact_created"):
        size -= len(result.artifact_created.inline.data)
    if size > RESULT_BYTES:
        raise RunFailure(
            "runner.protocol",
            f"a {result.WhichOneof('payload')} result has {size} bytes; the limit is "
            f"{RESULT_BYTES}: send large content as an artifact",
            details={"size": str(size), "limit": str(RESULT_BYTES)},
        )
