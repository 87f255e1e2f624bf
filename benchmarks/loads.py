"""The loads: what callers do to a way, and what they measure while they do it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from runmesh.v1.result_pb2 import RunResult

from benchmarks.job import Job
from benchmarks.spread import percentile
from benchmarks.ways import Stream, Way, WrongRun

# How long to wait for something that takes milliseconds where all is well.
_PATIENCE_SECONDS = 60.0
# Callers that begin together meet a burst; what is measured comes after it.
_WARM_UP_SECONDS = 0.2
# Many runs are all started before the first of them says anything: they are to stream side by side.
_GATHER_SECONDS = 0.5
_FIRST_GUESS = 6_000
_GUESSES = 3
# Of all results that runs make at once, those in the middle are counted: none begins or ends then.
_MIDDLE = (0.1, 0.9)


@dataclass(frozen=True, slots=True)
class Timing:
    """When what happened in one run, on this process's clock, in seconds.

    Attributes:
        called: The event was sent.
        arrivals: For each frame with pieces, when it came and how many results it had.
        ended: The run had ended.
    """

    called: float
    arrivals: Sequence[tuple[float, int]]
    ended: float

    @property
    def first(self) -> float:
        """When the first piece was there."""
        return self.arrivals[0][0]


async def complete(way: Way, job: Job) -> Timing:
    """Reads one run to its end.

    Raises:
        WrongRun: It went wrong, or results are missing.
    """
    called, count = perf_counter(), 0
    arrivals: list[tuple[float, int]] = []
    async for results in way.start(job).results():
        before, count = count, _counted(results, count)
        if before < job.repeat:
            arrivals.append((perf_counter(), len(results)))
    if count != job.results:
        raise WrongRun(f"a run had {count} results instead of {job.results}")
    return Timing(called, arrivals, perf_counter())


def _counted(results: Sequence[RunResult], before: int) -> int:
    """Returns how many results there are with these; their numbers must go on."""
    last = before + len(results)
    if results[0].sequence != before + 1 or results[-1].sequence != last:
        raise WrongRun(
            f"results {results[0].sequence} to {results[-1].sequence} came where {before + 1} to "
            f"{last} were expected"
        )
    return last


async def results_a_second(way: Way, job: Job, *, streams: int) -> float:
    """Measures how many results a second streams carry together when results wait."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        runs = await asyncio.gather(*(complete(way, job) for _ in range(streams)))
    return middle_rate([arrival for run in runs for arrival in run.arrivals])


def middle_rate(arrivals: Iterable[tuple[float, int]]) -> float:
    """Returns how many results a second came, of those in the middle of all.

    Args:
        arrivals: When frames came, and how many results each had.

    Raises:
        WrongRun: They all came at once.
    """
    ordered = sorted(arrivals)
    total = sum(count for _, count in ordered)
    begin = end = ordered[0][0]
    before = until = so_far = 0
    for at, count in ordered:
        so_far += count
        if so_far <= total * _MIDDLE[0]:
            begin, before = at, so_far
        if so_far <= total * _MIDDLE[1]:
            end, until = at, so_far
    if end <= begin:
        raise WrongRun(f"{total} results came in {len(ordered)} frames: too few to tell a rate")
    return (until - before) / (end - begin)


async def size_job(way: Way, *, streams: int, seconds: float, together: bool = False) -> Job:
    """Finds and prepares the job with which streams are busy for about so many seconds."""
    job = Job(
        repeat=_FIRST_GUESS // streams,
        delay_seconds=_GATHER_SECONDS if streams > 1 else 0.0,
        together=together,
    )
    for _ in range(_GUESSES):
        await way.prepare(job)
        rate = await results_a_second(way, job, streams=streams)
        wanted = rate * seconds / streams / (_MIDDLE[1] - _MIDDLE[0])
        if wanted / 2 < job.repeat < wanted * 2:
            break
        job = replace(job, repeat=round(wanted))
    await way.prepare(job)
    return job


async def first_delta_milliseconds(way: Way, job: Job, *, callers: int, seconds: float) -> float:
    """Measures the median time from an event to the first delta of its run."""
    runs = await _keep_going(lambda: complete(way, job), callers=callers, seconds=seconds)
    return percentile([run.first - run.called for run in runs], 0.5) * 1000


async def runs_a_second(way: Way, job: Job, *, callers: int, seconds: float) -> float:
    """Measures how many runs a second end, each read to its end."""
    runs = await _keep_going(lambda: complete(way, job), callers=callers, seconds=seconds)
    return len(runs) / seconds


async def _keep_going(
    work: Callable[[], Awaitable[Timing]], *, callers: int, seconds: float
) -> list[Timing]:
    """Lets callers do their work again and again; returns the runs that ended within the time."""
    begin = perf_counter() + _WARM_UP_SECONDS
    end = begin + seconds
    runs: list[Timing] = []

    async def call() -> None:
        while perf_counter() < end:
            run = await work()
            if begin <= run.ended <= end:
                runs.append(run)

    async with asyncio.timeout(seconds + _PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(call())
    if not runs:
        raise WrongRun(f"not one run ended within {seconds:.1f} s")
    return runs


async def delay_milliseconds(way: Way, job: Job) -> float:
    """Measures the median time that a result takes from the runner's code to the caller.

    Args:
        way: A way to a runner whose pieces are times.
        job: A job with a clock.
    """
    delays: list[int] = []
    async for results in way.start(job).results():
        now = time.monotonic_ns()
        delays += [
            now - int(each.message_delta.text) for each in results if each.HasField("message_delta")
        ]
    return percentile(delays, 0.5) / 1e6


class HeldRun:
    """A run that is started and stays active until it is stopped."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._first = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    async def begun(self) -> None:
        """Returns when its first result is there.

        Raises:
            WrongRun: It ended instead.
        """
        first = asyncio.create_task(self._first.wait())
        await asyncio.wait({first, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            first.cancel()
            self._task.result()
            raise WrongRun("a run ended before anybody stopped it")

    async def stop(self) -> None:
        """Stops it and returns when it has ended."""
        await self._stream.stop()
        await self._task

    async def _read(self) -> None:
        async for _ in self._stream.results():
            self._first.set()
