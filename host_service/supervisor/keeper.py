"""Keeps one plugin running: starts its process, makes it known, starts it again, or gives up.

start --> ready --> serving --> ended --> pause --> start ...
  |         |                     |
  +---------+---- failed ---------+--> held, until a file of the plugin changes or somebody asks
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from host_service.registry import (
    FoundBy,
    HandshakeFailed,
    Instance,
    InstanceState,
    NotAnswering,
    PluginIncompatible,
    PluginRefused,
    Registry,
)
from host_service.supervisor.child import Child, Launch
from host_service.supervisor.environment import ChildPolicy, PrivateFolders, child_environment
from host_service.supervisor.errors import PluginFailed, ProcessEnded
from host_service.supervisor.folders import tree_stamp
from host_service.supervisor.manifest import PluginManifest, PythonModule
from host_service.supervisor.restart import CrashHistory, RestartPolicy
from host_service.supervisor.sockets import SocketFolder

_log = logging.getLogger("runmesh.supervisor")

_FIRST_LOOK_SECONDS = 0.01
_LONGEST_LOOK_SECONDS = 0.05
_CHANGE_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all plugins of a host share.

    Attributes:
        registry: Where instances are listed.
        sockets: Where they listen.
        private_base: Below it each plugin has its private folders.
        policy: What plugins may have.
        restart: When they are started again.
    """

    registry: Registry
    sockets: SocketFolder
    private_base: Path
    policy: ChildPolicy
    restart: RestartPolicy


class PluginKeeper:
    """Keeps one plugin running until it is stopped.

    Args:
        manifest: The plugin.
        surroundings: What it shares with others.

    Attributes:
        settled: Set once its first start has succeeded or failed.
    """

    def __init__(self, manifest: PluginManifest, surroundings: Surroundings) -> None:
        self.manifest = manifest
        self.settled = asyncio.Event()
        self._around = surroundings
        self._registry = surroundings.registry
        self._history = CrashHistory(surroundings.restart)
        self._again = asyncio.Event()
        self._restarts = 0
        self._grace_seconds = surroundings.restart.stop_grace_seconds
        self._task = asyncio.create_task(self._keep(), name=f"keep {manifest.plugin_id}")

    def change(self, manifest: PluginManifest) -> None:
        """The plugin's folder says something else now: its process is replaced."""
        self.manifest = manifest
        self._again.set()

    def start_again(self) -> None:
        """Ends the process and starts another; ends a pause or a hold."""
        self._again.set()

    async def stop(self, grace_seconds: float | None = None) -> None:
        """Ends the process and all that it started, and takes the instance off the list."""
        if grace_seconds is not None:
            self._grace_seconds = grace_seconds
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _keep(self) -> None:
        instance: Instance | None = None
        try:
            while True:
                self._again.clear()
                instance = self._registry.add(
                    plugin_id=self.manifest.plugin_id,
                    found_by=FoundBy.FOLDER,
                    address=f"unix:{self._around.sockets.new_path()}",
                    restarts=self._restarts,
                    replaces=instance,
                )
                failure = await self._run(instance)
                self.settled.set()
                if isinstance(failure, _AskedToStartAgain):
                    self._history.clear()
                else:
                    await self._pause(instance, failure)
                self._restarts += 1
        except Exception:
            _log.exception("%s is no longer kept", self.manifest.plugin_id)
            raise
        finally:
            self.settled.set()
            if instance is not None:
                self._registry.remove(instance)

    async def _run(self, instance: Instance) -> Exception:
        """Runs the process once, and returns why it does not run any more."""
        try:
            child = await Child.start(self._launch(instance))
        except (PluginFailed, OSError) as error:
            return error
        self._registry.process_started(instance, child.process_id)
        try:
            return await self._serve(child, instance)
        finally:
            if not child.ended.done():
                self._registry.drain(instance, "it is being stopped")
            await child.stop(self._grace_seconds)

    async def _serve(self, child: Child, instance: Instance) -> Exception:
        """Returns why the process ended, or must end."""
        try:
            await self._while_running(child, self._bring_up(instance))
            self._history.served()
            self.settled.set()
            await self._while_running(child, instance.unreachable.wait())
            # It may still finish the runs it has.
            await self._while_running(child, instance.idle.wait())
        except (_AskedToStartAgain, PluginRefused, PluginIncompatible) as error:
            return error
        except (ProcessEnded, HandshakeFailed) as error:
            failure = PluginFailed(_with_tail(str(error), child.tail()))
        else:
            failure = PluginFailed(_with_tail("nobody listens at its address", child.tail()))
        if child.ended.done():
            # Its runs learn it now, not when the last of what it started is gone.
            self._registry.lose(instance, InstanceState.UNHEALTHY, str(failure))
        return failure

    async def _while_running(self, child: Child, wanted: Coroutine[None, None, object]) -> None:
        """Awaits something, but no longer than the process shall run and does.

        Raises:
            ProcessEnded: The process ended before.
            _AskedToStartAgain: It is to be replaced.
        """
        task = asyncio.create_task(wanted)
        asked = asyncio.create_task(self._again.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {task, asked, child.ended}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if child.ended.done():
                raise ProcessEnded(f"its process {child.ended.result()}")
            if asked.done():
                raise _AskedToStartAgain
            task.result()
        finally:
            for each in (task, asked):
                each.cancel()
            await asyncio.gather(task, asked, return_exceptions=True)

    async def _bring_up(self, instance: Instance) -> None:
        timeout_seconds = self._around.restart.ready_timeout_seconds
        started_at = asyncio.get_running_loop().time()
        path = Path(instance.address.removeprefix("unix:"))
        # gRPC waits longer after each vain connect; a look at the folder costs nothing.
        pause_seconds = _FIRST_LOOK_SECONDS
        while not path.exists():  # noqa: ASYNC240 - a look takes microseconds, a thread 150
            left_seconds = started_at + timeout_seconds - asyncio.get_running_loop().time()
            if left_seconds <= 0:
                raise NotAnswering(f"it did not listen on RUNMESH_LISTEN in {timeout_seconds:g} s")
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.5, _LONGEST_LOOK_SECONDS)
        left_seconds = started_at + timeout_seconds - asyncio.get_running_loop().time()
        await self._registry.bring_up(instance, timeout_seconds=left_seconds)

    async def _pause(self, instance: Instance, failure: Exception) -> None:
        """Waits until the next start is due, and says meanwhile why nothing runs."""
        if isinstance(failure, PluginRefused | PluginIncompatible):
            refused = isinstance(failure, PluginRefused)
            state = InstanceState.REFUSED if refused else InstanceState.INCOMPATIBLE
            await self._hold(instance, state, str(failure))
            return
        now = asyncio.get_running_loop().time()
        self._history.crashed(now=now)
        if self._history.is_too_much(now=now):
            await self._hold(instance, InstanceState.FAILED, str(failure))
            return
        self._registry.lose(instance, InstanceState.UNHEALTHY, str(failure))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._history.delay_seconds(now=now)):
                await self._again.wait()
        if self._again.is_set():
            self._history.clear()

    async def _hold(self, instance: Instance, state: InstanceState, reason: str) -> None:
        """Waits until a file of the plugin changes, or somebody asks for another try."""
        self._registry.lose(instance, state, reason)
        before = await asyncio.to_thread(tree_stamp, self.manifest.folder)
        while not self._again.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHANGE_LOOK_SECONDS):
                    await self._again.wait()
            if await asyncio.to_thread(tree_stamp, self.manifest.folder) != before:
                break
        self._history.clear()

    def _launch(self, instance: Instance) -> Launch:
        manifest = self.manifest
        run = manifest.run
        limits = manifest.limits.within(self._around.policy.limits)
        if limits.cpu is not None:
            _log.warning("%s: a limit of processors is not enforced here", manifest.plugin_id)
        python = (sys.executable, "-u", "-m")
        return Launch(
            plugin_id=manifest.plugin_id,
            command=(*python, run.module) if isinstance(run, PythonModule) else run.words,
            folder=manifest.folder,
            environment=child_environment(
                manifest,
                listen=instance.address,
                folders=PrivateFolders.within(self._around.private_base, manifest.plugin_id),
                policy=self._around.policy,
            ),
            limits=limits,
        )


class _AskedToStartAgain(Exception):
    """Not a failure: an operator or a changed manifest wants another process."""


def _with_tail(problem: str, tail: str) -> str:
    return f"{problem}; the last it wrote:\n{tail}" if tail else f"{problem}; it wrote nothing"
