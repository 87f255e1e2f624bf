"""Makes packages: the same folder gives the same bytes, wherever and whenever it is packed."""

import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from host_service.limits import PackageLimits
from host_service.packages.contents import VERSION, Contents
from host_service.packages.entry_names import check_links, check_names
from host_service.packages.errors import ArchiveRefused, NotAPlugin
from host_service.packages.ignoring import IGNORE_FILE, IgnoreRules
from host_service.packages.package import CONTENTS_NAME, SIGNATURE_NAME, Package
from host_service.packages.signing import Signature, sign
from host_service.packages.zip_reader import ZipReader
from host_service.packages.zip_writer import Item, write_archive
from host_service.supervisor import ManifestInvalid, PluginManifest, read_manifest
from runner_sdk import Manifest, ManifestError


@dataclass(frozen=True, slots=True)
class PluginFolder:
    """A plugin's folder, its manifest and its runners' manifests read.

    Attributes:
        manifest: What its `manifest.yaml` says.
        runners: The manifests of its runners, from their files.
    """

    manifest: PluginManifest
    runners: Manifest

    @property
    def path(self) -> Path:
        """The folder."""
        return self.manifest.folder

    @classmethod
    def read(cls, folder: Path) -> "PluginFolder":
        """Reads a folder's manifest and those of its components.

        Raises:
            NotAPlugin: There is none, or one breaks a rule.
        """
        if not (folder / "manifest.yaml").is_file():
            raise NotAPlugin(
                f"{folder} is no plugin: it has no manifest.yaml", "make one with 'runmesh init'"
            )
        try:
            manifest = read_manifest(folder.absolute())
            # A plugin may describe its runners in its own code alone.
            runners = Manifest.load(folder) if manifest.components else _nothing(manifest)
        except (ManifestInvalid, ManifestError) as error:
            raise NotAPlugin(str(error)) from error
        return cls(manifest, runners)


def pack(
    plugin: PluginFolder,
    target: Path,
    *,
    key: Path | None = None,
    limits: PackageLimits | None = None,
) -> Package:
    """Packs a plugin's folder into a folder, as `NAME-VERSION.rmpkg`.

    Args:
        plugin: The plugin.
        target: The folder for the package; one of that name in it is replaced.
        key: The file of a private key to sign it with.
        limits: How large it may be.

    Raises:
        NotAPlugin: It has what no package can have.
        KeyUnusable: The key's file holds none.
        OSError: The target cannot be written.
    """
    limits = limits or PackageLimits()
    manifest = plugin.manifest
    if not VERSION.fullmatch(manifest.version):
        raise NotAPlugin(
            f"metadata.version must match {VERSION.pattern} to be packed; got {manifest.version!r}"
        )
    items = list(plugin_files(plugin.path, limits=limits))
    contents = Contents.of(manifest.plugin_id, manifest.version, items)
    signature = sign(contents.text(), key) if key else None
    try:
        return _write(target / contents.file_name, contents.text(), signature, items, limits)
    except ArchiveRefused as error:
        raise NotAPlugin(error.problem, error.advice) from error


def sign_package(package: Package, key: Path, *, limits: PackageLimits | None = None) -> Package:
    """Puts a signature into a package, in place of the one it has; returns it as it is now.

    Raises:
        KeyUnusable: The key's file holds none.
        OSError: The file cannot be written.
    """
    limits = limits or PackageLimits()
    signature = sign(package.contents_text, key)
    kinds = {each.name: each.kind for each in package.contents.files}
    with ZipReader(package.path, limits=limits) as reader:
        items = [
            (entry.name, entry.kind, reader.read(entry))
            for entry in reader.entries
            if entry.name in kinds
        ]
    return _write(package.path, package.contents_text, signature, items, limits)


def plugin_files(folder: Path, *, limits: PackageLimits) -> Iterator[Item]:
    """Yields what a folder's package has: name, kind and content of each file, by name.

    Raises:
        NotAPlugin: There is something that no package can have, or too much of it.
    """
    chosen = sorted(_walk(folder, _rules(folder)), key=os.fsencode)
    names = [path.relative_to(folder).as_posix() for path in chosen]
    links = {
        name: os.fspath(path.readlink())
        for name, path in zip(names, chosen, strict=True)
        if path.is_symlink()
    }
    try:
        check_names(names, limits=limits)
        check_links(links, names)
    except ArchiveRefused as error:
        raise NotAPlugin(f"{folder} cannot be packed: {error.problem}") from error
    if sum(path.lstat().st_size for path in chosen) > limits.unpacked_bytes:
        raise NotAPlugin(
            f"{folder} has more than {limits.unpacked_bytes} bytes to pack",
            f"leave files out with {IGNORE_FILE}",
        )
    for name, path in zip(names, chosen, strict=True):
        if name in links:
            yield name, "link", links[name].encode()
        else:
            is_program = path.stat().st_mode & stat.S_IXUSR
            yield name, "program" if is_program else "file", path.read_bytes()


def _nothing(manifest: PluginManifest) -> Manifest:
    return Manifest(manifest.plugin_id, manifest.version, {})


def _rules(folder: Path) -> IgnoreRules:
    try:
        return IgnoreRules((folder / IGNORE_FILE).read_text("utf-8").splitlines())
    except FileNotFoundError:
        return IgnoreRules()
    except (OSError, UnicodeDecodeError) as error:
        raise NotAPlugin(f"{folder / IGNORE_FILE} cannot be read: {error}") from error


def _walk(folder: Path, rules: IgnoreRules, below: str = "") -> Iterator[Path]:
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        path = f"{below}{entry.name}"
        is_folder = entry.is_dir(follow_symlinks=False)
        if rules.leaves_out(path, is_folder=is_folder):
            continue
        if is_folder:
            yield from _walk(Path(entry.path), rules, f"{path}/")
        elif entry.is_symlink() or entry.is_file():
            yield Path(entry.path)
        else:
            raise NotAPlugin(
                f"{entry.path} is neither a file, a folder nor a link",
                f"leave it out with {IGNORE_FILE}",
            )


def _write(
    target: Path,
    contents: bytes,
    signature: Signature | None,
    items: list[Item],
    limits: PackageLimits,
) -> Package:
    """Writes a package beside its place, reads it as a stranger would, and moves it there."""
    own: list[Item] = [(CONTENTS_NAME, "file", contents)]
    if signature is not None:
        own.append((SIGNATURE_NAME, "file", signature.text()))
    with tempfile.TemporaryDirectory(prefix=".runmesh-pack-", dir=target.parent) as workshop:
        written = Path(workshop, target.name)
        write_archive(written, [*own, *items], limits=limits)
        Package.open(written, limits=limits)
        written.replace(target)
    return Package.open(target, limits=limits)
