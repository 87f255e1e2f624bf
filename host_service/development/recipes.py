"""What a process of the plugin is started with: its environment, its build, its way to the host."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from host_service.certificates.files import SYSTEM, DialFiles
from host_service.development.process import Recipe
from host_service.environments import BuildFailed, EnvironmentShelf, build
from host_service.environments.interpreters import interpreters_of
from host_service.environments.process import run_installer
from host_service.supervisor import ChildPolicy, PluginManifest, read_manifest
from host_service.supervisor.environment import PrivateFolders, child_environment
from host_service.supervisor.interpreter import Interpreter
from host_service.supervisor.manifest import Command, PythonModule

#: Which host a plugin's process attaches to, and with which token.
HOST_VARIABLE = "RUNMESH_ATTACH"
TOKEN_VARIABLE = "RUNMESH_ATTACH_TOKEN"  # noqa: S105 - the name of a variable

_HOMES = "development-homes"
# Whoever develops it decides what it sees: what it asks for is given.
_POLICY = ChildPolicy(allowed_env=frozenset({"*"}))


def way_to_host(
    address: str, *, tls: DialFiles | None = None, insecure: bool = False
) -> dict[str, str]:
    """The variables by which a plugin's process finds a host.

    Args:
        address: Where the host is, a gRPC target.
        tls: What the connection trusts and shows; None: without TLS.
        insecure: Whether it may go without TLS to an address that others can listen in on.
    """
    variables = {HOST_VARIABLE: address}
    if insecure:
        variables["RUNMESH_ATTACH_INSECURE"] = "1"
    if tls is not None:
        files = {"HOST_CA": tls.ca, "CERT": tls.certificate, "KEY": tls.key}
        variables |= {
            f"RUNMESH_TLS_{name}": str(file if file == SYSTEM else file.absolute())
            for name, file in files.items()
            if file is not None
        }
    return variables


class Workplace:
    """Where somebody works on a plugin.

    Args:
        folder: The plugin's folder.
        data_folder: Where its Python environment and its private folders are.
        way_to_host: The variables by which a process of it finds the host; see `way_to_host`.
        build_command: Run by the shell before it is started; empty: what its manifest says.
    """

    def __init__(
        self,
        folder: Path,
        *,
        data_folder: Path,
        way_to_host: Mapping[str, str],
        build_command: str = "",
    ) -> None:
        self._folder = folder
        self._data_folder = data_folder
        self._way_to_host = way_to_host
        self._build_command = build_command
        # One for all the time: it remembers what it has read, such as the SDK's digest.
        self._shelf = EnvironmentShelf(data_folder)

    async def manifest(self) -> PluginManifest:
        """Reads the plugin's manifest.

        Raises:
            ManifestInvalid: It breaks rules.
        """
        return await asyncio.to_thread(read_manifest, self._folder)

    async def make(self, on_line: Callable[[str], None]) -> None:
        """Runs the build command.

        Raises:
            ManifestInvalid: The manifest, which has the command, breaks rules.
            BuildFailed: It failed.
        """
        command = self._build_command or await self._command_of_manifest()
        if not command:
            return
        status = await run_installer(
            ("/bin/sh", "-c", command),
            folder=self._folder,
            # It is the developer's own command: it sees what it would see in their shell.
            environment=os.environ,
            on_line=on_line,
        )
        if status:
            raise BuildFailed(f"'{command}' ended with status {status}")

    async def _command_of_manifest(self) -> str:
        run = (await self.manifest()).run
        return run.build if isinstance(run, Command) else ""

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
            folders=PrivateFolders.within(self._data_folder / _HOMES, manifest.plugin_id),
            policy=_POLICY,
        )
        del environment["RUNMESH_LISTEN"]
        environment |= self._way_to_host
        environment |= {TOKEN_VARIABLE: token, "RUNMESH_DEVELOPMENT": "1"}
        python = None
        if isinstance(manifest.run, PythonModule):
            if not await asyncio.to_thread(self._has_environment):
                await build(self._folder, self._data_folder, on_line)
            interpreter = await asyncio.to_thread(self._interpreter)
            environment = interpreter.complete(environment)
            python = interpreter.python
        return Recipe(
            plugin_id=manifest.plugin_id,
            folder=self._folder,
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
        return interpreters_of(self._shelf)(self._folder)

    def _has_environment(self) -> bool:
        return self._shelf.find(self._shelf.read(self._folder)).is_ready
