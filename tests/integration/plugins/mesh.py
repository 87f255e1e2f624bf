"""A registry and a supervisor over a folder of plugins that tests write."""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from host_service.registry import (
    HealthPace,
    HostIdentity,
    Instance,
    InstanceState,
    Registry,
    StaticRunners,
)
from host_service.supervisor import ChildPolicy, DelegatedCgroup, RestartPolicy, Supervisor

IDENTITY = HostIdentity("host", "A host", "0.1.0")
BARE_PLUGIN = Path(__file__).with_name("bare_plugin.py")


def bare(*wrongs: str) -> list[str]:
    """The command of a plugin that serves, except for what is chosen to be wrong."""
    return [sys.executable, "-u", str(BARE_PLUGIN), *wrongs]


def shell(script: str, *arguments: str) -> list[str]:
    """The command of a plugin that is a shell script."""
    return ["/bin/sh", "-c", script, "plugin", *arguments]


def write_plugin(
    base: Path, name: str, command: Sequence[str], *, version: str = "1.0.0", **run: object
) -> Path:
    """Writes the folder of `acme/NAME`."""
    folder = base / name
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "apiVersion": "runmesh/v1",
        "kind": "Plugin",
        "metadata": {"author": "acme", "name": name, "version": version},
        "run": {"command": list(command), **run},
    }
    # In one step, as an editor does it: a half-written manifest is another test's matter.
    (folder / ".manifest").write_text(json.dumps(manifest), "utf-8")
    (folder / ".manifest").rename(folder / "manifest.yaml")
    return folder


class Mesh:
    """A registry and a supervisor, both real.

    Args:
        base: The folder of plugin folders.
        runtime: Where plugins have their homes.
    """

    def __init__(
        self,
        base: Path,
        runtime: Path,
        *,
        health: HealthPace | None = None,
        restart: RestartPolicy | None = None,
        policy: ChildPolicy | None = None,
        folders: Sequence[Path] | None = None,
        settings_of: Callable[[str], str | None] = lambda _plugin_id: None,
        cgroups: DelegatedCgroup | None = None,
    ) -> None:
        self.base = base
        self.runtime = runtime
        self.registry = Registry(identity=IDENTITY, health=health, settings_of=settings_of)
        self.supervisor = Supervisor(
            registry=self.registry,
            folders=[base] if folders is None else folders,
            runtime_folder=runtime,
            policy=policy,
            restart=restart,
            cgroups=cgroups,
        )
        self.static = StaticRunners(registry=self.registry)

    def home(self, name: str) -> Path:
        """The home of `acme/NAME`."""
        return self.runtime / "acme" / name / "home"

    def instance(self, name: str) -> Instance:
        """The one instance of `acme/NAME`."""
        (found,) = [each for each in self.registry.instances() if each.plugin_id == f"acme/{name}"]
        return found

    async def until(
        self,
        name: str,
        wanted: InstanceState | Callable[[Instance], bool],
        *,
        timeout_seconds: float = 10.0,
    ) -> Instance:
        """Waits until the instance of `acme/NAME` is in a state."""

        def is_so(instance: Instance) -> bool:
            return wanted(instance) if callable(wanted) else instance.state is wanted

        async with asyncio.timeout(timeout_seconds):
            while True:
                for instance in self.registry.instances():
                    if instance.plugin_id == f"acme/{name}" and is_so(instance):
                        return instance
                await self.registry.changed()

    async def close(self) -> None:
        """Ends everything."""
        await self.static.close()
        await self.supervisor.stop(grace_seconds=0.5)
        await self.registry.close()
