"""How plain code in a thread waits for what happens on the event loop.

::

    thread: block_on(call) --> event loop: the call as a task --> thread: its outcome

While it waits the thread stands at its `block_on`, and that is where a cancellation meets it: the
task is cancelled, and `asyncio.CancelledError` is raised in the thread.
"""

import asyncio
import threading
from collections.abc import AsyncIterable, Awaitable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

_Value = TypeVar("_Value")


class Blocking:
    """Waits, in threads, for what happens on one event loop."""

    __slots__ = ("_loop", "_waits")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # What each thread waits for, by the thread's number.
        self._waits: dict[int, _Wait] = {}

    def on(self, call: Awaitable[_Value]) -> _Value:
        """Waits for a call.

        Raises:
            RuntimeError: It was called on an event loop, where only `await` can wait.
            CancelledError: The run was cancelled meanwhile.
        """
        self._refuse_on_a_loop(call)
        thread = threading.get_ident()
        wait = self._waits[thread] = _Wait()
        try:
            return asyncio.run_coroutine_threadsafe(wait.on(call), self._loop).result()
        except CancelledError as error:
            raise asyncio.CancelledError(*error.args) from error
        finally:
            self._waits.pop(thread, None)

    def iterate(self, items: AsyncIterable[_Value]) -> Iterator[_Value]:
        """Waits for one item after the other; closes a generator that is left early."""
        iterator = aiter(items)
        try:
            while True:
                try:
                    item = self.on(anext(iterator))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                self.on(close())

    @contextmanager
    def enter(self, resource: AbstractAsyncContextManager[_Value]) -> Iterator[_Value]:
        """Enters an `async with`, and leaves it at the end of the `with`."""
        entered = self.on(resource.__aenter__())
        try:
            yield entered
        except BaseException as error:
            if not self.on(resource.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.on(resource.__aexit__(None, None, None))

    def cancel(self, thread: int | None) -> bool:
        """Cancels, on the loop, what a thread waits for.

        Returns:
            Whether the thread waits, and so learns of it there.
        """
        wait = self._waits.get(thread) if thread is not None else None
        return wait is not None and wait.cancel()

    def _refuse_on_a_loop(self, call: object) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        _close(call)
        raise RuntimeError("ctx.block_on() is for plain code in a thread: here, use `await`")


class _Wait:
    """What one thread waits for. It has ended, cancelled or not, when the thread goes on."""

    __slots__ = ("_cancelled", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    async def on(self, call: Awaitable[_Value]) -> _Value:
        self._task = asyncio.current_task()
        if self._cancelled:
            _close(call)
            raise asyncio.CancelledError
        return await call

    def cancel(self) -> bool:
        self._cancelled = True
        # Without a task yet, it is cancelled as it begins.
        return self._task is None or self._task.cancel()


def _close(call: object) -> None:
    """Lets go of a call that is not awaited, without a warning that it was not."""
    close = getattr(call, "close", None)
    if close is not None:
        close()
