"""The results that wait to be sent: the way from a run's producer to its sender.

::

    author's code --> producer task --put--> Outbox --take--> sender (the RPC handler) --> gRPC

One producer, one sender, one event loop. Whatever waits when the sender comes back from a write
goes out together, so a frame is as full as the connection is slow and no result ever waits for
another. There is no timer: a producer that finds the sender idle gives it the loop's next turn.
"""

import asyncio
import time

from runner_sdk._wire import FRAME_BYTES

RESULTS_WAITING = 512
"""How many results may wait: enough to make a frame's own cost small, few enough to go soon."""

_ANY_NUMBER = 2**31
# How long a producer that never awaits may keep the loop from everybody else.
_TURN_SECONDS = 0.001
# A sender in the middle of a write needs one turn to hear that it is done, one to resume, and one
# to begin the next; an idle one that was just woken needs one.
_TURNS_AFTER_A_WRITE = 3


class Outbox:
    """Holds encoded results until the sender takes them, and holds the producer back when full."""

    __slots__ = ("_bytes", "_closed", "_emptied", "_pieces", "_reader", "_turn_ends", "_turns")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._closed = False
        self._reader: asyncio.Future[None] | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._turn_ends = 0.0
        self._turns = _TURNS_AFTER_A_WRITE

    @property
    def closed(self) -> bool:
        """Whether nothing is taken in any more."""
        return self._closed

    def put(self, piece: bytes) -> bool:
        """Takes in an encoded result, unless it is closed.

        Returns:
            Whether the producer has something to do before the next one: to stop, when the outbox
            was closed, else to call `pause`.
        """
        if self._closed:
            return True
        self._pieces.append(piece)
        self._bytes += len(piece)
        if self._reader is not None:
            self._wake_reader()
            self._turns = 1
            return True
        return (
            len(self._pieces) >= RESULTS_WAITING
            or self._bytes >= FRAME_BYTES
            or time.monotonic() > self._turn_ends
        )

    async def pause(self) -> None:
        """Lets the sender and everybody else have a turn; a full outbox waits for the sender."""
        while not self._closed and (
            len(self._pieces) >= RESULTS_WAITING or self._bytes >= FRAME_BYTES
        ):
            self._turns = 0
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied
        for _ in range(self._turns):
            await asyncio.sleep(0)
        self._turns = _TURNS_AFTER_A_WRITE
        self._turn_ends = time.monotonic() + _TURN_SECONDS

    async def take(self) -> bytes:
        """Waits for results and returns a frame of them; empty when there will be no more.

        A frame holds what waits, up to the contract's limit; a single larger result goes alone.
        """
        return b"".join(await self.take_pieces())

    async def take_pieces(
        self, most: int = _ANY_NUMBER, *, most_bytes: int = FRAME_BYTES
    ) -> list[bytes]:
        """Waits for results and returns them one by one; none when there will be no more.

        Args:
            most: How many at most.
            most_bytes: How large together; a single larger one goes alone.
        """
        while not self._pieces:
            if self._closed:
                return []
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        pieces = self._next_pieces(most, most_bytes)
        if self._emptied is not None:
            if not self._emptied.done():
                self._emptied.set_result(None)
            self._emptied = None
        return pieces

    def close(self, *, discard: bool = False) -> None:
        """Ends the stream: the sender gets what waits and then the end.

        Args:
            discard: Nobody reads on: drop what waits as well.
        """
        self._closed = True
        if discard:
            self._pieces.clear()
            self._bytes = 0
        self._wake_reader()
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _wake_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    def _next_pieces(self, most: int, most_bytes: int) -> list[bytes]:
        pieces = self._pieces
        if len(pieces) <= most and (self._bytes <= most_bytes or len(pieces) == 1):
            self._pieces, self._bytes = [], 0
            return pieces
        size = count = 0
        for piece in pieces[:most]:
            if count and size + len(piece) > most_bytes:
                break
            size += len(piece)
            count += 1
        self._pieces = pieces[count:]
        self._bytes -= size
        return pieces[:count]
