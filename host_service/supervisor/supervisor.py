"""Starts the plugins in some folders, and keeps up with what happens in those."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from host_service.registry import Registry
from host_service.supervisor.cgroups import DelegatedCgroup
from host_service.supervisor.environment import ChildPolicy
from host_service.supervisor.errors import ManifestInvalid
from host_service.supervisor.folders import PluginFolders
from host_service.supervisor.interpreter import FindInterpreter, hosts_interpreter
from host_service.supervisor.keeper import PluginKeeper, Surroundings
from host_service.supervisor.manifest import PluginManifest
from host_service.supervisor.restart import RestartPolicy
from host_service.supervisor.sockets import SocketFolder

_log = logging.getLogger("runmesh.supervisor")

_SCAN_SECONDS = 1.0


class Supervisor:
    """The processes of all plugin folders, each with a keeper of its own: none waits for another.

    Args:
        registry: Where instances are listed.
        folders: Folders of plugin folders. Of two plugins with one id, the one in the later is
            used.
        runtime_folder: Below it each plugin has its private home; made with mode 0700.
        disabled: Ids of plugins that are not started.
        policy: What plugins may have of the host.
        restart: When they are started again.
        find_interpreter: Which Python a plugin runs in; by default the host's own.
        sockets: Where they listen; None: a new private folder, removed when the supervisor stops.
        cgroups: Where groups hold the limits of plugins; None: they are held without.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        folders: Sequence[Path],
        runtime_folder: Path,
        disabled: Iterable[str] = (),
        policy: ChildPolicy | None = None,
        restart: RestartPolicy | None = None,
        find_interpreter: FindInterpreter = hosts_interpreter,
        sockets: SocketFolder | None = None,
        cgroups: DelegatedCgroup | None = None,
    ) -> None:
        self._registry = registry
        self._folders = PluginFolders(folders)
        self._runtime_folder = runtime_folder
        self._disabled = frozenset(disabled)
        self._policy = policy or ChildPolicy()
        self._restart = restart or RestartPolicy()
        self._find_interpreter = find_interpreter
        self._own_sockets = sockets is None
        self._sockets = sockets
        self._cgroups = cgroups
        self._keepers: dict[str, PluginKeeper] = {}
        self._reported: set[Path] = set()
        self._farewells: set[asyncio.Task[None]] = set()
        self._applying = asyncio.Lock()
        self._scanning: asyncio.Task[None] | None = None
        self._surroundings: Surroundings | None = None

    async def start(self) -> None:
        """Starts every plugin, and returns without waiting for any.

        Raises:
            SocketPathTooLong: There is no folder for their sockets.
        """
        self._sockets = self._sockets or SocketFolder.create()
        surroundings = Surroundings(
            registry=self._registry,
            sockets=self._sockets,
            private_base=self._runtime_folder,
            policy=self._policy,
            restart=self._restart,
            find_interpreter=self._find_interpreter,
            cgroups=self._cgroups,
        )
        self._surroundings = surroundings
        await self._apply(surroundings)
        self._scanning = asyncio.create_task(self._follow(surroundings), name="plugin folders")

    async def settled(self, timeout_seconds: float | None = None) -> bool:
        """Waits until the first start of every plugin has succeeded or failed.

        Returns:
            Whether that was so in time.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                for keeper in list(self._keepers.values()):
                    await keeper.settled.wait()
        except TimeoutError:
            return False
        return True

    def restart(self, plugin_id: str) -> bool:
        """Starts a plugin again: at once if it is held or waits, by ending its process if it runs.

        Returns:
            Whether there is such a plugin.
        """
        keeper = self._keepers.get(plugin_id)
        if keeper is not None:
            keeper.start_again()
        return keeper is not None

    async def set_disabled(self, plugin_ids: Iterable[str]) -> None:
        """Stops the plugins that are disabled now, and starts those that no longer are."""
        self._disabled = frozenset(plugin_ids)
        if self._surroundings is not None:
            await self._apply(self._surroundings)

    async def stop(self, grace_seconds: float = 5.0) -> None:
        """Ends every plugin's process, all at once, and returns when nothing of them is left."""
        if self._scanning is not None:
            self._scanning.cancel()
            await asyncio.wait({self._scanning})
        for plugin_id in list(self._keepers):
            self._let_go(plugin_id, grace_seconds)
        await asyncio.gather(*self._farewells)
        if self._own_sockets and self._sockets is not None:
            self._sockets.close()
            self._sockets = None

    async def _follow(self, surroundings: Surroundings) -> None:
        while True:
            await asyncio.sleep(_SCAN_SECONDS)
            try:
                await self._apply(surroundings)
            except OSError as error:
                # A folder that cannot be read for a while costs no plugin that runs.
                _log.warning("plugin folders could not be read: %s", error)

    async def _apply(self, surroundings: Surroundings) -> None:
        """Makes the running plugins those that the folders hold now."""
        async with self._applying:
            found = await asyncio.to_thread(self._folders.scan)
            self._report(found)
            wanted = self._choose(found)
        for plugin_id in self._keepers.keys() - wanted.keys():
            self._let_go(plugin_id, self._restart.stop_grace_seconds)
        for plugin_id, manifest in wanted.items():
            keeper = self._keepers.get(plugin_id)
            if keeper is None:
                self._keepers[plugin_id] = PluginKeeper(manifest, surroundings)
            elif keeper.manifest != manifest:
                keeper.change(manifest)

    def _let_go(self, plugin_id: str, grace_seconds: float) -> None:
        """Stops a plugin behind everybody's back, so that no other waits for its end."""
        farewell = asyncio.create_task(self._keepers.pop(plugin_id).stop(grace_seconds))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)

    def _choose(
        self, found: Mapping[Path, PluginManifest | ManifestInvalid]
    ) -> dict[str, PluginManifest]:
        """Which plugins to run: a later folder wins, a broken manifest changes nothing."""
        running = {keeper.manifest.folder: keeper.manifest for keeper in self._keepers.values()}
        wanted: dict[str, PluginManifest] = {}
        for folder, manifest in found.items():
            valid = running.get(folder) if isinstance(manifest, ManifestInvalid) else manifest
            if valid is not None and valid.plugin_id not in self._disabled:
                wanted[valid.plugin_id] = valid
        return wanted

    def _report(self, found: Mapping[Path, PluginManifest | ManifestInvalid]) -> None:
        for folder in self._reported - found.keys():
            self._registry.report_faults(str(folder), ())
        for folder, manifest in found.items():
            faults = manifest.faults if isinstance(manifest, ManifestInvalid) else ()
            self._registry.report_faults(str(folder), faults)
        self._reported = set(found)
