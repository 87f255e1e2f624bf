"""What a process of the plugin is started with: its environment, its build, its way to the host."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from host_service.development.process import Recipe
from host_service.environments import BuildFailed, EnvironmentShelf, build
from host_service.environments.interpreters import interpreters_of
from host_service.environments.process import run_installer
from host_service.supervisor import ChildPolicy, PluginManifest, read_manifest
from host_service.supervisor.environment import PrivateFolders, child_environment
from host_service.supervisor.interpreter import Interpreter
from host_service.supervisor.manifest import Command, PythonModule

_HOMES = "development-homes"
# Whoever develops it decides what it sees: what it asks for is given.
_POLICY = ChildPolicy(allowed_env=frozenset({"*"}))


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where somebody works on a plugin.

    Attributes:
        folder: The plugin's folder.
        data_folder: Where its Python environment and its private folders are.
        host_address: The host that it attaches to.
        build_command: Run by the shell before each start; empty: nothing.
    """

    folder: Path
    data_folder: Path
    host_address: str
    build_command: str = ""

    async def manifest(self) -> PluginManifest:
        """Reads the plugin's manifest.

        Raises:
            ManifestInvalid: It breaks rules.
        """
        return await asyncio.to_thread(read_manifest, self.folder)

    async def make(self, on_line: Callable[[str], None]) -> None:
        """Runs the build command.

        Raises:
            BuildFailed: It failed.
        """
        if not self.build_command:
            return
        status = await run_installer(
            ("/bin/sh", "-c", self.build_command),
            folder=self.folder,
            # It is the developer's own command: it sees what it would see in their shell.
            environment=os.environ,
            on_line=on_line,
        )
        if status:
            raise BuildFailed(f"'{self.build_command}' ended with status {status}")

    async def recipe(
        self, manifest: PluginManifest, token: str, on_line: Callable[[str], None]
    ) -> Recipe:
        """What a process of the plugin is started with; makes its Python environment first.

        Args:
            manifest: The plugin.
            token: What it attaches with.
            on_line: Called with each line of progress.

        Raises:
            EnvironmentProblem: It can have no environment.
        """
        environment = child_environment(
            manifest,
            listen="",
            folders=PrivateFolders.within(self.data_folder / _HOMES, manifest.plugin_id),
            policy=_POLICY,
        )
        del environment["RUNMESH_LISTEN"]
        environment |= {
            "RUNMESH_ATTACH": self.host_address,
            "RUNMESH_ATTACH_TOKEN": token,
            "RUNMESH_DEVELOPMENT": "1",
        }
        python = None
        if isinstance(manifest.run, PythonModule):
            await build(self.folder, self.data_folder, on_line)
            interpreter = await asyncio.to_thread(self._interpreter)
            environment = interpreter.complete(environment)
            python = interpreter.python
        return Recipe(
            plugin_id=manifest.plugin_id,
            folder=self.folder,
            environment=environment,
            limits=manifest.limits,
            python=python,
            module=manifest.run.module if isinstance(manifest.run, PythonModule) else "",
            command=manifest.run.words if isinstance(manifest.run, Command) else (),
        )

    @contextmanager
    def held(self, recipe: Recipe) -> Iterator[None]:
        """Keeps the environment of a recipe from being collected meanwhile.

        Raises:
            EnvironmentMissing: It is not there any more.
        """
        if recipe.python is None:
            yield
            return
        release = self._interpreter().hold()
        try:
            yield
        finally:
            release()

    def _interpreter(self) -> Interpreter:
        return interpreters_of(EnvironmentShelf(self.data_folder))(self.folder)
