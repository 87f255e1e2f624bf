"""Installs, upgrades and removes plugins; what fails on the way leaves what was there before.

fetch --> check --> unpack --> build its environment --> try it --> switch --> see it serve
                                                                      ^             |
                                                                      +-- back -----+

Until the switch nothing in `plugins/` has changed, and the version that runs has no part in it. If
a host runs and the new version does not come to serve there, the link is put back.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from host_service.limits import PackageLimits
from host_service.packages.downloading import expected_digest, fetch, is_url, shown
from host_service.packages.errors import (
    ArchiveRefused,
    InstallFailed,
    NotAPlugin,
    NotInstalled,
    PackageError,
)
from host_service.packages.package import Package
from host_service.packages.packing import PluginFolder, pack
from host_service.packages.policy import PackagePolicy
from host_service.packages.version_folders import Installed, Record, VersionFolders

_POLL_SECONDS = 0.1
# The host looks at its folders every second, and gives a process 15 s to become ready.
_SERVING_SECONDS = 30.0
# If nothing of a plugin is there by then, the host does not run it: it may be disabled.
_NOTICED_SECONDS = 8.0
_GONE_SECONDS = 15.0
_NOTHING_CHANGED = "nothing has changed"
_BROKEN = frozenset({"unhealthy", "incompatible", "refused", "failed"})


@dataclass(frozen=True, slots=True)
class Seen:
    """An instance as the running host lists it.

    Attributes:
        process: Names one start of one process; empty before it has one.
        state: In the contract's words, such as `serving`.
        version: The plugin's version, from the handshake.
        reason: Why it does not serve.
    """

    process: str
    state: str
    version: str
    reason: str


class Mesh(Protocol):
    """The host that runs on the data folder, if one does."""

    def instances(self, plugin_id: str, /) -> Sequence[Seen] | None:
        """The plugin's instances; None: no host runs."""


class Progress(Protocol):
    """Is told how far an installation is."""

    def step(self, what: str) -> None:
        """A step begins."""

    def moved(self, done_bytes: int, all_bytes: int | None) -> None:
        """So much of a download has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an installation.

    Attributes:
        plugin_id: `author/name`.
        version: The version that is installed now.
        before: The version that was; empty: none.
        signed_by: Whose trusted signature it has; empty: nobody's.
        is_news: Whether anything changed.
        serves: Whether a running host has it serving; None: no host runs.
    """

    plugin_id: str
    version: str
    before: str
    signed_by: str
    is_news: bool = True
    serves: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Installer:
    """Installs, upgrades and removes the plugins of one data folder.

    Attributes:
        folders: Where they are.
        policy: What packages must be like.
        build_environment: Makes what a plugin needs to run, ahead of its start.
        try_plugin: Runs a plugin for a moment, and raises where it does not serve what it should.
        mesh: The running host, if there is one.
        progress: Is told what happens.
        limits: How large packages may be.
    """

    folders: VersionFolders
    policy: PackagePolicy
    build_environment: Callable[[Path], object]
    try_plugin: Callable[[PluginFolder], None]
    mesh: Mesh
    progress: Progress
    limits: PackageLimits = field(default_factory=PackageLimits)

    def install(self, source: str, *, sha256: str | None = None) -> Outcome:
        """Installs a plugin that is not there yet.

        Args:
            source: A package's file or address, or a plugin's folder.
            sha256: The digest that the package must have.

        Raises:
            PackageError: It was not installed; nothing has changed.
        """
        return self._put_in(source, sha256, is_upgrade=False)

    def upgrade(self, source: str, *, sha256: str | None = None) -> Outcome:
        """Puts another version in the place of an installed one, which runs until that is ready.

        Args:
            source: As for `install`.
            sha256: As for `install`.

        Raises:
            PackageError: It was not upgraded; the version before is there and runs.
        """
        return self._put_in(source, sha256, is_upgrade=True)

    def remove(self, plugin_id: str) -> Installed:
        """Takes a plugin away, waits until a running host has stopped it, and deletes its files.

        Returns:
            What was there.

        Raises:
            NotInstalled: There is no such plugin.
        """
        with self.folders.held(), self.folders.staging() as staging:
            installed = self.folders.find(plugin_id)
            if installed is None:
                raise NotInstalled(f"{plugin_id} is not installed", "'runmesh list' shows what is")
            running = self._processes(plugin_id)
            self.folders.take_away(installed, staging)
            self.progress.step("stopping it")
            deadline = time.monotonic() + _GONE_SECONDS
            # Another folder's plugin of that id may come to serve in its place.
            while running & self._processes(plugin_id) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            self.progress.step("deleting its files")
            self.folders.forget_all(plugin_id)
            return installed

    def _processes(self, plugin_id: str) -> frozenset[str]:
        return frozenset(each.process for each in self.mesh.instances(plugin_id) or ())

    def _put_in(self, source: str, sha256: str | None, *, is_upgrade: bool) -> Outcome:
        try:
            with self.folders.held(), self.folders.staging() as staging:
                package = self._take(source, expected_digest(source, sha256), staging)
                self.progress.step("checking the package")
                signed_by = self.policy.signer(package)
                before = self._before(package, is_upgrade=is_upgrade)
                outcome = Outcome(
                    plugin_id=package.contents.plugin_id,
                    version=package.contents.version,
                    before=before.version if before else "",
                    signed_by=signed_by,
                )
                if before and before.record and before.record.sha256 == package.sha256:
                    return replace(outcome, is_news=False)
                unpacked = self._make_ready(package, staging)
                record = Record(
                    sha256=package.sha256,
                    source=shown(source) if is_url(source) else str(Path(source).absolute()),
                    signed_by=signed_by,
                    installed_at=datetime.now(UTC).isoformat(timespec="seconds"),
                )
                return self._switch(outcome, unpacked, record)
        except OSError as error:
            problem = f"{source} was not installed: {error.strerror or error}"
            raise InstallFailed(problem, _NOTHING_CHANGED) from error
        except PackageError as error:
            if error.advice:
                raise
            raise type(error)(error.problem, _NOTHING_CHANGED) from error

    def _take(self, source: str, sha256: str | None, staging: Path) -> Package:
        """Gets hold of the package, and checks all that can be checked without unpacking."""
        if is_url(source):
            self.progress.step(f"fetching {shown(source)}")
            path = fetch(
                source,
                staging,
                digest_known=sha256 is not None,
                limits=self.limits,
                moved=self.progress.moved,
            )
        elif Path(source).is_dir():
            if sha256 is not None:
                raise NotAPlugin(f"{source} is a folder, which has no digest")
            self.progress.step(f"packing {source}")
            path = pack(PluginFolder.read(Path(source)), staging, limits=self.limits).path
        elif Path(source).is_file():
            path = self._copy(Path(source), staging)
        else:
            raise NotAPlugin(f"{source} is no file, folder or http address")
        package = Package.open(path, limits=self.limits)
        if sha256 is not None and package.sha256 != sha256:
            raise ArchiveRefused(
                f"{path.name} has the SHA-256 {package.sha256}, and should have {sha256}"
            )
        return package

    def _copy(self, package: Path, staging: Path) -> Path:
        """Takes a copy that nobody else can change between its checks and its use."""
        size = package.stat().st_size
        if size > self.limits.package_bytes:
            raise ArchiveRefused(
                f"{package.name} has {size} bytes; the limit is {self.limits.package_bytes}"
            )
        return Path(shutil.copyfile(package, staging / package.name))

    def _before(self, package: Package, *, is_upgrade: bool) -> Installed | None:
        plugin_id = package.contents.plugin_id
        before = self.folders.find(plugin_id)
        if before is None:
            if is_upgrade:
                raise NotInstalled(f"{plugin_id} is not installed", "use 'runmesh install'")
            return None
        if not is_upgrade:
            raise InstallFailed(
                f"{plugin_id} {before.version} is installed already", "use 'runmesh upgrade'"
            )
        if self.folders.current(plugin_id) is None:
            raise InstallFailed(
                f"{plugin_id} is in {before.place}, where somebody put it by hand",
                f"take it away with 'runmesh remove {plugin_id}', and install it",
            )
        return before

    def _make_ready(self, package: Package, staging: Path) -> Path:
        """Unpacks a package, builds its environment, and sees that it runs."""
        self.progress.step("unpacking")
        # Named as the plugin is: messages about its manifest name the folder.
        unpacked = staging / package.contents.plugin_id.partition("/")[2]
        package.unpack(unpacked)
        plugin = PluginFolder.read(unpacked)
        manifest = plugin.manifest
        said, found = package.contents, (manifest.plugin_id, manifest.version)
        if found != (said.plugin_id, said.version):
            raise ArchiveRefused(
                f"{package.path.name} is refused: it says that it is {said.plugin_id} "
                f"{said.version}, and its manifest says {' '.join(found)}"
            )
        self.progress.step("building its environment")
        self.build_environment(unpacked)
        self.progress.step("trying it")
        self.try_plugin(plugin)
        return unpacked

    def _switch(self, outcome: Outcome, unpacked: Path, record: Record) -> Outcome:
        plugin_id = outcome.plugin_id
        before = self.folders.current(plugin_id)
        running = self.mesh.instances(plugin_id)
        place = self.folders.keep(unpacked, plugin_id, outcome.version, record)
        try:
            self.progress.step("switching to it")
            self.folders.switch(plugin_id, place)
            serves = None
            if running is not None:
                self.progress.step("waiting until the host serves it")
                old = frozenset(each.process for each in running)
                serves = self._comes_to_serve(outcome, old)
        except BaseException:
            # Whatever it was, an interrupt by the user included.
            self.folders.switch(plugin_id, before)
            self.folders.forget(place)
            raise
        self.folders.forget_older(plugin_id, keep=(place, before))
        return replace(outcome, serves=serves)

    def _comes_to_serve(self, outcome: Outcome, old: frozenset[str]) -> bool | None:
        """Waits for the host; false: it does not run this plugin at all; None: it has ended."""
        begun = time.monotonic()
        while (waited := time.monotonic() - begun) < _SERVING_SECONDS:
            instances = self.mesh.instances(outcome.plugin_id)
            if instances is None:
                return None
            new = [each for each in instances if each.process not in old]
            if any(each.state == "serving" and each.version == outcome.version for each in new):
                return True
            for each in new:
                if each.state in _BROKEN:
                    raise InstallFailed(
                        f"{outcome.plugin_id} {outcome.version} does not run on the host: "
                        f"{each.reason or each.state}",
                        _what_is_there(outcome),
                    )
            if not instances and waited > _NOTICED_SECONDS:
                return False
            time.sleep(_POLL_SECONDS)
        raise InstallFailed(
            f"{outcome.plugin_id} {outcome.version} did not come to serve on the host within "
            f"{_SERVING_SECONDS:g} s",
            _what_is_there(outcome),
        )


def _what_is_there(outcome: Outcome) -> str:
    return f"{outcome.before} is back" if outcome.before else "it was taken away again"
