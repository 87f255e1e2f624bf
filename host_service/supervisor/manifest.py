"""A plugin folder's `manifest.yaml`: read, and every rule it breaks named."""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, TypeVar

import yaml

from host_service.registry import ManifestFault
from host_service.supervisor.errors import ManifestInvalid

_log = logging.getLogger("runmesh.supervisor")

MANIFEST_NAME = "manifest.yaml"

_API_VERSION = "runmesh/v1"
_KIND = "Plugin"
_LIMIT_BYTES = 64 * 1024
_ID_PART = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|KB|MB|GB|KiB|MiB|GiB)?")
_UNITS = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}

_N = TypeVar("_N", int, float)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may use; None: no limit.

    Attributes:
        open_files: Open descriptors of one process.
        cpu: Processors, such as 2. What it starts has the same ones; a part of one counts as one.
        memory_bytes: Resident size of all its processes together.
    """

    open_files: int | None = None
    cpu: float | None = None
    memory_bytes: int | None = None

    def within(self, other: "Limits") -> "Limits":
        """The smaller of each limit of the two."""
        return Limits(
            open_files=_least(self.open_files, other.open_files),
            cpu=_least(self.cpu, other.cpu),
            memory_bytes=_least(self.memory_bytes, other.memory_bytes),
        )


@dataclass(frozen=True, slots=True)
class PythonModule:
    """A plugin that is a Python module, run with `-m` in the plugin's folder."""

    module: str


@dataclass(frozen=True, slots=True)
class Command:
    """A plugin that is any program.

    Attributes:
        words: The program's path or name, and its arguments.
        build: What makes the program, for the shell in the plugin's folder; empty: nothing. It is
            for whoever works on the plugin: `runmesh dev`, `test` and `pack` run it, a host never.
        test: What runs the plugin's own tests, in the same way; empty: it has none.
    """

    words: tuple[str, ...]
    build: str = ""
    test: str = ""


@dataclass(frozen=True, slots=True)
class PluginManifest:
    """What a plugin's folder says of it.

    Attributes:
        folder: The plugin's folder, in which its process runs.
        author: Who made it.
        name: Its name among its author's plugins.
        version: Its version.
        label: The name that people read, by locale.
        run: How its process is started.
        env: Names of variables of the host's environment that it asks for.
        limits: What it may use at most.
        components: Files within the folder that describe its components.
    """

    folder: Path
    author: str
    name: str
    version: str
    run: PythonModule | Command
    label: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    env: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    components: tuple[str, ...] = ()

    @property
    def plugin_id(self) -> str:
        """`author/name`."""
        return f"{self.author}/{self.name}"


def read_manifest(folder: Path) -> PluginManifest:
    """Reads a plugin folder's manifest.

    Raises:
        ManifestInvalid: It cannot be read, or breaks rules; all of them are named.
    """
    reader = _Reader(folder)
    document = reader.section(reader.parse(), "", _TOP_LEVEL)
    if not reader.broken:
        manifest = reader.manifest(document)
        if not reader.broken:
            return manifest
        if _ID_PART.fullmatch(manifest.author) and _ID_PART.fullmatch(manifest.name):
            reader.plugin_id = manifest.plugin_id
    raise ManifestInvalid([replace(each, plugin_id=reader.plugin_id) for each in reader.broken])


_TOP_LEVEL = frozenset({"apiVersion", "kind", "metadata", "run", "components"})
_METADATA = frozenset({"author", "name", "version", "label", "description"})
_RUN = frozenset({"python", "command", "build", "test", "env", "limits"})
_LIMITS = frozenset({"open_files", "cpu", "memory"})


class _Reader:
    """Takes a document apart, and collects all that is wrong with it."""

    def __init__(self, folder: Path) -> None:
        self.plugin_id = folder.name
        self._folder = folder
        self._file = f"{folder.name}/{MANIFEST_NAME}"
        self.broken: list[ManifestFault] = []

    def manifest(self, document: Mapping[str, Any]) -> PluginManifest:
        self._constant(document, "apiVersion", _API_VERSION)
        self._constant(document, "kind", _KIND)
        metadata = self.section(document.get("metadata"), "metadata", _METADATA)
        run = self.section(document.get("run"), "run", _RUN)
        return PluginManifest(
            folder=self._folder,
            author=self._matching(metadata, "metadata.author", _ID_PART),
            name=self._matching(metadata, "metadata.name", _ID_PART),
            version=self._version(metadata),
            label=self._label(metadata),
            run=self._run(run),
            env=tuple(self._env(run)),
            limits=self._limits(run),
            components=tuple(self._components(document)),
        )

    def parse(self) -> object:
        path = self._folder / MANIFEST_NAME
        try:
            size = path.stat().st_size
            if size > _LIMIT_BYTES:
                self._fault("", f"must have at most {_LIMIT_BYTES} bytes, got {size}")
                return None
            return yaml.load(path.read_text("utf-8"), Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
        except OSError as error:
            self._fault("", f"must be readable: {error.strerror}")
        except UnicodeDecodeError as error:
            self._fault("", f"must be UTF-8: byte {error.start} is not")
        except (yaml.YAMLError, RecursionError) as error:
            self._fault("", f"must be YAML: {' '.join(str(error).split())}")
        return None

    def section(self, value: object, name: str, known: frozenset[str]) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            if not self.broken or name:
                self._fault(name, f"must be a mapping, got {_shown(value)}")
            return {}
        for key in value.keys() - known:
            # It may be meant for a newer host, or be a slip of the pen.
            where = f"{name}.{key}" if name else key
            names = ", ".join(sorted(known))
            _log.warning("%s: %s is not known here; known are %s", self._file, where, names)
        return value

    def _constant(self, section: Mapping[str, Any], name: str, expected: str) -> None:
        if section and section.get(name) != expected:
            self._fault(name, f"must be {expected}, got {_shown(section.get(name))}")

    def _matching(self, section: Mapping[str, Any], path: str, form: re.Pattern[str]) -> str:
        value = section.get(path.rpartition(".")[2])
        if isinstance(value, str) and form.fullmatch(value):
            return value
        if section:
            self._fault(path, f"must be a text that matches {form.pattern}, got {_shown(value)}")
        return ""

    def _version(self, metadata: Mapping[str, Any]) -> str:
        value = metadata.get("version")
        if isinstance(value, str) and 1 <= len(value.encode()) <= 64:
            return value
        if metadata:
            hint = "; put it in quotes" if isinstance(value, int | float) else ""
            rule = "must be a text of 1 to 64 bytes"
            self._fault("metadata.version", f"{rule}, got {_shown(value)}{hint}")
        return ""

    def _label(self, metadata: Mapping[str, Any]) -> Mapping[str, str]:
        value = metadata.get("label", {})
        if not isinstance(value, dict):
            rule = "must be a mapping of locale to text"
            self._fault("metadata.label", f"{rule}, got {_shown(value)}")
            return {}
        for locale, text in value.items():
            if not isinstance(text, str):
                self._fault(f"metadata.label.{locale}", f"must be a text, got {_shown(text)}")
        return MappingProxyType(value)

    def _run(self, run: Mapping[str, Any]) -> PythonModule | Command:
        python, command = run.get("python"), run.get("command")
        if run and (python is None) == (command is None):
            got = "none" if python is None else "both"
            self._fault("run", f"must have one of python and command, got {got}")
        if command is not None:
            words = tuple(self._words(command))
            return Command(words, self._shell(run, "build"), self._shell(run, "test"))
        if python is None:
            return Command(())
        for name in ("build", "test"):
            if run.get(name) is not None:
                self._fault(f"run.{name}", "goes with run.command: a Python plugin needs none")
        section = self.section(python, "run.python", frozenset({"module"}))
        return PythonModule(self._matching(section, "run.python.module", _MODULE))

    def _words(self, command: object) -> Iterator[str]:
        if not isinstance(command, list) or not command:
            rule = "must be a list of a program and its arguments"
            self._fault("run.command", f"{rule}, got {_shown(command)}")
            return
        for index, word in enumerate(command):
            if not isinstance(word, str) or "\0" in word or (index == 0 and not word):
                self._fault(f"run.command[{index}]", f"must be a text, got {_shown(word)}")
            else:
                yield word

    def _shell(self, run: Mapping[str, Any], name: str) -> str:
        value = run.get(name)
        if value is None:
            return ""
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            self._fault(f"run.{name}", f"must be a command for the shell, got {_shown(value)}")
            return ""
        return value

    def _env(self, run: Mapping[str, Any]) -> Iterator[str]:
        for index, name in self._list(run, "run.env"):
            if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
                rule = "must be the name of a variable"
                self._fault(f"run.env[{index}]", f"{rule}, got {_shown(name)}")
            elif name.startswith("RUNMESH_"):
                rule = "must not begin with RUNMESH_: those are the host's own"
                self._fault(f"run.env[{index}]", f"{rule}, got {_shown(name)}")
            else:
                yield name

    def _limits(self, run: Mapping[str, Any]) -> Limits:
        if run.get("limits") is None:
            return Limits()
        limits = self.section(run["limits"], "run.limits", _LIMITS)
        return Limits(
            open_files=self._open_files(limits.get("open_files")),
            cpu=self._cpu(limits.get("cpu")),
            memory_bytes=self._memory(limits.get("memory")),
        )

    def _components(self, document: Mapping[str, Any]) -> Iterator[str]:
        for index, path in self._list(document, "components"):
            if (
                not isinstance(path, str)
                or not path
                or PurePosixPath(path).is_absolute()
                or ".." in PurePosixPath(path).parts
            ):
                rule = "must be the path of a file within the folder"
                self._fault(f"components[{index}]", f"{rule}, got {_shown(path)}")
            else:
                yield path

    def _open_files(self, value: object) -> int | None:
        if value is None:
            return None
        if isinstance(value, int) and _is_number(value) and value >= _FEWEST_FILES:
            return value
        rule = f"must be a whole number from {_FEWEST_FILES}"
        self._fault("run.limits.open_files", f"{rule}, got {_shown(value)}")
        return None

    def _cpu(self, value: object) -> float | None:
        if value is None:
            return None
        if isinstance(value, int | float) and _is_number(value) and 0 < value < 1e6:
            return float(value)
        rule = "must be a number of processors, such as 1.5"
        self._fault("run.limits.cpu", f"{rule}, got {_shown(value)}")
        return None

    def _memory(self, value: object) -> int | None:
        if value is None:
            return None
        match = _SIZE.fullmatch(str(value)) if _is_number(value) or isinstance(value, str) else None
        size = int(float(match[1]) * _UNITS[match[2] or "B"]) if match else 0
        if size > 0:
            return size
        rule = "must be a size such as 512MiB, or a number of bytes"
        self._fault("run.limits.memory", f"{rule}, got {_shown(value)}")
        return None

    def _list(self, section: Mapping[str, Any], path: str) -> Iterator[tuple[int, object]]:
        value = section.get(path.rpartition(".")[2])
        if value is None:
            return
        if not isinstance(value, list):
            self._fault(path, f"must be a list, got {_shown(value)}")
            return
        yield from enumerate(value)

    def _fault(self, name: str, rule: str) -> None:
        where = f"{self._file}: {name}" if name else self._file
        self.broken.append(ManifestFault(plugin_id="", runner_id="", field=where, rule=rule))


# Fewer than these and no runtime starts.
_FEWEST_FILES = 32


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that comes twice, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} comes twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return f"{text[:80]}{'...' if len(text) > 80 else ''} ({type(value).__name__})"


def _least(one: _N | None, other: _N | None) -> _N | None:
    return other if one is None else one if other is None else min(one, other)
