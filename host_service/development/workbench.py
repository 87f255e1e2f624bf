"""Keeps what somebody works on attached to a host, and starts it again when a file changes.

    files change -> the attempt under way is called off, and the next begins:
        manifest -> environment -> build -> process -> attached ... ended -> again, or
                 any of them fails: told, and the next change is waited for

One process at most runs the plugin, since two could not share what a plugin has for itself, such as
a port. So that the next is quick all the same, a Python plugin's is prepared while the one before
runs: see `process`.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence

import grpc
from runmesh.v1 import discovery_pb2

from host_service.development.host_side import HostSide
from host_service.development.process import DevelopmentProcess, Recipe
from host_service.development.recipes import HOST_VARIABLE, TOKEN_VARIABLE, Workplace
from host_service.development.relay import Relay
from host_service.development.source_files import SourceFiles
from host_service.development.watch import FileWatch
from host_service.environments import EnvironmentProblem
from host_service.supervisor import RestartPolicy, SocketFolder, SupervisorError
from host_service.supervisor.errors import PluginFailed
from host_service.supervisor.restart import CrashHistory

# What a process gets to clean up. Its runs have ended by then: nobody waits for it but the next.
_STOP_SECONDS = 1.0
_LOOK_SECONDS = 0.03
_AWAY_LOOK_SECONDS = 1.0
# Then it is told that the plugin has not attached; it may still.
_LATE_SECONDS = 15.0

Say = Callable[[str], None]


class Workbench:
    """Develops one plugin, until it is cancelled.

    Args:
        workplace: The plugin, and what it needs.
        files: The files of the plugin.
        host: The host's part.
        say: Tells whoever develops it what happens.
    """

    def __init__(
        self, *, workplace: Workplace, files: SourceFiles, host: HostSide, say: Say
    ) -> None:
        self._workplace = workplace
        self._files = files
        self._host = host
        self._say = say
        self._spare: DevelopmentProcess | None = None
        self._changed_at: float | None = None
        self._introduced: set[str] = set()

    async def work(self) -> None:
        """Returns only by being cancelled; everything that was started has ended then.

        Raises:
            grpc.aio.AioRpcError: The host is not there, or refuses, before anything has attached.
            SocketPathTooLong: There is no place for the sockets of processes.
        """
        watch = await asyncio.to_thread(FileWatch, self._files)
        with SocketFolder.create() as sockets:
            try:
                while True:
                    changed = await self._until_changed(watch, sockets)
                    self._changed_at = watch.seen_at
                    await asyncio.to_thread(self._files.forget_compiled, changed)
            finally:
                await self._discard_spare()
                await self._host.revoke()

    async def _until_changed(self, watch: FileWatch, sockets: SocketFolder) -> Sequence[str]:
        """Runs the plugin as it is now; returns what has changed of it, when it has ended."""
        attempt = asyncio.create_task(self._attempt(sockets), name="attempt")
        change = asyncio.create_task(watch.changed(), name="files")
        try:
            await asyncio.wait({attempt, change}, return_when=asyncio.FIRST_COMPLETED)
            if attempt.done():
                attempt.result()
            changed = await change
            self._say(f"{_named(changed)} changed: starting again")
            return changed
        finally:
            for task in (attempt, change):
                task.cancel()
            await asyncio.gather(attempt, change, return_exceptions=True)

    async def _attempt(self, sockets: SocketFolder) -> None:
        """Runs the plugin until it is called off, or of no use until something changes."""
        try:
            await self._workplace.make(self._say)
            await self._keep_running(sockets)
        except (SupervisorError, EnvironmentProblem) as error:
            self._say(str(error))
        except grpc.aio.AioRpcError as error:
            if not self._introduced:
                raise
            self._say(f"the host refuses: {error.details()}")
        self._say("waiting for a change")

    async def _keep_running(self, sockets: SocketFolder) -> None:
        """Runs the process, and starts it again when it crashed in the middle of its work.

        Raises:
            PluginFailed: It ended before it attached, or crashes again and again.
        """
        history = CrashHistory(RestartPolicy())
        now = asyncio.get_running_loop().time
        while True:
            recipe = await self._recipe()
            with self._workplace.held(recipe):
                ended, has_attached = await self._run(recipe, sockets)
            if not has_attached:
                raise PluginFailed(f"its process {ended} before it had attached")
            history.served()
            history.crashed(now=now())
            if history.is_too_much(now=now()):
                raise PluginFailed(f"its process {ended}, again and again")
            delay_seconds = history.delay_seconds(now=now())
            self._say(f"its process {ended}: starting again in {delay_seconds:.1f} s")
            await asyncio.sleep(delay_seconds)
            self._changed_at = None

    async def _recipe(self) -> Recipe:
        manifest = await self._workplace.manifest()
        token = await self._host.token(manifest.plugin_id)
        return await self._workplace.recipe(manifest, token, self._say)

    async def _run(self, recipe: Recipe, sockets: SocketFolder) -> tuple[str, bool]:
        """Runs one process to its end; returns how that was, and whether it had attached."""
        began_at = self._changed_at or time.monotonic()
        known = await self._known(recipe.plugin_id)
        process = await self._start(recipe, sockets)
        following = asyncio.create_task(self._follow(recipe, sockets, known, began_at))
        relaying = asyncio.create_task(self._relay(process))
        try:
            ended = await process.ended()
            has_attached = following.done() and not following.cancelled()
            return str(ended), has_attached
        finally:
            for task in (following, relaying):
                task.cancel()
            await asyncio.gather(following, relaying, return_exceptions=True)
            await process.stop(_STOP_SECONDS)

    async def _known(self, plugin_id: str) -> set[str]:
        try:
            return {each.instance_id for each in await self._host.instances(plugin_id)}
        except grpc.aio.AioRpcError:
            # It is away, and knows nobody when it comes back.
            return set()

    async def _start(self, recipe: Recipe, sockets: SocketFolder) -> DevelopmentProcess:
        spare = self._spare
        if spare is not None and spare.recipe == recipe and not spare.has_ended:
            self._spare = None
            spare.go()
            return spare
        await self._discard_spare()
        return await DevelopmentProcess.start(recipe, place=sockets.new_path())

    async def _discard_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            await spare.stop(0.0)

    async def _relay(self, process: DevelopmentProcess) -> None:
        """Attaches a process that does not do that by itself, again when the host was away."""
        recipe = process.recipe
        if recipe.can_stand_by:
            return
        relay = Relay(
            host=self._host.channel,
            token=recipe.environment[TOKEN_VARIABLE],
            host_address=recipe.environment[HOST_VARIABLE],
            socket=process.socket,
        )
        while True:
            try:
                await relay.run()
            except grpc.aio.AioRpcError as error:
                self._say(f"not attached: {error.details()}")
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    return
            await asyncio.sleep(_AWAY_LOOK_SECONDS)

    async def _follow(
        self, recipe: Recipe, sockets: SocketFolder, known: Collection[str], began_at: float
    ) -> None:
        """Tells when the process has attached, and prepares the next."""
        instance = await self._attached(recipe.plugin_id, known)
        took_seconds = time.monotonic() - began_at
        self._say(f"{recipe.plugin_id} is attached, after {took_seconds:.2f} s")
        await self._introduce(recipe.plugin_id, instance)
        if recipe.can_stand_by and self._spare is None:
            self._spare = await DevelopmentProcess.prepare(recipe, place=sockets.new_path())

    async def _attached(
        self, plugin_id: str, known: Collection[str]
    ) -> discovery_pb2.RunnerInstance:
        late_at = time.monotonic() + _LATE_SECONDS
        is_away = False
        while True:
            try:
                for instance in await self._host.instances(plugin_id):
                    if instance.instance_id not in known:
                        return instance
                is_away = False
            except grpc.aio.AioRpcError as error:
                if not is_away:
                    self._say(f"the host does not answer: {error.details()}")
                is_away = True
            if time.monotonic() > late_at:
                late_at = float("inf")
                self._say(f"it has not attached within {_LATE_SECONDS:.0f} s; waiting on")
            await asyncio.sleep(_AWAY_LOOK_SECONDS if is_away else _LOOK_SECONDS)

    async def _introduce(self, plugin_id: str, instance: discovery_pb2.RunnerInstance) -> None:
        """Tells what is wrong with its manifests, and how to ask runners that are new."""
        try:
            for fault in await self._host.faults(plugin_id):
                self._say(f"left out: {fault}")
            new = set(instance.runner_ids) - self._introduced
            name = plugin_id.partition("/")[2]
            for runner_id, agent_id in (await self._host.agents_for(new, name=name)).items():
                self._say(f"ask {runner_id} with: runmesh chat --agent {agent_id}")
            self._introduced |= new
        except grpc.aio.AioRpcError as error:
            self._say(f"the host could not be asked for an agent: {error.details()}")


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - 1
    return f"{paths[0]} and {more} more" if more else paths[0]
