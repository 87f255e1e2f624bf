"""Checks what a runner sends, and gives it the host's numbers.

Two numberings: the runner's own `sequence` (1, 2, 3 ...) is checked here and kept beside the
    result; the number under which a
result is delivered is the host's. A frame of nothing but plain deltas, which is what a run mostly
sends, is checked and numbered in place by one short loop; everything else goes result by result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runmesh.v1 import result_pb2

from host_service.limits import Limits
from host_service.registry.frames import Frame
from host_service.validation import Validator
from host_service.validation.results import may_need_repair, repair_result, result_violations
from host_service.validation.tree import walk_unknown_numbers

# How many numbers of gaps are remembered, to tell a late result from a repeated one.
_GAPS_REMEMBERED = 4096
TERMINAL = frozenset({"run_completed", "run_failed"})


class ProtocolFault(Exception):
    """The runner broke the contract in a way that ends the run with `runner.protocol`."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A result that goes on.

    Attributes:
        result: The result; under its delivered number, unless it is terminal: the host may have
            more to say before it.
        kind: The name of its payload, such as `message_delta`.
        runner_sequence: The runner's own number of it.
    """

    result: result_pb2.RunResult
    kind: str
    runner_sequence: int


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of a frame.

    Attributes:
        numbered: The results that go on, in order.
        fault: What ends the run after them, or None.
    """

    numbered: Sequence[Numbered]
    fault: ProtocolFault | None = None


class ResultChecker:
    """Checks and numbers the results of one run.

    Args:
        run_id: The run that results must name.
        limits: Sizes.
        validator: The contract's rules under these limits.
        warn: Told of what somebody should know: a code and a sentence.
    """

    def __init__(
        self,
        *,
        run_id: str,
        limits: Limits,
        validator: Validator,
        warn: Callable[[str, str], None],
    ) -> None:
        self._run_id = run_id
        # A result without its number and its text, and the tags and lengths of these.
        self._bare_bytes = result_pb2.RunResult(run_id=run_id).ByteSize() + 1 + 4
        self._limits = limits
        self._validator = validator
        self._warn = warn
        self._expected = 1
        self._missing: set[int] = set()
        self._ended = False
        self.delivered = 0

    def number(self, result: result_pb2.RunResult) -> None:
        """Give a result the next delivered number."""
        self.delivered += 1
        result.sequence = result.first_sequence = self.delivered

    def number_texts(self, frame: Frame) -> list[str] | None:
        """Number a frame that has nothing but texts of the message in progress, and return these.

        Returns None, with nothing counted, for any other frame. This is the hot path: what it does
        for each result is what a run costs. That a result has no field beside its run, its number
        and its text is told from the size of the frame: any other field would add to it.
        """
        response = frame.response
        if (
            response is None
            or frame.suspicious
            or self._ended
            or self._expected != self.delivered + 1
        ):
            return None
        run_id, number = self._run_id, self.delivered
        texts: list[str] = []
        for result in response.results:
            number += 1
            if result.sequence != number or result.run_id != run_id:
                return None
            result.first_sequence = number
            texts.append(result.message_delta.text)
        if not texts or frame.size_bytes != _texts_bytes(texts, number, self._bare_bytes):
            return None
        self._expected, self.delivered = number + 1, number
        return texts

    def number_plain_deltas(self, frame: Frame) -> bool:
        """Number a frame of plain deltas in place and return True; leave any other one alone.

        This is the hot path: what it does for each result is what a run costs.
        """
        if frame.suspicious or self._ended or frame.size_bytes > self._limits.result_bytes:
            return False
        run_id, expected = self._run_id, self._expected
        response = frame.response
        if response is None:
            return False
        results = response.results
        for result in results:
            if (
                result.sequence != expected
                or not result.HasField("message_delta")
                or result.run_id != run_id
            ):
                return False
            expected += 1
        number = self.delivered
        same = number + 1 == self._expected
        for result in results:
            number += 1
            result.first_sequence = number
            if not same:
                result.sequence = number
        self._expected = expected
        self.delivered = number
        return True

    def check(self, frame: Frame) -> Checked:
        """Check any frame result by result, and number those that go on.

        What came before a fault goes on, as it would had it come in a frame of its own.
        """
        if frame.response is None:
            return self._unreadable(frame)
        if frame.mended:
            self._warn(
                "text_repaired",
                f"what is no Unicode became U+FFFD in {', '.join(frame.mended)}",
            )
        passed: list[Numbered] = []
        for result in frame.response.results:
            if self._ended:
                self._warn_late(f"result {result.sequence}")
                continue
            try:
                kind = self._accept(result, frame)
            except ProtocolFault as fault:
                return Checked(passed, fault)
            if kind is not None:
                passed.append(Numbered(result, kind, result.sequence))
                self._ended = kind in TERMINAL
                if not self._ended:
                    self.number(result)
        return Checked(passed)

    def _unreadable(self, frame: Frame) -> Checked:
        what = f"a frame of {frame.size_bytes} bytes"
        if self._ended:
            self._warn_late(what)
            return Checked(())
        return Checked((), ProtocolFault(f"{what} is no RunResponse"))

    def _warn_late(self, what: str) -> None:
        self._warn("after_terminal", f"{what} came after the terminal result and was dropped")

    def _accept(self, result: result_pb2.RunResult, frame: Frame) -> str | None:
        if result.run_id != self._run_id:
            raise ProtocolFault(
                f"result {result.sequence} names run {result.run_id[:64]!r}, "
                f"this is {self._run_id!r}"
            )
        if not self._in_order(result.sequence):
            return None
        kind = result.WhichOneof("payload")
        if kind is None:
            if result.must_understand:
                raise ProtocolFault(
                    f"result {result.sequence} must be understood and is of a type that this host "
                    "does not know"
                )
            self._warn(
                "unknown_result",
                f"result {result.sequence} is of a type this host does not know and was ignored",
            )
            return None
        self._check_size(result)
        if frame.suspicious or kind != "message_delta":
            self._check_fields(result)
        return kind

    def _in_order(self, sequence: int) -> bool:
        """Return whether a result is new; say what is odd about its number."""
        if sequence == self._expected:
            self._expected += 1
            return True
        if sequence < 1:
            raise ProtocolFault(f"a result has sequence {sequence}; the first is 1")
        if sequence > self._expected:
            self._warn(
                "sequence_gap", f"result {sequence} came where {self._expected} was expected"
            )
            last_kept = min(sequence, self._expected + _GAPS_REMEMBERED - len(self._missing))
            self._missing.update(range(self._expected, last_kept))
            self._expected = sequence + 1
            return True
        if sequence in self._missing:
            self._missing.discard(sequence)
            self._warn(
                "sequence_step_back", f"result {sequence} came late, after {self._expected - 1}"
            )
            return True
        self._warn("sequence_repeated", f"result {sequence} came again and was dropped")
        return False

    def _check_size(self, result: result_pb2.RunResult) -> None:
        size, limit = result.ByteSize(), self._limits.result_bytes
        inline = 0
        if result.HasField("artifact_created"):
            inline = len(result.artifact_created.inline.data)
            if inline > self._limits.inline_artifact_bytes:
                raise ProtocolFault(
                    f"result {result.sequence} has an inline artifact of {inline} bytes; "
                    f"the limit is {self._limits.inline_artifact_bytes}"
                )
        if size - inline > limit:
            raise ProtocolFault(
                f"result {result.sequence} has {size - inline} bytes; the limit is {limit}"
            )

    def _check_fields(self, result: result_pb2.RunResult) -> None:
        repaired: Sequence[str] = ()
        if may_need_repair(result.SerializeToString()):
            repaired = repair_result(result)
        if repaired:
            self._warn(
                "text_repaired",
                f"U+0000 or a lone surrogate became U+FFFD in {', '.join(repaired)}",
            )
        fault = self.find_fault(result)
        if fault is not None:
            raise ProtocolFault(fault)

    def find_fault(self, result: result_pb2.RunResult) -> str | None:
        """Return which rules of the contract a result breaks, or None.

        State that breaks them is refused where it would be stored, and the run goes on. So it does
        with what a later version of the contract may allow: that is warned of and passed on.
        """
        violations = [
            each
            for each in result_violations(result, self._validator.find_violations)
            if not each.field.startswith("state_updated.")
        ]
        for path, number in walk_unknown_numbers(result):
            # A scope that is not known has a refusal of its own.
            if not path.startswith("state_updated."):
                self._warn(
                    "unknown_value",
                    f"result {result.sequence}: {path} has enum number {number}, which this host "
                    "does not know",
                )
        broken = [str(each) for each in violations if not each.is_unknown]
        return f"result {result.sequence}: " + "; ".join(broken) if broken else None


def _texts_bytes(texts: Sequence[str], last: int, bare_bytes: int) -> int:
    """Return the size of a frame of texts; 0 where it is not known, since they are of many sizes.

    Args:
        texts: One of each result.
        last: The number of the last result.
        bare_bytes: What each result has beside its number and its text.
    """
    joined = "".join(texts)
    is_ascii = joined.isascii()
    number_bytes = (last.bit_length() + 6) // 7
    first = last - len(texts) + 1
    if (first.bit_length() + 6) // 7 != number_bytes:
        return 0
    inner = bare_bytes + number_bytes
    longest = max(map(len, texts)) * (1 if is_ascii else 4)
    if inner + longest > 127 or "" in texts:
        return 0
    return len(texts) * (inner + 2) + (len(joined) if is_ascii else len(joined.encode()))
