"""One start of a plugin: its process and its instance, from the start of both to their end.

start --> comes up --> serves --> over: it ended, or nobody listens there any more
  |           |           |
  +-----------+-----------+--> stop: asked to end, then killed; the instance leaves the list
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from host_service.registry import (
    HandshakeFailed,
    Instance,
    InstanceState,
    NotAnswering,
    PluginIncompatible,
    PluginRefused,
    Registry,
)
from host_service.supervisor.child import Child, Launch
from host_service.supervisor.errors import PluginFailed, ProcessEnded

_FIRST_LOOK_SECONDS = 0.01
_LONGEST_LOOK_SECONDS = 0.05


class PluginProcess:
    """A process of a plugin that was started, and its instance in the registry.

    Args:
        child: The process.
        instance: What the registry lists for it.
        registry: Where it is listed.
        release: Called when nothing of the process is left.

    Attributes:
        over: Done when it is of no more use: why. Its instance is lost by then if its process
            ended; the runs of one that only stopped listening have ended.
    """

    def __init__(
        self,
        child: Child,
        instance: Instance,
        registry: Registry,
        *,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self.instance = instance
        self._child = child
        self._registry = registry
        self._release = release
        self.over: asyncio.Task[PluginFailed] = asyncio.create_task(
            self._watch(), name=f"watch {instance.plugin_id}"
        )

    @classmethod
    async def start(
        cls,
        launch: Launch,
        instance: Instance,
        registry: Registry,
        *,
        release: Callable[[], None] = lambda: None,
    ) -> "PluginProcess":
        """Starts the process; it is not ready yet.

        Args:
            launch: What to start.
            instance: What the registry lists for it.
            registry: Where it is listed.
            release: Called when nothing of the process is left, or it could not be started.

        Raises:
            PluginFailed: It could not be started.
            OSError: Likewise.
        """
        try:
            child = await Child.start(launch)
        except BaseException:
            release()
            raise
        registry.process_started(instance, child.process_id)
        return cls(child, instance, registry, release=release)

    async def come_up(self, timeout_seconds: float) -> None:
        """Returns once it serves.

        Raises:
            PluginFailed: It ended, or did not become ready in time; with the end of what it wrote.
            PluginRefused, PluginIncompatible: It must not be called.
        """
        try:
            await self._while_running(self._bring_up(timeout_seconds))
        except (PluginRefused, PluginIncompatible):
            raise
        except HandshakeFailed as error:
            raise PluginFailed(_with_tail(str(error), self._child.tail())) from error

    async def is_over(self) -> None:
        """Returns once it is of no more use."""
        await asyncio.wait({self.over})

    async def stop(self, grace_seconds: float) -> None:
        """Ends the process and all that it started; its instance takes no more runs meanwhile."""
        if not self.over.done():
            self.over.cancel()
        if not self._child.ended.done():
            self._registry.drain(self.instance, "it is being stopped")
        try:
            await self._child.stop(grace_seconds)
        finally:
            self._release()

    async def _watch(self) -> PluginFailed:
        """Waits until it is of no more use, and returns why."""
        try:
            await self._while_running(self.instance.unreachable.wait())
            # It may still finish the runs it has.
            await self._while_running(self.instance.idle.wait())
        except PluginFailed as error:
            return error
        return PluginFailed(_with_tail("nobody listens at its address", self._child.tail()))

    async def _while_running(self, wanted: Coroutine[None, None, object]) -> None:
        """Awaits something, but no longer than the process runs.

        Raises:
            ProcessEnded: It ended before.
        """
        task = asyncio.create_task(wanted)
        try:
            waiting: set[asyncio.Future[Any]] = {task, self._child.ended}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._child.ended.done():
                raise self._ended()
            task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _ended(self) -> ProcessEnded:
        problem = f"its process {self._child.ended.result()}"
        failure = ProcessEnded(_with_tail(problem, self._child.tail()))
        # Its runs learn it now, not when the last of what it started is gone.
        self._registry.lose(self.instance, InstanceState.UNHEALTHY, str(failure))
        return failure

    async def _bring_up(self, timeout_seconds: float) -> None:
        now = asyncio.get_running_loop().time
        late_at = now() + timeout_seconds
        path = Path(self.instance.address.removeprefix("unix:"))
        # gRPC waits longer after each vain connect; a look at the folder costs nothing.
        pause_seconds = _FIRST_LOOK_SECONDS
        while not path.exists():  # noqa: ASYNC240 - a look takes microseconds, a thread 150
            if now() >= late_at:
                raise NotAnswering(f"it did not listen on RUNMESH_LISTEN in {timeout_seconds:g} s")
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.5, _LONGEST_LOOK_SECONDS)
        await self._registry.bring_up(self.instance, timeout_seconds=late_at - now())


def _with_tail(problem: str, tail: str) -> str:
    return f"{problem}; the last it wrote:\n{tail}" if tail else f"{problem}; it wrote nothing"
