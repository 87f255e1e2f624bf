"""A plugin's manifest, and those of its runners: YAML files beside the code.

`manifest.yaml` says which plugin it is and lists its components; each component of kind
AgentRunner has the fields of the contract's RunnerManifest, except its id, which follows from the
plugin and the component's name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runmesh.v1.manifest_pb2 import RunnerCapabilities, RunnerManifest, RunnerPermissions

from runner_sdk._manifest_fields import Place, fill, mapping, text
from runner_sdk._manifest_rules import check_runner
from runner_sdk.errors import ManifestError

API_VERSION = "runmesh/v1"
PROTOCOL_VERSION = "1"
FILE_NAME = "manifest.yaml"

_PART = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a plugin is, and what its runners are.

    Attributes:
        plugin_id: `author/name`.
        version: The plugin's version.
        runners: The runners' manifests, by name: the last part of their id.
        file: Where it was read, for errors.
    """

    plugin_id: str
    version: str
    runners: Mapping[str, RunnerManifest]
    file: str = "manifest"

    @classmethod
    def load(cls, path: str | Path) -> "Manifest":
        """Reads a plugin's manifest and those of its runners.

        Args:
            path: `manifest.yaml`, or the folder it is in.

        Raises:
            ManifestError: A file cannot be read, or breaks a rule.
        """
        file = Path(path)
        if file.is_dir():
            file /= FILE_NAME
        place = Place(str(file))
        values = _read(file, kind="Plugin")
        metadata = mapping(values.get("metadata"), place.at("metadata"))
        author = _part(metadata, "author", place.at("metadata"))
        name = _part(metadata, "name", place.at("metadata"))
        version = _version(metadata, place.at("metadata"))
        runners: dict[str, RunnerManifest] = {}
        for component in _components(values, file, place.at("components")):
            runner = _runner(component, plugin_id=f"{author}/{name}", version=version)
            if runner is None:
                continue
            if runner.name in runners:
                raise Place(str(component), "metadata.name").error(
                    f"{runner.name!r} is the name of another component: give each its own"
                )
            runners[runner.name] = runner
        return cls(f"{author}/{name}", version, runners, str(file))

    @classmethod
    def find(cls, source: str | Path) -> "Manifest":
        """Reads the manifest of the plugin that a source file belongs to: the nearest one above it.

        Raises:
            ManifestError: There is none, or it breaks a rule.
        """
        start = Path(source).resolve()
        for folder in start.parents:
            if (folder / FILE_NAME).is_file():
                return cls.load(folder / FILE_NAME)
        raise ManifestError(
            file=str(start), field="", rule=f"there is no {FILE_NAME} in a folder above it"
        )

    @classmethod
    def minimal(
        cls,
        plugin_id: str,
        *names: str,
        version: str = "0.0.0",
        permissions: RunnerPermissions | None = None,
        capabilities: RunnerCapabilities | None = None,
    ) -> "Manifest":
        """Makes a manifest without files, for tests.

        Args:
            plugin_id: `author/name`.
            *names: The runners' names. None: `default`.
            version: The plugin's version.
            permissions: What the runners ask for. None: everything but actions, whose names are
                the platform's.
            capabilities: What the runners can do. None: everything, and sessions keep no state.
        """
        runners = {}
        for name in names or ("default",):
            runner = RunnerManifest(
                id=f"plugin:{plugin_id}/{name}",
                name=name,
                protocol_version=PROTOCOL_VERSION,
                version=version,
                permissions=_everything() if permissions is None else permissions,
                capabilities=_every_ability() if capabilities is None else capabilities,
            )
            runner.label.text["en_US"] = name
            runners[name] = runner
        return cls(plugin_id, version, runners)


def _everything() -> RunnerPermissions:
    permissions = RunnerPermissions()
    for field in permissions.DESCRIPTOR.fields:
        if field.enum_type is not None:
            numbers = [entry.number for entry in field.enum_type.values if entry.number]
            getattr(permissions, field.name).extend(numbers)
    return permissions


def _every_ability() -> RunnerCapabilities:
    capabilities = RunnerCapabilities()
    for field in capabilities.DESCRIPTOR.fields:
        setattr(capabilities, field.name, field.name != "stateful_session")
    return capabilities


def _read(file: Path, *, kind: str | None) -> dict[str, Any]:
    from runner_sdk._yaml import read_yaml

    place = Place(str(file))
    values = mapping(read_yaml(file), place)
    if values.get("apiVersion") != API_VERSION:
        raise place.at("apiVersion").error(
            f"must be {API_VERSION}, is {values.get('apiVersion')!r}"
        )
    if kind is not None and values.get("kind") != kind:
        raise place.at("kind").error(f"must be {kind}, is {values.get('kind')!r}")
    return values


def _part(values: Mapping[str, Any], name: str, place: Place) -> str:
    value = text(values, name, place)
    if not _PART.fullmatch(value):
        raise place.at(name).error(f"must match {_PART.pattern}, is {value!r}")
    return value


def _version(values: Mapping[str, Any], place: Place, default: str | None = None) -> str:
    version = text(values, "version", place, default=default)
    if len(version.encode()) > 64:
        raise place.at("version").error(f"has {len(version.encode())} bytes; the limit is 64")
    return version


def _components(values: Mapping[str, Any], file: Path, place: Place) -> Iterable[Path]:
    listed = values.get("components")
    if not isinstance(listed, list):
        raise place.error("must be a list of files")
    folder = file.parent.resolve()
    for index, entry in enumerate(listed):
        if not isinstance(entry, str) or not (folder / entry).resolve().is_relative_to(folder):
            raise place.item(index).error(f"must be a file in the plugin's folder, is {entry!r}")
        yield folder / entry


def _runner(file: Path, *, plugin_id: str, version: str) -> RunnerManifest | None:
    """Reads a component; None where it is of another kind than AgentRunner."""
    values = _read(file, kind=None)
    if values.pop("kind", None) != "AgentRunner":
        return None
    del values["apiVersion"]
    place = Place(str(file))
    metadata = mapping(values.pop("metadata", None), place.at("metadata"))
    inside = place.at("metadata")
    name = _part(metadata, "name", inside)
    runner = RunnerManifest(
        id=f"plugin:{plugin_id}/{name}",
        name=name,
        protocol_version=PROTOCOL_VERSION,
        version=_version(metadata, inside, default=version),
    )
    head = {key: entry for key, entry in metadata.items() if key not in {"name", "version"}}
    for field in ("label", "description", "notes"):
        if field in head:
            target = "metadata" if field == "notes" else field
            fill(runner, {target: head.pop(field)}, inside)
    if head:
        unknown = next(iter(head))
        raise inside.at(unknown).error(
            "there is no such field; there are name, version, label, description, notes"
        )
    for field in ("id", "name", "label", "description", "protocol_version", "version"):
        if field in values:
            raise place.at(field).error("belongs into `metadata`, or follows from it")
    fill(runner, values, place)
    check_runner(runner, place)
    return runner
