"""Calls the author's code, whatever its form, and hands on what it yields.

An async generator is what everything else is turned into: a coroutine yields what it returns, and
plain code runs in a thread of its own whose results are fetched in batches. Cancellation meets the
author's code where it stands: CancelledError is raised at its `await` (`block_on` in a thread) or
its `yield`.
"""

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator
from typing import Any, cast

from runner_sdk._outbox import RESULTS_WAITING
from runner_sdk._wire import Unchecked
from runner_sdk.context import RunContext
from runner_sdk.errors import RunFailure
from runner_sdk.results import Result

Results = AsyncGenerator[Result | Unchecked, None]

THROWN = (asyncio.CancelledError, TypeError, RunFailure)
"""What is raised at the author's `yield`: a cancellation, or what is wrong with a result."""


def results_of(run: Callable[[RunContext], Any], context: RunContext) -> Results:
    """Calls the author's `run` and returns its results as an async generator."""
    form = inspect.unwrap(run)  # what a decorator of the author's wraps says what it is
    if inspect.isasyncgenfunction(form):
        return cast("Results", run(context))
    if inspect.iscoroutinefunction(form):
        return _from_coroutine(run(context))
    return _from_thread(run, context)


async def _from_coroutine(outcome: Awaitable[Any]) -> Results:
    result = await outcome
    if result is not None:
        yield result


async def _from_thread(run: Callable[[RunContext], Any], context: RunContext) -> Results:
    thread = _RunThread(run, context)
    thread.start()
    while True:
        try:
            batch = await thread.fetch()
        except asyncio.CancelledError as error:
            thread.cancel(error)
            continue
        if not batch:
            break
        for result in batch:
            try:
                yield result
            except THROWN as error:
                thread.cancel(error)
            except GeneratorExit:
                await thread.abandon()
                raise
    thread.raise_error()


class _RunThread:
    """Runs plain code in a thread and takes in what it yields."""

    def __init__(self, run: Callable[[RunContext], Any], context: RunContext) -> None:
        self._run = run
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._room = threading.Condition()
        self._waiting: list[Any] = []
        self._thrown: BaseException | None = None
        self._abandoned = False
        self._ended = False
        self._error: BaseException | None = None

        # A daemon: code that never comes back must not keep the process from ending.
        self._thread = threading.Thread(
            target=contextvars.copy_context().run,
            args=(self._work,),
            name=f"run {context.run_id}",
            daemon=True,
        )

    def start(self) -> None:
        self._thread.start()

    async def fetch(self) -> list[Any]:
        """Waits for results; an empty list is the end."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            with self._room:
                batch, self._waiting = self._waiting, []
                self._room.notify()
                if self._ended:
                    self._ready.set()
                if batch or self._ended:
                    return batch

    def cancel(self, error: BaseException) -> None:
        """Raises an error in the thread: a cancellation where it waits, else at its next yield."""
        if isinstance(error, asyncio.CancelledError) and self._cancel_wait():
            return
        with self._room:
            self._thrown = error
            self._room.notify()

    async def abandon(self) -> None:
        """Closes the thread's generator at its next yield, and waits until the thread has ended."""
        with self._room:
            self._abandoned = True
            self._room.notify()
        self._cancel_wait()
        while not self._ended:
            # Cancelling cannot hasten it, and the run is not over while its code runs.
            with contextlib.suppress(asyncio.CancelledError):
                await self.fetch()

    def _cancel_wait(self) -> bool:
        return self._context.blocking.cancel(self._thread.ident)

    def raise_error(self) -> None:
        """Raises what ended the thread, if it was an error."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            self._drain(self._run(self._context))
        except BaseException as error:  # noqa: BLE001 - raised again in the run's task
            self._error = error
        with self._room:
            self._ended = True
        self._wake()

    def _drain(self, outcome: object) -> None:
        if inspect.isgenerator(outcome):
            self._iterate(outcome)
        elif inspect.isawaitable(outcome) or isinstance(outcome, AsyncIterable):
            kind = type(outcome).__name__
            raise TypeError(f"a plain `def run` returned a {kind}: write `async def run`")
        elif isinstance(outcome, Iterator | list | tuple):
            self._iterate(entry for entry in cast("Iterable[Any]", outcome))
        elif outcome is not None:
            self._hand_over(outcome)

    def _iterate(self, generator: Any) -> None:
        try:
            result = next(generator)
            while True:
                error = self._hand_over(result)
                if self._abandoned:
                    generator.close()
                    return
                result = generator.throw(error) if error is not None else next(generator)
        except StopIteration:
            return

    def _hand_over(self, result: object) -> BaseException | None:
        """Gives a result to the loop, waiting for room; returns an error to raise at the yield."""
        with self._room:
            self._waiting.append(result)
            first = len(self._waiting) == 1
        if first:
            self._wake()
        with self._room:
            self._room.wait_for(
                lambda: len(self._waiting) < RESULTS_WAITING or self._thrown or self._abandoned
            )
            error, self._thrown = self._thrown, None
        return error

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:
            # The loop is closed: the process is ending, and nobody waits for this run.
            self._abandoned = True
