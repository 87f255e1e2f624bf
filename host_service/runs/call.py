"""One call of a run's runner: what it sends is passed on, until its terminal result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from host_service.registry.instance import Instance
from host_service.registry.run_stream import RunnerFault
from host_service.runs.checker import ProtocolFault
from host_service.runs.delivery import Delivery
from host_service.runs.outcome import Outcome, RunFault, ended_by_runner
from host_service.runs.request import PreparedCall
from host_service.runs.services import RunServices
from stores.errors import StoreError
from stores.records import Acceptance

# A runner that keeps the contract ends its stream with its terminal result. One that does not is
# listened to for this long, so that what it sends too late can be warned of.
_LATE_SECONDS = 0.1


class RunnerCall:
    """A call that is open from when it is made; to be closed.

    Args:
        instance: Which process is called.
        prepared: What it is called with.
        timeout_seconds: The call's deadline; None: none.
        delivery: Where its results go.
        services: What every run works with.
        on_first_word: Called when the first results have come.
        on_last_word: Called when the terminal result has come.
    """

    def __init__(
        self,
        *,
        instance: Instance,
        prepared: PreparedCall,
        timeout_seconds: float | None,
        delivery: Delivery,
        services: RunServices,
        on_first_word: Callable[[], None],
        on_last_word: Callable[[], None],
    ) -> None:
        self._run_id = prepared.request.context.run_id
        self._delivery = delivery
        self._grace_seconds = services.limits.interrupt_grace_seconds
        self._on_first_word = on_first_word
        self._on_last_word = on_last_word
        self._stream = instance.open_run(
            prepared.request,
            timeout_seconds=timeout_seconds,
            metadata=services.telemetry.outgoing(),
        )

    async def relay(self, committed: asyncio.Future[Acceptance] | None) -> Outcome:
        """Pass results on to the end.

        Args:
            committed: Done when the run's acceptance is durable; nothing is shown before. None: it
                is.

        Raises:
            RunnerFault: The call failed.
            RunFault: The runner broke the contract, or the run is not stored.
        """
        try:
            frame = await self._stream.read()
            self._on_first_word()
            if committed is not None and frame is not None:
                await _wait_committed(committed)
            while frame is not None:
                terminal = await self._delivery.pass_on(frame)
                if terminal is not None:
                    self._on_last_word()
                    await self._listen_on()
                    return ended_by_runner(terminal.result, terminal.runner_sequence)
                frame = await self._stream.read()
        except ProtocolFault as fault:
            raise RunFault("runner.protocol", str(fault)) from fault
        raise RunFault(
            "runner.protocol", "the runner's stream ended without run_completed or run_failed"
        )

    async def _listen_on(self) -> None:
        """Read to the end of the stream, so that what comes after the terminal result is known."""
        # An end that is not a clean one changes nothing: the runner has had its last word.
        with contextlib.suppress(RunnerFault, TimeoutError):
            async with asyncio.timeout(_LATE_SECONDS):
                while (frame := await self._stream.read()) is not None:
                    self._delivery.hear_late(frame)

    async def interrupt(self, reason: str, work: asyncio.Task[Outcome]) -> None:
        """Let the runner stop by itself within the grace; then cancel the work that relays."""
        asked = asyncio.create_task(
            self._stream.interrupt(
                run_id=self._run_id, reason=reason, grace_seconds=self._grace_seconds
            )
        )
        try:
            await asyncio.wait(
                {work, asked},
                timeout=self._grace_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            # A runner has stopped when its stream has ended, which follows its answer at once.
            await asyncio.wait({work}, timeout=_LATE_SECONDS)
        finally:
            asked.cancel()
            work.cancel()

    def close(self) -> None:
        """Tell the runner that nobody reads on."""
        self._stream.cancel()


async def _wait_committed(committed: asyncio.Future[Acceptance]) -> None:
    try:
        await asyncio.shield(committed)
    except StoreError as error:
        raise RunFault("host.unavailable", "the run could not be stored", retryable=True) from error
