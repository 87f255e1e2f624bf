"""A plugin's process that the kit starts, as the supervisor does: in private folders."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc.aio

from host_service.conformance.attach_bridge import AttachBridge
from host_service.registry.channel import open_channel
from host_service.supervisor import ChildPolicy, PluginManifest, SocketFolder, read_manifest
from host_service.supervisor.child import Child, Exit, Launch
from host_service.supervisor.environment import PrivateFolders
from host_service.supervisor.errors import PluginFailed
from host_service.supervisor.folders import tree_stamp
from host_service.supervisor.guardian import resident_bytes
from host_service.supervisor.interpreter import FindInterpreter, Interpreter, hosts_interpreter
from host_service.supervisor.plugin_launch import interpreter_of, launch_of

_LOOK_SECONDS = 0.02
_STOP_SECONDS = 1.0


class RunnerProcess:
    """The process of a plugin in a folder; it can be started again and again.

    Args:
        folder: The plugin's folder.
        find_interpreter: Which Python it runs in.
        bridge: Where it is to attach; None: it is to listen.

    Raises:
        ManifestInvalid: Its manifest breaks rules.
        SocketPathTooLong: There is no folder for its socket.
    """

    def __init__(
        self,
        folder: Path,
        find_interpreter: FindInterpreter = hosts_interpreter,
        bridge: AttachBridge | None = None,
    ) -> None:
        self._bridge = bridge
        self._find_interpreter = find_interpreter
        self._let_go: Callable[[], None] = lambda: None
        self.manifest: PluginManifest = read_manifest(folder.absolute())
        self.starts = 0
        self._sockets = SocketFolder.create()
        self._runtime = Path(tempfile.mkdtemp(prefix="runmesh-conformance-"))
        self._folders = PrivateFolders.within(self._runtime, self.manifest.plugin_id)
        self._child: Child | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """Where it listens now."""
        return self._address

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._child is not None and not self._child.ended.done()

    @property
    def output(self) -> str:
        """The end of what it wrote."""
        return self._child.tail() if self._child is not None else ""

    @property
    def memory_bytes(self) -> int:
        """Its resident size; 0 where the system does not tell."""
        return resident_bytes(self._running().process_id)

    async def start(self, timeout_seconds: float) -> None:
        """Starts it, and returns when it listens, or is attached.

        Raises:
            PluginFailed: It could not be started, ended by itself, or does not come up.
        """
        await self.stop()
        self.starts += 1
        self._address = f"unix:{self._sockets.new_path()}"
        before = self._bridge.attachments if self._bridge is not None else 0
        interpreter = await asyncio.to_thread(self._interpreter)
        self._let_go = interpreter.hold()
        self._child = await Child.start(self._launch(interpreter))
        try:
            async with asyncio.timeout(timeout_seconds):
                if self._bridge is None:
                    await self._until_listening(self._child)
                else:
                    await self._unless_ended(self._child, self._bridge.attached(None, after=before))
        except TimeoutError as error:
            missed = "listen on RUNMESH_LISTEN" if self._bridge is None else "attach"
            raise PluginFailed(
                f"it did not {missed} in {timeout_seconds:g} s; {self._said()}"
            ) from error

    async def _until_listening(self, child: Child) -> None:
        path = Path(self._address.removeprefix("unix:"))
        while not path.exists():  # noqa: ASYNC240 - a look takes microseconds
            if child.ended.done():
                raise PluginFailed(f"its process {child.ended.result()}; {self._said()}")
            await asyncio.sleep(_LOOK_SECONDS)
        async with open_channel(self._address) as channel:
            await self._unless_ended(child, channel.channel_ready())

    async def _unless_ended(self, child: Child, wanted: Coroutine[Any, Any, object]) -> None:
        waited_for = asyncio.create_task(wanted)
        waiting: set[asyncio.Future[Any]] = {waited_for, child.ended}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waited_for.cancel()
        if child.ended.done():
            raise PluginFailed(f"its process {child.ended.result()}; {self._said()}")

    def _said(self) -> str:
        output = self.output.strip()
        return f"the last it wrote:\n{output}" if output else "it wrote nothing"

    def ask_to_end(self, number: int) -> None:
        """Sends it a signal, and nothing to what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._running().process_id, number)

    async def exit(self, timeout_seconds: float) -> Exit | None:
        """How it ended; None: it has not in this time."""
        ended = self._running().ended
        await asyncio.wait({ended}, timeout=timeout_seconds)
        return ended.result() if ended.done() else None

    async def stop(self) -> None:
        """Ends it and whatever it started."""
        if self._child is not None:
            await self._child.stop(_STOP_SECONDS)
            self._child = None
        self._let_go()
        self._let_go = lambda: None

    async def close(self) -> None:
        """Ends it, and removes its private folders."""
        try:
            await self.stop()
        finally:
            self._sockets.close()
            await asyncio.to_thread(shutil.rmtree, self._runtime, ignore_errors=True)

    async def files_stamp(self) -> tuple[int, int]:
        """A number for the files in its own folder, and one for those in its private ones."""
        return (
            await asyncio.to_thread(tree_stamp, self.manifest.folder),
            await asyncio.to_thread(tree_stamp, self._runtime),
        )

    def open_channel(self) -> grpc.aio.Channel:
        """Another connection to it."""
        return open_channel(self._address)

    def _running(self) -> Child:
        if self._child is None:
            raise PluginFailed("its process was not started")
        return self._child

    def _interpreter(self) -> Interpreter:
        return interpreter_of(self.manifest, self._find_interpreter)

    def _launch(self, interpreter: Interpreter) -> Launch:
        return launch_of(
            self.manifest,
            listen=self._address,
            folders=self._folders,
            policy=ChildPolicy(),
            interpreter=interpreter,
            further=self._bridge.environment if self._bridge is not None else {},
        )
