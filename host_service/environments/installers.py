"""What makes an environment: uv when it is there, else venv and pip.

Both are told the same: a flat list of requirements, bounds, and folders with wheels. Both try with
what is here first, and go to the operator's registry only when that is not enough.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from host_service.environments.errors import BuildFailed
from host_service.environments.process import run_installer

_GIVEN = frozenset(
    {
        *("PATH", "LANG", "TZ", "HOME", "XDG_CONFIG_HOME", "NETRC"),
        # How the registry is reached.
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
        # Which registry it is: the operator's choice, made for pip or for uv.
        *("PIP_CERT", "PIP_CLIENT_CERT", "PIP_CONFIG_FILE", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES"),
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_PROXY"),
        *("PIP_TRUSTED_HOST",),
        *("UV_CONFIG_FILE", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"),
        *("UV_FIND_LINKS", "UV_NO_INDEX", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_NATIVE_TLS"),
        *("UV_SYSTEM_CERTS", "UV_INSECURE_HOST", "UV_INDEX_STRATEGY", "UV_OFFLINE"),
    }
)
_GIVEN_PREFIX = "LC_"

OnLine = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What shall be in an environment.

    Attributes:
        requirements: A file of requirements.
        constraints: A file of bounds.
        links: Folders of wheels that may be used.
        workshop: A folder for what need not be kept; removed after the build.
    """

    requirements: Path
    constraints: Path
    links: tuple[Path, ...]
    workshop: Path

    def arguments(self) -> list[str]:
        """What pip and uv are told alike."""
        links = [word for folder in self.links for word in ("--find-links", str(folder))]
        return ["-r", str(self.requirements), "-c", str(self.constraints), *links]


class Installer(Protocol):
    """Makes environments."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    async def create(self, place: Path, on_line: OnLine) -> int:
        """Makes an empty environment of this host's Python; returns an exit code."""
        ...

    async def install(self, place: Path, wanted: Wanted, on_line: OnLine, *, online: bool) -> int:
        """Puts packages in it; returns an exit code.

        Args:
            place: The environment.
            wanted: The packages.
            on_line: Called with each line of output.
            online: Ask the registry for what is not here, and keep that for the next time.
        """
        ...


@dataclass(frozen=True, slots=True)
class Uv:
    """uv, with a cache in the data folder.

    Attributes:
        program: Where it is.
        cache: Its cache.
        environment: The environment of its process.
    """

    program: str
    cache: Path
    environment: Mapping[str, str]
    name: str = "uv"

    async def create(self, place: Path, on_line: OnLine) -> int:
        """See `Installer`."""
        return await self._run(place, ["venv", "--python", sys.executable, str(place)], on_line)

    async def install(self, place: Path, wanted: Wanted, on_line: OnLine, *, online: bool) -> int:
        """See `Installer`."""
        command = ["pip", "install", "--python", str(python_of(place))]
        command += wanted.arguments()
        return await self._run(place, command + ([] if online else ["--offline"]), on_line)

    async def _run(self, place: Path, arguments: Sequence[str], on_line: OnLine) -> int:
        return await run_installer(
            [self.program, *arguments, "--no-progress", "--no-python-downloads"],
            # Not the plugin's folder: its files shall not configure the installer.
            folder=place.parent,
            environment={**self.environment, "UV_CACHE_DIR": str(self.cache), "NO_COLOR": "1"},
            on_line=on_line,
        )


@dataclass(frozen=True, slots=True)
class Pip:
    """venv and pip, with a folder of wheels that came from the registry.

    Attributes:
        kept: The folder.
        environment: The environment of its process.
    """

    kept: Path
    environment: Mapping[str, str]
    name: str = "pip"

    async def create(self, place: Path, on_line: OnLine) -> int:
        """See `Installer`."""
        # pip of the host works on other environments; where it has none, each gets its own.
        without = ["--without-pip"] if _host_has_pip() else []
        command = [sys.executable, "-I", "-m", "venv", *without, str(place)]
        return await self._run(place, command, on_line)

    async def install(self, place: Path, wanted: Wanted, on_line: OnLine, *, online: bool) -> int:
        """See `Installer`."""
        self.kept.mkdir(exist_ok=True)
        if not online:
            arguments = [*wanted.arguments(), "--find-links", str(self.kept)]
            return await self._install(place, arguments, on_line)
        fetched = wanted.workshop / "fetched"
        command = [*self._pip(place), "wheel", "--progress-bar", "off", "--wheel-dir", str(fetched)]
        command += [*wanted.arguments(), "--find-links", str(self.kept)]
        code = await self._run(place, command, on_line)
        if code != 0:
            return code
        # The same choice again, of nothing but what was chosen.
        arguments = ["-r", str(wanted.requirements), "-c", str(wanted.constraints)]
        code = await self._install(place, [*arguments, "--find-links", str(fetched)], on_line)
        if code == 0:
            self._keep(fetched, wanted.links)
        return code

    async def _install(self, place: Path, arguments: Sequence[str], on_line: OnLine) -> int:
        command = [*self._pip(place), "install", "--no-index", "--progress-bar", "off", *arguments]
        return await self._run(place, command, on_line)

    def _keep(self, fetched: Path, links: Sequence[Path]) -> None:
        """Keeps what came from the registry; never what a plugin brought under some name."""
        brought = {wheel.name for folder in links for wheel in folder.glob("*.whl")}
        for wheel in fetched.glob("*.whl"):
            if wheel.name not in brought:
                wheel.replace(self.kept / wheel.name)

    def _pip(self, place: Path) -> list[str]:
        if _host_has_pip():
            command = [sys.executable, "-I", "-m", "pip", "--python", str(python_of(place))]
        else:
            command = [str(python_of(place)), "-I", "-m", "pip"]
        return [*command, "--disable-pip-version-check", "--no-input", "--no-color"]

    async def _run(self, place: Path, command: Sequence[str], on_line: OnLine) -> int:
        return await run_installer(
            command, folder=place.parent, environment=self.environment, on_line=on_line
        )


def choose_installer(kept: Path, host: Mapping[str, str] = os.environ) -> Installer:
    """Chooses uv when it is on the path or beside this Python, else venv and pip.

    Args:
        kept: The folder where wheels are kept.
        host: The environment of this process. Installers get what they need to reach a registry,
            and nothing else of it.

    Raises:
        BuildFailed: There is neither.
    """
    environment = {
        name: value
        for name, value in host.items()
        if name in _GIVEN or name.startswith(_GIVEN_PREFIX)
    }
    chosen = host.get("RUNMESH_INSTALLER", "")
    beside = Path(sys.executable).with_name("uv")
    uv = shutil.which("uv", path=host.get("PATH")) or shutil.which(str(beside))
    if uv and chosen != "pip":
        return Uv(uv, kept / "uv", environment)
    if chosen == "uv":
        raise BuildFailed("RUNMESH_INSTALLER asks for uv, which is not there: install it")
    if not _host_has_pip() and importlib.util.find_spec("ensurepip") is None:
        raise BuildFailed("neither uv nor pip is there: install uv, or Python's ensurepip")
    return Pip(kept / "fetched", environment)


def python_of(place: Path) -> Path:
    """The interpreter of an environment."""
    return place / "bin" / "python"


def _host_has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None
