"""Reads a configuration file as a whole."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import yaml
from google.protobuf.message import Message
from runmesh.admin.v1 import admin_pb2

from host_service.configuration.document import (
    ConfigurationError,
    DocumentReader,
    Fault,
    compose,
    join,
)
from host_service.configuration.messages import read_message
from host_service.configuration.webhooks import DeclaredWebhook, read_webhooks

# An Apply call carries at most 16 MiB; what is larger is another file by mistake.
_LARGEST_BYTES = 16 * 1024 * 1024
_OBJECTS = {
    "models": admin_pb2.Model,
    "tool_servers": admin_pb2.ToolServer,
    "knowledge_bases": admin_pb2.KnowledgeBase,
    "policies": admin_pb2.Policy,
    "plugins": admin_pb2.PluginSettings,
    "agents": admin_pb2.Agent,
    "bindings": admin_pb2.Binding,
    "keys": admin_pb2.DeclaredKey,
}
_SECTIONS = (*_OBJECTS, "webhooks", "limits")
# What an object is known by, where it has no id.
_IDS = {"policies": "workspace_id", "plugins": "plugin_id", "keys": "name"}
_LAST_STEP = re.compile(r"(?:\.[^.\[\]]+|\[\d+\])$")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a configuration file declares.

    Attributes:
        source: The file's name.
        objects: Agents, bindings, models and so on, by section, in the file's order.
        webhooks: Who does which action of runs, for the host itself.
        limits: Limits of the host by name; which names there are, the host knows.
        lines: Where each value stands, by path such as `agents[0].timeout`.
    """

    source: str
    objects: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    webhooks: Sequence[DeclaredWebhook] = ()
    limits: dict[str, int | float] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def request(self, *, dry_run: bool = False) -> admin_pb2.ApplyRequest:
        """What asks a host to have everything that is declared here."""
        request = admin_pb2.ApplyRequest(dry_run=dry_run)
        for section, messages in self.objects.items():
            getattr(request, section).extend(messages)
        return request

    def fault(self, path: str, message: str) -> Fault:
        """A fault that was found later, by the path that the contract has for it."""
        return Fault(self.source, self._line(path), path, message)

    def _line(self, path: str) -> int:
        """The line of a path, or of the nearest thing around it that the file has; 0: none."""
        within = path.replace("config_json", "config").replace("options_json", "options")
        within = within.replace("settings_json", "settings")
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
    return read_configuration(content, source=str(path), environment=os.environ)


def read_configuration(
    content: bytes, *, source: str, environment: Mapping[str, str] = MappingProxyType({})
) -> Configuration:
    """Reads a configuration.

    Args:
        content: The file, UTF-8.
        source: What faults call it.
        environment: Where the secrets are that it refers to.

    Raises:
        ConfigurationError: It has faults: all of them, with their lines.
    """
    root = compose(_decode(content, source), source)
    if root is None or not root.value:
        raise ConfigurationError(
            [Fault(source, 0, "", f"declares nothing; it may have {', '.join(_SECTIONS)}")]
        )
    reader = DocumentReader(source, environment=environment)
    sections = {}
    for name, key, value in reader.entries(root, ""):
        if name not in _SECTIONS:
            reader.unknown(key, "", name, _SECTIONS)
        elif not _is_empty(value):
            sections[name] = value
    configuration = Configuration(
        source=source,
        objects={
            section: _declared(reader, sections[section], section, make)
            for section, make in _OBJECTS.items()
            if section in sections
        },
        webhooks=read_webhooks(reader, sections.get("webhooks")),
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
    reader: DocumentReader, node: yaml.Node, section: str, make: type[Message]
) -> list[Message]:
    declared: list[Message] = []
    named_by = _IDS.get(section, "id")
    first: dict[str, str] = {}
    for path, item in reader.items(node, section):
        message = read_message(reader, item, path, make)
        name = getattr(message, named_by)
        if name and name in first:
            reader.fault(item, f"{path}.{named_by}", f"{name!r} is also {first[name]}")
        first.setdefault(name, path)
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
