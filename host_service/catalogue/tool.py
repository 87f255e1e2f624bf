"""What tool servers offer, as the host last heard it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from host_service.catalogue.tool_server import SEPARATOR

#: Stands, behind `server__`, for all tools of a server.
ALL = "*"
#: What is told of a tool whose own schema is broken: providers refuse all tools for one such.
ANY_OBJECT = '{"type":"object"}'


# Told apart by identity: it is made once for each discovery.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """A tool of a server.

    Attributes:
        name: What agents, runners and models know it by, `server__tool`.
        server_id: The server.
        own_name: The server's name for it.
        description: What it does.
        schema_json: JSON Schema of its parameters, as the server gave it.
        trouble: What is wrong with that schema; empty: nothing.
    """

    name: str
    server_id: str
    own_name: str
    description: str = ""
    schema_json: str = ANY_OBJECT
    trouble: str = ""

    @property
    def told_schema_json(self) -> str:
        """The schema that runners and models are told; of a broken one, that it is an object."""
        return ANY_OBJECT if self.trouble else self.schema_json


# Told apart by identity: it is made once for each change.
@dataclass(frozen=True, slots=True, eq=False)
class Toolset:
    """Tools of all servers that told of theirs, by server. Never changed: a change makes another.

    Attributes:
        by_server: Tools of a server in the order of their names. A server that never answered is
            not among them; one that is away has those that it had.
    """

    by_server: Mapping[str, tuple[Tool, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def offered_by(self, server_id: str) -> tuple[Tool, ...] | None:
        """Return a server's tools; None: it has told of none yet."""
        return self.by_server.get(server_id)

    def get(self, name: str) -> Tool | None:
        """Return a tool by its full name."""
        tools = self.by_server.get(name.partition(SEPARATOR)[0], ())
        return next((each for each in tools if each.name == name), None)


def server_of_all(name: str) -> str | None:
    """Return the server all of whose tools a name stands for; None: it names one tool."""
    server_id, separator, tool = name.partition(SEPARATOR)
    return server_id if separator and tool == ALL else None
