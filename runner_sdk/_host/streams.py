"""Answers that come as a stream: iterated over, and closed when they are left early."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from grpc import aio
from grpc.aio import AioRpcError

from runner_sdk._status import host_call_error

ItemT = TypeVar("ItemT")


class HostStream(Generic[ItemT]):
    """The items of an answer, in order.

    Iterate over it with `async for`. With `async with` around it the call ends where the block is
    left, however that happens; without, it ends when nothing holds the stream any more. The call
    starts when the first item is asked for, and it is read no faster than it is iterated over.
    """

    def __init__(
        self,
        method: str,
        *,
        begin: Callable[[], Any],
        wait_seconds: Callable[[Exception], float | None],
    ) -> None:
        self._method = method
        self._begin = begin
        self._wait_seconds = wait_seconds
        self._call: Any = None
        self._over = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __del__(self) -> None:
        """Ends the call of a stream that was left without `async with`.

        gRPC would end it as well, but only when the garbage collector comes by. It may be a thread
        of plain code that lets go of the stream, and calls belong to their loop.
        """
        if self._call is not None and not self._over and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and its calls with it
                self._loop.call_soon_threadsafe(self._call.cancel)

    async def __aenter__(self) -> Self:
        """Returns the stream itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the call."""
        self.close()

    def __aiter__(self) -> Self:
        """Returns the stream itself: it can be read once."""
        return self

    async def __anext__(self) -> ItemT:
        """Returns the next item.

        Raises:
            HostCallError: The host refused the call, could not be reached, or broke off. What
                came before is valid.
        """
        while not self._over:
            response = await self._read()
            if response is None:
                self._over = True
                self.on_end()
                break
            item = self.item_of(response)
            if item is not None:
                return item
        raise StopAsyncIteration

    def close(self) -> None:
        """Ends the call; what was not read is not read any more."""
        self._over = True
        if self._call is not None:
            self._call.cancel()

    async def aclose(self) -> None:
        """Ends the call, as `close` does: the name that generators have for it."""
        self.close()

    def item_of(self, response: Any) -> ItemT | None:
        """Returns what to make of a response; None: leave it out."""
        item: ItemT = response
        return item

    def on_end(self) -> None:
        """Is called when the host has ended the stream well."""

    async def _read(self) -> Any:
        """Returns the next response, or None at the end."""
        new = self._call is None
        while True:
            if self._call is None:
                self._loop = asyncio.get_running_loop()
                self._call = self._begin()
            try:
                response = await self._call.read()
            except AioRpcError as error:
                failure = host_call_error(self._method, error)
                # Only a stream that has not begun is begun again: nothing comes twice.
                wait = self._wait_seconds(failure) if new else None
                if wait is None:
                    self._over = True
                    raise failure from error
                self._call = None
            else:
                return None if response is aio.EOF else response
            await asyncio.sleep(wait)
