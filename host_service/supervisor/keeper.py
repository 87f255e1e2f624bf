"""Keeps one plugin running: starts its process, makes it known, starts it again, or gives up.

start --> serving --> over --> pause --> start ...
  |         |                    |
  |         +-- another is needed ----> start beside it --> serving: the one before finishes its
  |                                        |                 runs and is ended
  |                                        +-- failed: listed with why; the one before serves on
  +-- failed ---------------> pause, or held until a file of the plugin changes or somebody asks
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from host_service.registry import (
    FoundBy,
    Instance,
    InstanceState,
    PluginIncompatible,
    PluginRefused,
    Registry,
)
from host_service.supervisor.cgroups import DelegatedCgroup
from host_service.supervisor.child import Launch
from host_service.supervisor.compiled import forget_outdated
from host_service.supervisor.environment import ChildPolicy, PrivateFolders
from host_service.supervisor.errors import EnvironmentMissing, PluginFailed
from host_service.supervisor.folders import files_in, tree_stamp
from host_service.supervisor.interpreter import FindInterpreter, Interpreter
from host_service.supervisor.manifest import PluginManifest, PythonModule
from host_service.supervisor.plugin_launch import interpreter_of, launch_of
from host_service.supervisor.plugin_process import PluginProcess
from host_service.supervisor.restart import CrashHistory, RestartPolicy
from host_service.supervisor.sockets import SocketFolder

_log = logging.getLogger("runmesh.supervisor")

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
        find_interpreter: Which Python a plugin runs in.
        cgroups: Where groups hold the limits of plugins; None: they are held without.
    """

    registry: Registry
    sockets: SocketFolder
    private_base: Path
    policy: ChildPolicy
    restart: RestartPolicy
    find_interpreter: FindInterpreter
    cgroups: DelegatedCgroup | None = None


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
        self._serving: PluginProcess | None = None
        # The start that failed last, listed until the next one.
        self._failed: Instance | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._keep(), name=f"keep {manifest.plugin_id}")

    def change(self, manifest: PluginManifest) -> None:
        """The plugin's folder says something else now: its process is replaced."""
        self.manifest = manifest
        self._again.set()

    def start_again(self) -> None:
        """Starts another process, which replaces the one that serves; ends a pause or a hold."""
        self._again.set()

    async def stop(self, grace_seconds: float | None = None) -> None:
        """Ends its processes and all that they started, and takes the instances off the list."""
        if grace_seconds is not None:
            self._grace_seconds = grace_seconds
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _keep(self) -> None:
        try:
            while True:
                self._again.clear()
                failure = await self._start()
                self.settled.set()
                if self._serving is not None:
                    if failure is not None and not self._again.is_set():
                        self._tell_of_failed_replacement(failure)
                    failure = await self._while_serving(self._serving, files=failure is not None)
                if failure is None or self._again.is_set():
                    self._history.clear()
                elif self._failed is not None:
                    await self._pause(self._failed, failure)
                self._restarts += 1
        except Exception:
            _log.exception("%s is no longer kept", self.manifest.plugin_id)
            raise
        finally:
            self.settled.set()
            await self._end()

    async def _start(self) -> Exception | None:
        """Starts another process, in the place of the one that serves; returns why it failed."""
        instance = self._failed = self._registry.add(
            plugin_id=self.manifest.plugin_id,
            found_by=FoundBy.FOLDER,
            address=f"unix:{self._around.sockets.new_path()}",
            restarts=self._restarts,
            replaces=self._failed,
        )
        process: PluginProcess | None = None
        try:
            # In a thread: the plugin may bring large wheels, which its environment depends on.
            interpreter = await asyncio.to_thread(self._prepare)
            process = await PluginProcess.start(
                self._launch(instance, interpreter),
                instance,
                self._registry,
                release=interpreter.hold(),
            )
            await self._unless_asked(process.come_up(self._around.restart.ready_timeout_seconds))
        except (PluginFailed, PluginRefused, PluginIncompatible, OSError, _AskedAgain) as error:
            return error
        else:
            self._take_over(process)
            return None
        finally:
            if process is not None and process is not self._serving:
                await process.stop(self._grace_seconds)

    def _take_over(self, process: PluginProcess) -> None:
        """The new process takes the runs; the one before it finishes those it has."""
        self._failed = None
        self._history.served()
        before, self._serving = self._serving, process
        if before is not None:
            farewell = asyncio.create_task(
                self._see_off(before), name=f"see off {self.manifest.plugin_id}"
            )
            self._leaving.add(farewell)
            farewell.add_done_callback(self._leaving.discard)

    async def _see_off(self, process: PluginProcess) -> None:
        self._registry.drain(process.instance, "another process of the plugin took its place")
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._around.restart.drain_seconds):
                    await _first_of(process.instance.idle.wait(), process.is_over())
        finally:
            try:
                await process.stop(self._grace_seconds)
            finally:
                self._registry.remove(process.instance)

    async def _while_serving(self, process: PluginProcess, *, files: bool) -> Exception | None:
        """Waits for the end of the process, and returns why; or until another is needed: None.

        Args:
            process: The process that serves.
            files: Whether a file of the plugin that changes asks for another, too.
        """
        changes = (self._file_changed(),) if files else ()
        silence = self._silent_for_long(process.instance)
        await _first_of(process.is_over(), self._again.wait(), silence, *changes)
        if not process.over.done():
            return None
        self._serving = None
        replacement, self._failed = self._failed, process.instance
        await process.stop(self._grace_seconds)
        if replacement is not None:
            self._registry.remove(replacement)
        return process.over.result()

    async def _silent_for_long(self, instance: Instance) -> None:
        """Returns when an instance has not answered for long."""
        long_seconds = self._around.restart.silence_seconds
        # Not at once, even if it is silent: a replacement may just have failed.
        await asyncio.sleep(long_seconds)
        while True:
            silent_seconds = (datetime.now(UTC) - instance.since).total_seconds()
            is_silent = instance.state is InstanceState.UNHEALTHY
            # One after the other: those that are busy for minutes must not become many.
            if is_silent and silent_seconds >= long_seconds and not self._leaving:
                _log.warning("%s does not answer: another is started", instance.plugin_id)
                return
            await asyncio.sleep(min(_CHANGE_LOOK_SECONDS, long_seconds))

    async def _unless_asked(self, wanted: Coroutine[None, None, object]) -> None:
        """Awaits something, but no longer than until another process is asked for.

        Raises:
            _AskedAgain: It was.
        """
        task = asyncio.create_task(wanted)
        try:
            await _first_of(_ended(task), self._again.wait())
            if not task.done():
                raise _AskedAgain
            task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _tell_of_failed_replacement(self, failure: Exception) -> None:
        if self._failed is not None:
            reason = f"it could not take the place of the one that serves on: {failure}"
            self._registry.lose(self._failed, _state_after(failure), reason)

    async def _pause(self, instance: Instance, failure: Exception) -> None:
        """Waits until the next start is due, and says meanwhile why nothing runs."""
        if isinstance(failure, PluginRefused | PluginIncompatible | EnvironmentMissing):
            await self._hold(instance, failure)
            return
        now = asyncio.get_running_loop().time()
        self._history.crashed(now=now)
        if self._history.is_too_much(now=now):
            await self._hold(instance, failure)
            return
        self._registry.lose(instance, InstanceState.UNHEALTHY, str(failure))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._history.delay_seconds(now=now)):
                await self._again.wait()
        if self._again.is_set():
            self._history.clear()

    async def _hold(self, instance: Instance, failure: Exception) -> None:
        """Waits until a file or the environment changes, or somebody asks for another try."""
        self._registry.lose(instance, _state_after(failure), str(failure))
        await _first_of(self._again.wait(), self._file_changed())
        self._history.clear()

    async def _file_changed(self) -> None:
        before = await asyncio.to_thread(self._look)
        while True:
            await asyncio.sleep(_CHANGE_LOOK_SECONDS)
            if await asyncio.to_thread(self._look) != before:
                return

    def _look(self) -> tuple[int, bool]:
        """What changes when a file does, or when the environment is built that was missing."""
        folder = self.manifest.folder
        try:
            is_there = self._interpreter().python.exists()
        except EnvironmentMissing:
            is_there = False
        return tree_stamp(folder), is_there

    def _interpreter(self) -> Interpreter:
        return interpreter_of(self.manifest, self._around.find_interpreter)

    def _prepare(self) -> Interpreter:
        """Finds the Python for a start, which is not to run what it compiled of older sources."""
        if isinstance(self.manifest.run, PythonModule):
            forget_outdated(files_in(self.manifest.folder))
        return self._interpreter()

    async def _end(self) -> None:
        """Ends whatever runs, all at once."""
        for farewell in self._leaving:
            farewell.cancel()
        if self._serving is not None:
            await self._serving.stop(self._grace_seconds)
            self._registry.remove(self._serving.instance)
        if self._failed is not None:
            self._registry.remove(self._failed)
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def _launch(self, instance: Instance, interpreter: Interpreter) -> Launch:
        around = self._around
        return launch_of(
            self.manifest,
            listen=instance.address,
            folders=PrivateFolders.within(around.private_base, self.manifest.plugin_id),
            policy=around.policy,
            interpreter=interpreter,
            cgroups=around.cgroups,
        )


class _AskedAgain(Exception):
    """Not a failure: an operator or a changed manifest wants another process."""


def _state_after(failure: Exception) -> InstanceState:
    """How an instance is listed that is not started again by itself."""
    if isinstance(failure, PluginRefused):
        return InstanceState.REFUSED
    if isinstance(failure, PluginIncompatible):
        return InstanceState.INCOMPATIBLE
    return InstanceState.FAILED


async def _first_of(*wanted: Coroutine[None, None, object]) -> None:
    """Returns as soon as one of these does; the others are called off."""
    tasks = [asyncio.create_task(each) for each in wanted]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ended(task: asyncio.Task[object]) -> None:
    """Returns when a task has ended, however that was."""
    await asyncio.wait({task})
