"""Tests of `host_service.runs.log`: every reader gets all of it, in order, within bounds."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runmesh.v1 import gateway_pb2

from host_service.errors import Overloaded, Unavailable
from host_service.limits import Limits
from host_service.runs.log import Batch, Bookmark, Ended, Reader, ResultLog
from stores.records import RunRecord, RunStatus
from tests.unit.runs.samples import NOON, a_delta, a_result

# Longer than any test: whoever waits for it waits for something else to happen first.
LONG = 3600.0
LIMITS = replace(Limits(), bookmark_seconds=LONG, reader_patience_seconds=LONG)
RUN = RunRecord(
    run_id="run-1",
    workspace="",
    bot="",
    event_source="api",
    event_id="event-1",
    agent_id="helper",
    agent_revision=1,
    runner_id="plugin:acme/desk/default",
    conversation_key="",
    session_key="",
    created_at=NOON,
    host_id="host",
    host_incarnation="start",
    agent_snapshot=b"{}",
    status=RunStatus.COMPLETED,
)


def a_log(**limits: Any) -> ResultLog:
    return ResultLog(limits=replace(LIMITS, **limits))


def a_batch(sequence: int, text: str = "x") -> Batch:
    """Return a batch of one result."""
    results = [a_result(sequence, message_delta=a_delta(text))]
    return Batch(gateway_pb2.ResultBatch(results=results).SerializeToString(), sequence)


def sequences(batch: Batch) -> list[int]:
    return [each.sequence for each in gateway_pb2.ResultBatch.FromString(batch.encoded).results]


async def taken(reader: Reader) -> list[int]:
    """Return the numbers of all that a reader takes up to the end."""
    found: list[int] = []
    while not isinstance(item := await reader.take(), Ended):
        assert isinstance(item, Batch)
        found += sequences(item)
        assert item.last_sequence == found[-1]
    assert item.run is RUN
    return found


async def test_every_reader_takes_everything_in_order_and_then_the_end() -> None:
    log = a_log()
    readers = [log.subscribe(patient=True), log.subscribe(patient=False)]
    for sequence in range(1, 6):
        await log.deliver(a_batch(sequence))
    log.deliver_last(a_batch(6))
    log.end(RUN)
    for reader in readers:
        assert await taken(reader) == [1, 2, 3, 4, 5, 6]


async def test_what_waits_goes_out_together_up_to_the_size_of_a_frame() -> None:
    size = len(a_batch(1).encoded)
    log = a_log(frame_bytes=3 * size)
    reader = log.subscribe(patient=False)
    for sequence in range(1, 6):
        await log.deliver(a_batch(sequence))
    batches = [await reader.take(), await reader.take()]
    assert [sequences(each) for each in batches if isinstance(each, Batch)] == [[1, 2, 3], [4, 5]]


async def test_batch_larger_than_a_frame_goes_out_alone() -> None:
    log = a_log(frame_bytes=10)
    reader = log.subscribe(patient=False)
    await log.deliver(a_batch(1, "x" * 100))
    await log.deliver(a_batch(2))
    batch = await reader.take()
    assert isinstance(batch, Batch)
    assert sequences(batch) == [1]


async def test_reader_waits_for_what_is_delivered_next() -> None:
    log = a_log()
    reader = log.subscribe(patient=True)
    taking = asyncio.create_task(reader.take())
    await asyncio.sleep(0)
    assert not taking.done()
    await log.deliver(a_batch(1))
    batch = await asyncio.wait_for(taking, 1)
    assert isinstance(batch, Batch)
    assert sequences(batch) == [1]


async def test_reader_that_comes_later_takes_what_is_delivered_from_then_on() -> None:
    log = a_log()
    first = log.subscribe(patient=False)
    await log.deliver(a_batch(1))
    later = log.subscribe(patient=False)
    await log.deliver(a_batch(2))
    log.end(RUN)
    assert await taken(first) == [1, 2]
    assert await taken(later) == [2]


async def test_reader_of_a_run_that_has_ended_hears_so_at_once() -> None:
    log = a_log()
    log.end(RUN)
    assert await taken(log.subscribe(patient=False)) == []


async def test_reader_skips_what_it_was_given_already() -> None:
    log = a_log()
    reader = log.subscribe(patient=False, after=2)
    for sequence in (1, 2, 3):
        await log.deliver(a_batch(sequence))
    log.end(RUN)
    assert await taken(reader) == [3]


async def test_idle_reader_gets_a_bookmark_with_the_last_number_it_was_given() -> None:
    log = a_log(bookmark_seconds=0.001)
    reader = log.subscribe(patient=False, after=7)
    assert await reader.take() == Bookmark(7)
    await log.deliver(a_batch(8))
    assert isinstance(await reader.take(), Batch)
    assert await reader.take() == Bookmark(8)


async def test_impatient_reader_that_falls_behind_its_buffer_is_ended_and_can_go_on() -> None:
    size = len(a_batch(1).encoded)
    log = a_log(reader_buffer_bytes=2 * size, frame_bytes=1)
    reader = log.subscribe(patient=False, after=4)
    await log.deliver(a_batch(5))
    assert isinstance(await reader.take(), Batch)
    for sequence in (6, 7):
        await log.deliver(a_batch(sequence))
    # The run does not wait for it.
    await asyncio.wait_for(log.deliver(a_batch(8)), 1)
    with pytest.raises(Overloaded) as raised:
        await reader.take()
    assert raised.value.facts == {"limit": str(2 * size), "last_sequence": "5"}
    assert "after_sequence 5" in raised.value.message
    assert raised.value.retry_after_seconds
    log.end(RUN)
    with pytest.raises(Overloaded):
        await reader.take()


async def test_patient_reader_slows_the_run_until_it_reads() -> None:
    size = len(a_batch(1).encoded)
    log = a_log(reader_buffer_bytes=2 * size)
    reader = log.subscribe(patient=True)
    await log.deliver(a_batch(1))
    delivering = asyncio.create_task(log.deliver(a_batch(2)))
    await asyncio.sleep(0)
    assert not delivering.done()
    batch = await reader.take()
    await asyncio.wait_for(delivering, 1)
    assert isinstance(batch, Batch)
    assert sequences(batch) == [1, 2]


async def test_one_slow_reader_costs_the_others_nothing_but_time() -> None:
    size = len(a_batch(1).encoded)
    log = a_log(reader_buffer_bytes=2 * size, frame_bytes=1)
    slow, quick = log.subscribe(patient=False), log.subscribe(patient=False)
    for sequence in range(1, 9):
        await log.deliver(a_batch(sequence))
        assert isinstance(await quick.take(), Batch)
    with pytest.raises(Overloaded):
        await slow.take()


async def test_patience_with_a_caller_that_does_not_read_has_an_end() -> None:
    log = a_log(reader_buffer_bytes=1, reader_patience_seconds=0.001)
    reader = log.subscribe(patient=True)
    await asyncio.wait_for(log.deliver(a_batch(1)), 5)
    await asyncio.wait_for(log.deliver(a_batch(2)), 5)
    with pytest.raises(Overloaded, match="after_sequence 0"):
        await reader.take()


async def test_run_waits_for_every_patient_reader() -> None:
    log = a_log(reader_buffer_bytes=1)
    readers = [log.subscribe(patient=True), log.subscribe(patient=True)]
    for order in (readers, readers[::-1]):
        delivering = asyncio.create_task(log.deliver(a_batch(1)))
        await asyncio.sleep(0)
        for reader in order:
            assert not delivering.done()
            await reader.take()
            await asyncio.sleep(0)
        await asyncio.wait_for(delivering, 1)


async def test_buffer_stays_within_its_bound_and_one_batch() -> None:
    size = len(a_batch(1).encoded)
    log = a_log(reader_buffer_bytes=4 * size, frame_bytes=size)
    reader = log.subscribe(patient=True)

    async def deliver_all() -> None:
        for sequence in range(1, 51):
            await log.deliver(a_batch(sequence))
        log.end(RUN)

    delivering = asyncio.create_task(deliver_all())
    most, found = 0, list[int]()
    while not isinstance(item := await reader.take(), Ended):
        await asyncio.sleep(0)
        assert isinstance(item, Batch)
        found += sequences(item)
        most = max(most, reader._size)
    await delivering
    assert found == list(range(1, 51))
    assert most <= 5 * size


async def test_closing_a_reader_frees_the_run_that_waits_for_it() -> None:
    log = a_log(reader_buffer_bytes=1)
    reader = log.subscribe(patient=True)
    delivering = asyncio.create_task(log.deliver(a_batch(1)))
    await asyncio.sleep(0)
    reader.close()
    await asyncio.wait_for(delivering, 1)
    assert not log.has_readers
    reader.close()


async def test_end_does_not_wait_for_a_reader_without_room() -> None:
    log = a_log(reader_buffer_bytes=1)
    reader = log.subscribe(patient=True)
    reader.offer(a_batch(1))
    log.deliver_last(a_batch(2))
    log.end(RUN)
    assert await taken(reader) == [1, 2]


async def test_failure_of_the_host_comes_after_what_was_delivered() -> None:
    log = a_log()
    reader = log.subscribe(patient=True)
    await log.deliver(a_batch(1))
    log.fail(Unavailable("the end is not known"))
    batch = await reader.take()
    assert isinstance(batch, Batch)
    for each in (reader, log.subscribe(patient=False)):
        with pytest.raises(Unavailable):
            await each.take()


async def test_cancelled_take_loses_nothing() -> None:
    log = a_log()
    reader = log.subscribe(patient=True)
    taking = asyncio.create_task(reader.take())
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait([taking])
    await log.deliver(a_batch(1))
    log.end(RUN)
    assert await taken(reader) == [1]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.integers(1, 200), st.randoms())
@settings(max_examples=40, deadline=None)
def test_however_it_is_joined_nothing_is_missing_doubled_or_out_of_order(
    sizes: list[int], frame_bytes: int, random: Any
) -> None:
    async def play() -> None:
        log = a_log(frame_bytes=frame_bytes)
        reader = log.subscribe(patient=False)
        found: list[int] = []
        for number, size in enumerate(sizes, start=1):
            await log.deliver(a_batch(number, "x" * size))
            if random.random() < 0.3:
                item = await reader.take()
                assert isinstance(item, Batch)
                found += sequences(item)
        log.end(RUN)
        assert found + await taken(reader) == list(range(1, len(sizes) + 1))

    asyncio.run(play())
