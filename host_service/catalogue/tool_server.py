"""A tool server: a program or an address that offers tools by the Model Context Protocol.

A tool is known to agents, runners and models as `server__tool`: two servers may name their tools
alike, and models take letters, digits, `_` and `-` only. A server's id has no `__`, so that no tool
can be taken for another server's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from host_service.catalogue.documents import read_document, write_document
from stores.records import CatalogueItem, CatalogueKind

SEPARATOR = "__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """A tool server. Values of its environment and headers are secrets of its item.

    Attributes:
        id: What its tools' names begin with.
        name: A name to show.
        command: The program to start; empty: it is reached by `url`.
        args: The program's arguments.
        env: Names of variables that the program gets; the secret of each is `env.NAME`.
        url: Where it answers streamable HTTP; empty: it is started by `command`.
        headers: Names of headers that calls carry; the secret of each is `headers.NAME`.
        enabled_tools: Its tools that may be used, by the server's names; None: all.
        enabled: Whether it may be used.
        revision: Counts the changes; 0 before it was stored.
    """

    KIND: ClassVar[CatalogueKind] = CatalogueKind.TOOL_SERVER

    id: str
    name: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    url: str = ""
    headers: tuple[str, ...] = ()
    enabled_tools: tuple[str, ...] | None = None
    enabled: bool = True
    revision: int = field(default=0, compare=False)

    def offers(self, tool_name: str) -> bool:
        """Return whether a tool, by its full name, may be one of this server's."""
        server, separator, tool = tool_name.partition(SEPARATOR)
        return (
            server == self.id
            and bool(separator and tool)
            and (self.enabled_tools is None or tool in self.enabled_tools)
        )

    def secret_names(self) -> tuple[str, ...]:
        """Return the names of the secrets that it is used with."""
        return (
            *(f"env.{name}" for name in self.env),
            *(f"headers.{name}" for name in self.headers),
        )

    def to_document(self) -> str:
        """Return the JSON text that is stored."""
        return write_document(self)

    @classmethod
    def from_item(cls, item: CatalogueItem) -> ToolServer:
        """Return the tool server that an item is."""
        return cls(**read_document(cls, item))
