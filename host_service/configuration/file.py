"""Reads a configuration file as a whole."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml
from runmesh.admin.v1 import admin_pb2

from host_service.configuration.document import (
    ConfigurationError,
    DocumentReader,
    Fault,
    compose,
    join,
)
from host_service.configuration.messages import read_message

# An Apply call carries at most 16 MiB; what is larger is another file by mistake.
_LARGEST_BYTES = 16 * 1024 * 1024
_SECTIONS = ("agents", "bindings", "limits")
_LAST_STEP = re.compile(r"(?:\.[^.\[\]]+|\[\d+\])$")

Declared = TypeVar("Declared", admin_pb2.Agent, admin_pb2.Binding)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a configuration file declares.

    Attributes:
        source: The file's name.
        agents: Agents, in the file's order.
        bindings: Bindings, in the file's order.
        limits: Limits of the host by name; which names there are, the host knows.
        lines: Where each value stands, by path such as `agents[0].timeout`.
    """

    source: str
    agents: list[admin_pb2.Agent] = field(default_factory=list)
    bindings: list[admin_pb2.Binding] = field(default_factory=list)
    limits: dict[str, int | float] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def fault(self, path: str, message: str) -> Fault:
        """A fault that was found later, by the path that the contract has for it."""
        return Fault(self.source, self._line(path), path, message)

    def _line(self, path: str) -> int:
        """The line of a path, or of the nearest thing around it that the file has; 0: none."""
        within = path.replace("config_json", "config")
        while within not in self.lines:
            shorter = _LAST_STEP.sub("", within)
            if shorter == within:
                return 0
            within = shorter
        return self.lines[within]


def load_configuration(path: Path) -> Configuration:
    """Reads a configuration file.

    Raises:
        ConfigurationError: The file cannot be read, or has faults: all of them, with their lines.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        fault = Fault(str(path), 0, "", f"cannot be read: {error.strerror}")
        raise ConfigurationError([fault]) from error
    return read_configuration(content, source=str(path))


def read_configuration(content: bytes, *, source: str) -> Configuration:
    """Reads a configuration; `source` is what faults call it.

    Raises:
        ConfigurationError: It has faults: all of them, with their lines.
    """
    root = compose(_decode(content, source), source)
    if root is None or not root.value:
        raise ConfigurationError(
            [Fault(source, 0, "", f"declares nothing; it may have {', '.join(_SECTIONS)}")]
        )
    reader = DocumentReader(source)
    sections = {}
    for name, key, value in reader.entries(root, ""):
        if name not in _SECTIONS:
            reader.unknown(key, "", name, _SECTIONS)
        elif not _is_empty(value):
            sections[name] = value
    configuration = Configuration(
        source=source,
        agents=_declared(reader, sections.get("agents"), "agents", admin_pb2.Agent),
        bindings=_declared(reader, sections.get("bindings"), "bindings", admin_pb2.Binding),
        limits=_limits(reader, sections.get("limits")),
        lines=reader.lines,
    )
    if reader.faults:
        raise ConfigurationError(reader.faults)
    return configuration


def _decode(content: bytes, source: str) -> str:
    if len(content) > _LARGEST_BYTES:
        fault = Fault(source, 0, "", f"is larger than {_LARGEST_BYTES} bytes")
        raise ConfigurationError([fault])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        fault = Fault(source, line, "", f"is not UTF-8: byte {content[error.start]:#04x}")
        raise ConfigurationError([fault]) from error


def _declared(
    reader: DocumentReader, node: yaml.Node | None, section: str, make: type[Declared]
) -> list[Declared]:
    if node is None:
        return []
    declared: list[Declared] = []
    first: dict[str, str] = {}
    for path, item in reader.items(node, section):
        message = read_message(reader, item, path, make)
        if message.id and message.id in first:
            reader.fault(item, f"{path}.id", f"{message.id!r} is also {first[message.id]}")
        first.setdefault(message.id, path)
        declared.append(message)
    return declared


def _limits(reader: DocumentReader, node: yaml.Node | None) -> dict[str, int | float]:
    if node is None:
        return {}
    limits = {}
    for name, _, value in reader.entries(node, "limits"):
        number = reader.number(value, join("limits", name))
        if number is not None:
            limits[name] = number
    return limits


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")
