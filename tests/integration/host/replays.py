"""What a reader that came late, or came back, was shown, held against what was delivered live."""

from collections.abc import Sequence

from runmesh.v1 import result_pb2

from tests.integration.host.calls import Answer

Results = Sequence[result_pb2.RunResult]


class Delivered:
    """All results of a run, one by one, as the reader that never left got them.

    Args:
        live: What that reader got.
    """

    def __init__(self, live: Answer) -> None:
        live.check_numbers()
        self._results = {each.sequence: each for each in live.results}
        # Whoever never leaves is shown each result under a number of its own, without a gap.
        assert list(self._results) == list(range(1, len(live.results) + 1))
        assert all(each.first_sequence == each.sequence for each in live.results)

    @property
    def last(self) -> int:
        """The largest number."""
        return len(self._results)

    def check(self, seen: Results, after: int, *, to_the_end: bool = True) -> None:
        """Fails unless a reader has what came after a number, once and in order.

        Deltas may come joined. Those of a message that had come whole by then may be left out, all
        of them and no fewer.

        Args:
            seen: What it was shown, from one connection.
            after: The number it asked for.
            to_the_end: Whether it read all, and not only up to the last that it was shown.
        """
        covered: set[int] = set()
        for result in seen:
            numbers = range(result.first_sequence, result.sequence + 1)
            assert numbers
            assert numbers.start > max(covered, default=after), f"{numbers} came again or too late"
            covered.update(numbers)
            self._check_content(result, numbers)
        last = self.last if to_the_end else max(covered, default=after)
        asked = set(range(after + 1, last + 1))
        for number in asked - covered:
            assert self._results[number].HasField("message_delta"), f"{number} never came"
            completing = self._completing(number)
            assert completing in covered, f"the text of {number} never came"
            others = {each for each in covered if self._is_part_of(each, completing)}
            assert not others, f"of one message, {sorted(others)} came and {number} did not"

    def _check_content(self, result: result_pb2.RunResult, numbers: range) -> None:
        whole = [self._results[number] for number in numbers]
        if not result.HasField("message_delta"):
            assert [result] == whole
            return
        assert all(each.HasField("message_delta") for each in whole)
        assert result.message_delta.text == "".join(each.message_delta.text for each in whole)
        ids = {each.message_delta.message_id for each in whole}
        assert ids == {result.message_delta.message_id}

    def _is_part_of(self, number: int, completing: int) -> bool:
        result = self._results[number]
        return result.HasField("message_delta") and self._completing(number) == completing

    def _completing(self, number: int) -> int:
        """The number of the message that a delta became part of."""
        message_id = self._results[number].message_delta.message_id
        return next(
            each.sequence
            for each in self._results.values()
            if each.sequence > number
            and each.HasField("message_completed")
            and message_id in {"", each.message_completed.message.message_id}
        )
