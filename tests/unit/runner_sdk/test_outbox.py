"""The way from producer to sender: at once, in order, together, and bounded."""

import asyncio

import pytest

from runner_sdk._outbox import RESULTS_WAITING, Outbox
from runner_sdk._wire import FRAME_BYTES


async def test_what_waits_goes_out_together_in_order() -> None:
    outbox = Outbox()
    for piece in (b"a", b"b", b"c"):
        outbox.put(piece)

    assert await outbox.take() == b"abc"


async def test_a_waiting_sender_is_woken_and_given_the_turn() -> None:
    outbox = Outbox()
    sender = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)

    assert outbox.put(b"first")
    await outbox.pause()

    assert sender.done()
    assert await sender == b"first"


async def test_a_frame_holds_no_more_than_the_contracts_limit() -> None:
    outbox = Outbox()
    half = b"x" * (FRAME_BYTES // 2)
    for piece in (half, half, b"y"):
        outbox.put(piece)

    assert await outbox.take() == half + half
    assert await outbox.take() == b"y"


async def test_a_larger_result_goes_alone() -> None:
    outbox = Outbox()
    large = b"x" * (FRAME_BYTES + 1)
    for piece in (b"before", large, b"after"):
        outbox.put(piece)

    assert [await outbox.take() for _ in range(3)] == [b"before", large, b"after"]


@pytest.mark.parametrize(
    ("piece", "count"), [(b"x", RESULTS_WAITING), (b"x" * (FRAME_BYTES // 4), 4)]
)
async def test_a_full_outbox_holds_the_producer_back_until_the_sender_has_taken(
    piece: bytes, count: int
) -> None:
    outbox = Outbox()
    asks = [outbox.put(piece) for _ in range(count)]
    assert asks[-1]
    held_back = asyncio.create_task(outbox.pause())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not held_back.done()

    await outbox.take()

    await asyncio.wait_for(held_back, 1)


async def test_a_closed_outbox_gives_what_waits_and_then_the_end() -> None:
    outbox = Outbox()
    outbox.put(b"last")
    outbox.close()

    assert outbox.put(b"too late"), "there is something to do: to stop"
    assert [await outbox.take(), await outbox.take()] == [b"last", b""]


async def test_discarding_lets_go_of_what_waits_and_of_whoever_waits() -> None:
    outbox = Outbox()
    for _ in range(RESULTS_WAITING):
        outbox.put(b"x")
    held_back = asyncio.create_task(outbox.pause())
    await asyncio.sleep(0)

    outbox.close(discard=True)

    await asyncio.wait_for(held_back, 1)
    assert await outbox.take() == b""


async def test_closing_wakes_a_waiting_sender() -> None:
    outbox = Outbox()
    sender = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)

    outbox.close()

    assert await asyncio.wait_for(sender, 1) == b""


async def test_a_sender_that_was_cancelled_leaves_nothing_behind() -> None:
    outbox = Outbox()
    sender = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    sender.cancel()
    await asyncio.sleep(0)

    outbox.put(b"kept")

    assert await outbox.take() == b"kept"


async def test_as_many_pieces_are_taken_as_are_allowed_and_the_rest_stays_in_order() -> None:
    outbox = Outbox()
    for number in range(5):
        outbox.put(bytes([number]))
    assert await outbox.take_pieces(2) == [b"\x00", b"\x01"]
    assert await outbox.take_pieces(9, most_bytes=2) == [b"\x02", b"\x03"]
    outbox.close()
    assert await outbox.take_pieces(9) == [b"\x04"]
    assert await outbox.take_pieces(9) == []


async def test_piece_larger_than_is_allowed_goes_alone() -> None:
    outbox = Outbox()
    outbox.put(b"large" * 10)
    outbox.put(b"x")
    assert await outbox.take_pieces(9, most_bytes=4) == [b"large" * 10]
    assert await outbox.take_pieces(9, most_bytes=4) == [b"x"]
