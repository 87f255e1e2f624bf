"""The benchmarks with real processes, counting only: how long something takes is no test."""

from benchmarks.job import Job
from benchmarks.loads import complete
from benchmarks.rounds import Plan
from benchmarks.scenarios import result_delay
from benchmarks.stage import standing


async def test_every_way_carries_the_same_run_from_its_runner_to_the_caller() -> None:
    async with standing() as stage:
        job = Job(repeat=20)
        for way in (stage.echo, stage.foreign, stage.relay, stage.gateway):
            await way.prepare(job)
            timing = await complete(way, job)
            assert sum(count for _, count in timing.arrivals) in {20, 21, 22}
        joined = Job(repeat=20, together=True)
        assert len((await complete(stage.relay, joined)).arrivals) < 20
        rows = await result_delay.measure(stage, Plan(rounds=1, seconds=0.05, quick=True))
    assert [len(row.measured) for row in rows] == [1]
