"""Plugin folders and installers for tests of packages."""

from collections.abc import Callable, Sequence
from pathlib import Path

from host_service.limits import PackageLimits
from host_service.packages.installing import Installer, Mesh, Seen
from host_service.packages.packing import PluginFolder
from host_service.packages.policy import PackagePolicy
from host_service.packages.version_folders import VersionFolders


def write_plugin(folder: Path, *, version: str = "1.0.0", program: str = "#!/bin/sh\n") -> Path:
    """Makes the folder of acme/weather; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.yaml").write_text(
        "apiVersion: runmesh/v1\nkind: Plugin\n"
        f"metadata: {{ author: acme, name: weather, version: {version} }}\n"
        "run: { command: [./run] }\n"
    )
    (folder / "run").write_text(program)
    (folder / "run").chmod(0o755)
    return folder


class NoHost:
    """No host runs."""

    def instances(self, _plugin_id: str) -> Sequence[Seen] | None:
        return None


class Steps:
    """Notes the steps; a test may have one of them fail."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.fail_at: str | None = None
        self.on_step: Callable[[str], None] = lambda _step: None

    def step(self, what: str) -> None:
        self.steps.append(what)
        self.on_step(what)
        if self.fail_at is not None and what.startswith(self.fail_at):
            raise OSError(28, "No space left on device")

    def moved(self, done_bytes: int, all_bytes: int | None) -> None:
        pass


def an_installer(
    data: Path,
    *,
    limits: PackageLimits | None = None,
    mesh: Mesh | None = None,
    steps: Steps | None = None,
    try_plugin: Callable[[PluginFolder], None] = lambda _plugin: None,
    build_environment: Callable[[Path], object] = lambda _folder: None,
) -> Installer:
    """Makes the installer of a data folder."""
    return Installer(
        folders=VersionFolders(data),
        policy=PackagePolicy.read(data),
        build_environment=build_environment,
        try_plugin=try_plugin,
        mesh=mesh or NoHost(),
        progress=steps or Steps(),
        limits=limits or PackageLimits(),
    )
