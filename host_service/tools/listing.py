"""What a server says that it offers, made into tools that can be granted, told and called."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from host_service.catalogue.tool import Tool
from host_service.catalogue.tool_server import SEPARATOR, ToolServer
from host_service.limits import Limits
from host_service.tools.mending import clean_json, clean_text
from host_service.tools.parameters import find_trouble

# What models take as a tool's name, which begins with the server and the separator.
_FITS = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_NAME = 64
_SHOWN_NAME = 200


@dataclass(frozen=True, slots=True)
class Found:
    """A tool as a server tells of it.

    Attributes:
        name: Its name there.
        description: What it does.
        schema: JSON Schema of its parameters, or whatever is in its place.
    """

    name: str
    description: str
    schema: Any


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A tool that nobody can be given.

    Attributes:
        name: The server's name for it.
        reason: Why.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server offers.

    Attributes:
        tools: What can be given, by name.
        left_out: What cannot.
    """

    tools: tuple[Tool, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def listing_of(server: ToolServer, found: Iterable[Found], limits: Limits) -> Listing:
    """Returns what a server offers, of what it says.

    Args:
        server: The server.
        found: What it says, in its order: of two with one name the first holds.
        limits: How many tools there may be, and how large they may be.
    """
    tools: dict[str, Tool] = {}
    left_out: list[LeftOut] = []
    for each in found:
        name = clean_text(each.name)
        schema_json = _text_of(each.schema)
        reason = _reason(server, name, schema_json, tools, limits)
        if reason:
            if len(left_out) < limits.tools_of_server:
                left_out.append(LeftOut(name[:_SHOWN_NAME], reason))
            continue
        full = f"{server.id}{SEPARATOR}{name}"
        tools[full] = Tool(
            name=full,
            server_id=server.id,
            own_name=each.name,
            description=_cut(clean_text(each.description), limits.tool_description_bytes),
            schema_json=schema_json,
            trouble=find_trouble(schema_json),
        )
    return Listing(tuple(tools[name] for name in sorted(tools)), tuple(left_out))


def _reason(
    server: ToolServer, name: str, schema_json: str, tools: dict[str, Tool], limits: Limits
) -> str:
    """Returns why a tool cannot be given; empty: it can."""
    full = f"{server.id}{SEPARATOR}{name}"
    if not _FITS.fullmatch(name):
        return "models take letters, digits, `_` and `-` in a name, and no other character"
    if len(full) > _LONGEST_NAME:
        return f"as {full[:_SHOWN_NAME]} its name has {len(full)} characters, and models take 64"
    if full in tools:
        return "another tool of this server has the same name"
    if not server.offers(full):
        return "it is not among the tools of this server that may be used"
    if len(tools) >= limits.tools_of_server:
        return f"a server may offer {limits.tools_of_server} tools"
    if (size := len(schema_json.encode())) > limits.tool_schema_bytes:
        return f"its schema has {size} bytes, and may have {limits.tool_schema_bytes}"
    return ""


def _text_of(schema: Any) -> str:
    value = clean_json(schema)
    if isinstance(value, dict) and "type" not in value:
        # Parameters are an object, whether the schema says so or not; providers want it said.
        value = {"type": "object", **value}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _cut(text: str, most_bytes: int) -> str:
    data = text.encode()
    return text if len(data) <= most_bytes else data[:most_bytes].decode(errors="ignore")
