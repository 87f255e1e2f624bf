"""Builds the environment of a plugin, before the plugin is started.

    read what it asks for -> is that environment there? -> done
                                  | no
    a workshop folder <- empty environment <- packages: what is here, else the registry
                                  | whole
    renamed to its place under its key

Nothing half built is ever at that place: a builder that fails removes its workshop, and that of a
builder that was killed is removed by the next.
"""

import asyncio
import collections
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from host_service.environments.errors import BuildFailed
from host_service.environments.installers import (
    Installer,
    OnLine,
    Wanted,
    choose_installer,
)
from host_service.environments.repacking import needed_distributions, repack, wheel_name
from host_service.environments.requirements import Requirements, file_digest, package_name
from host_service.environments.sdk import SDK_NAME
from host_service.environments.shelf import (
    DESCRIPTION_NAME,
    HOSTS_OWN,
    Environment,
    EnvironmentShelf,
)
from host_service.supervisor.manifest import PythonModule, read_manifest

# An installer that still runs then waits for something that never comes.
_LIMIT_SECONDS = 1800.0
_TAIL_LINES = 30
# A file with more is a program, not a script.
_SCRIPT_LIMIT_BYTES = 64 * 1024


def _say_nothing(_line: str) -> None:
    """For callers that show no progress."""


async def build(
    plugin_folder: Path,
    data_folder: Path,
    on_line: OnLine = _say_nothing,
    *,
    offline: bool = False,
    installer: Installer | None = None,
) -> Environment:
    """Makes sure that the environment of a plugin is there.

    May be repeated, and be called by several at once: what is there is not built again.

    Args:
        plugin_folder: The plugin, wherever it is: its environment does not depend on that.
        data_folder: Where environments are kept.
        on_line: Called with each line of progress, safe to print.
        offline: Take nothing from the registry.
        installer: What builds it; None: uv when it is there, else pip.

    Returns:
        The environment; the host's own for a plugin that is not in Python or asks for nothing.

    Raises:
        ManifestInvalid: The folder holds no valid plugin.
        RequirementsInvalid: It asks for what cannot be given.
        SdkUnavailable: This installation has no SDK to give.
        BuildFailed: The installer failed; the error has the end of its output.
    """
    manifest = await asyncio.to_thread(read_manifest, plugin_folder)
    if not isinstance(manifest.run, PythonModule):
        return HOSTS_OWN
    shelf = EnvironmentShelf(data_folder)
    requirements = await asyncio.to_thread(shelf.read, plugin_folder)
    environment = await asyncio.to_thread(shelf.find, requirements)
    if environment.is_ready:
        return environment
    try:
        with shelf.workshop() as workshop:
            used = installer or choose_installer(shelf.wheels)
            builder = _Builder(shelf, workshop, used, on_line)
            await builder.build(requirements, environment, online=not offline)
    except OSError as error:
        raise BuildFailed(f"the environment could not be written: {error}") from error
    return environment


class _Builder:
    """One build.

    Args:
        shelf: Where the environment goes.
        workshop: A folder of this build alone.
        installer: What makes the environment.
        on_line: Called with each line of progress.
    """

    def __init__(
        self, shelf: EnvironmentShelf, workshop: Path, installer: Installer, on_line: OnLine
    ) -> None:
        self._shelf = shelf
        self._workshop = workshop
        self._place = workshop / "made"
        self._installer = installer
        self._on_line = on_line

    async def build(
        self, requirements: Requirements, environment: Environment, *, online: bool
    ) -> None:
        try:
            async with asyncio.timeout(_LIMIT_SECONDS):
                wanted = await self._wanted(requirements)
                await self._make(wanted, online=online)
        except TimeoutError as error:
            raise BuildFailed(f"it was not done in {_LIMIT_SECONDS:g} s") from error
        await asyncio.to_thread(self._finish, requirements, environment)

    async def _wanted(self, requirements: Requirements) -> Wanted:
        """Writes down what is wanted, where the installer finds it."""
        sdk = await self._shelf.sdk.wheel(self._shelf.wheels)
        needs = await asyncio.to_thread(self._repacked)
        brought = tuple(dict.fromkeys(wheel.parent for wheel in requirements.wheels))
        constraints = list(requirements.constraints)
        if not any(package_name(wheel.name) == SDK_NAME for wheel in requirements.wheels):
            # Never a package of that name from a registry: the SDK belongs to the host.
            constraints.append(f"{SDK_NAME} @ {sdk.as_uri()}")
        wanted = Wanted(
            requirements=self._workshop / "requirements.txt",
            constraints=self._workshop / "constraints.txt",
            links=(*brought, needs),
            workshop=self._workshop,
        )
        lines = requirements.lines
        if requirements.has_hashes:
            lines = await asyncio.to_thread(_with_sdk_hash, lines, sdk)
        wanted.requirements.write_text("\n".join(lines) + "\n", "utf-8")
        wanted.constraints.write_text("\n".join(constraints) + "\n", "utf-8")
        return wanted

    def _repacked(self) -> Path:
        """A folder with wheels of what the SDK needs, as the host has it."""
        folder = self._shelf.wheels / "host"
        folder.mkdir(exist_ok=True)
        for installed in needed_distributions(SDK_NAME):
            name = wheel_name(installed)
            if not name or (folder / name).exists():
                continue
            # One that lost files since cannot be made again; the registry may have it.
            with contextlib.suppress(FileNotFoundError):
                repack(installed, self._workshop / name)
                (self._workshop / name).replace(folder / name)
        return folder

    async def _make(self, wanted: Wanted, *, online: bool) -> None:
        tail: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
        name = self._installer.name
        if await self._installer.create(self._place, self._teller(tail)) != 0:
            raise BuildFailed(f"{name} could not make an environment", "\n".join(tail))
        if not online:
            if await self._install(wanted, tail, online=False) != 0:
                problem = f"{name} could not install all of it from the wheels that are here"
                raise BuildFailed(problem, "\n".join(tail))
            return
        # Its complaints are not worth showing: that some are not here yet is nothing wrong.
        quiet: collections.deque[str] = collections.deque(maxlen=10_000)
        code = await self._installer.install(self._place, wanted, quiet.append, online=False)
        if code == 0:
            for line in quiet:
                self._on_line(line)
            return
        self._on_line("not all of it is here: asking the registry")
        if await self._install(wanted, tail, online=True) != 0:
            raise BuildFailed(f"{name} could not install what it asks for", "\n".join(tail))

    async def _install(
        self, wanted: Wanted, tail: "collections.deque[str]", *, online: bool
    ) -> int:
        tail.clear()
        teller = self._teller(tail)
        return await self._installer.install(self._place, wanted, teller, online=online)

    def _teller(self, tail: "collections.deque[str]") -> Callable[[str], None]:
        def tell(line: str) -> None:
            tail.append(line)
            self._on_line(line)

        return tell

    def _finish(self, requirements: Requirements, environment: Environment) -> None:
        if environment.folder is None:
            return
        _move_scripts(self._place, environment.folder)
        description = {
            "requirements": requirements.lines,
            "constraints": requirements.constraints,
            "wheels": dict(requirements.digests),
            "python": sys.version.split()[0],
            "installer": self._installer.name,
            "built_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        text = json.dumps(description, ensure_ascii=False, indent=2)
        (self._place / DESCRIPTION_NAME).write_text(text, "utf-8")
        self._shelf.put(self._place, environment)


def _with_sdk_hash(lines: Iterable[str], sdk: Path) -> tuple[str, ...]:
    """Gives the SDK's hash where all must have one: only the host knows it."""
    hashed = f"{SDK_NAME} @ {sdk.as_uri()} --hash=sha256:{file_digest(sdk)}"
    return tuple(hashed if package_name(line) == SDK_NAME else line for line in lines)


def _move_scripts(made: Path, place: Path) -> None:
    """Makes scripts name the interpreter where it will be, not where it was made."""
    before, after = str(made).encode(), str(place).encode()
    for script in (made / "bin").iterdir():
        if script.is_symlink() or script.stat().st_size > _SCRIPT_LIMIT_BYTES:
            continue
        content = script.read_bytes()
        if before in content:
            script.write_bytes(content.replace(before, after))
