from collections.abc import AsyncIterator, Sequence

import pytest
from runmesh.v1.result_pb2 import RunResult

from benchmarks.job import Job
from benchmarks.loads import complete, middle_rate
from benchmarks.ways import WrongRun


class Recorded:
    """A way on which every run says what was recorded."""

    def __init__(self, frames: Sequence[Sequence[int]]) -> None:
        self._frames = frames

    async def prepare(self, job: Job) -> None:
        """Nothing is needed."""

    def start(self, _job: Job) -> "Recorded":
        """Starts a run."""
        return self

    async def results(self) -> AsyncIterator[Sequence[RunResult]]:
        """Yields the frames."""
        for frame in self._frames:
            yield [RunResult(sequence=number) for number in frame]

    async def stop(self) -> None:
        """Does nothing."""


def test_rate_leaves_out_the_beginning_and_the_end() -> None:
    # A slow start, ten results a second in the middle, and one run that lags behind at the end.
    arrivals = [(0.0, 10), *((5.0 + each / 10, 1) for each in range(1, 81)), (99.0, 10)]
    # The time begins with the frame that ends the first tenth.
    assert middle_rate(arrivals) == pytest.approx(80 / 13.0)
    assert middle_rate([(4.9, 10), *arrivals[1:]]) == pytest.approx(80 / 8.1)


def test_rate_does_not_depend_on_the_order_of_frames() -> None:
    arrivals = [(each / 100, 5) for each in range(100)]
    assert middle_rate(arrivals[::-1]) == pytest.approx(500)


def test_rate_of_too_few_frames_is_refused() -> None:
    with pytest.raises(WrongRun, match="too few"):
        middle_rate([(1.0, 100)])


async def test_complete_run_is_timed_by_the_frames_that_have_pieces() -> None:
    timing = await complete(Recorded([[1], [2, 3], [4, 5]]), Job(repeat=3))
    assert [count for _, count in timing.arrivals] == [1, 2]
    assert timing.called <= timing.first <= timing.ended


@pytest.mark.parametrize("frames", [[[1], [3, 4, 5]], [[1, 2], [2, 3, 4]], [[1, 2, 3, 4]]])
async def test_run_that_lost_or_doubled_results_is_no_measurement(frames: list[list[int]]) -> None:
    with pytest.raises(WrongRun):
        await complete(Recorded(frames), Job(repeat=3))
