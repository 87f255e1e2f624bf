"""What servers offered when they were last heard, kept for the next start of the host.

A server that is a program takes a second to answer, and one at an address may be away. A run that
starts meanwhile is granted the tools that the server had; a call to one waits for the server. What
is kept is a guess, and replaced as soon as the server answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from host_service.catalogue.tool import Tool
from host_service.catalogue.tool_server import SEPARATOR, ToolServer
from host_service.limits import Limits
from host_service.tools.listing import Listing

_log = logging.getLogger("runmesh.tools")

_NAME = "listing.json"
_VERSION = 1


class RememberedListings:
    """Keeps listings in files, one for each server, beside what else the server has there.

    Args:
        folder: Where tool servers have their folders.
        limits: How much is kept.
    """

    def __init__(self, folder: Path, *, limits: Limits) -> None:
        self._folder = folder
        self._limits = limits

    async def recall(self, servers: Iterable[ToolServer]) -> dict[str, Listing]:
        """Returns what servers offered that are reached as they were then, by id."""
        return await asyncio.to_thread(self._recall, tuple(servers))

    async def keep(self, server: ToolServer, listing: Listing) -> None:
        """Keeps what a server offers; more than may be kept is not kept at all."""
        try:
            await asyncio.to_thread(self._keep, server, listing)
        except OSError as error:
            _log.warning("tools of %s cannot be remembered: %s", server.id, error.strerror)

    async def forget(self, server_id: str) -> None:
        """Keeps nothing of a server any more."""
        await asyncio.to_thread(self._path(server_id).unlink, missing_ok=True)

    def _path(self, server_id: str) -> Path:
        return self._folder / server_id / _NAME

    def _recall(self, servers: tuple[ToolServer, ...]) -> dict[str, Listing]:
        read = ((each.id, self._read(each)) for each in servers)
        return {server_id: listing for server_id, listing in read if listing is not None}

    def _read(self, server: ToolServer) -> Listing | None:
        try:
            with self._path(server.id).open(encoding="utf-8") as file:
                kept = json.loads(file.read(self._limits.tools_remembered_bytes))
            if (kept["version"], kept["reached"]) != (_VERSION, _reached(server)):
                return None
            tools = tuple(_tool(server, each) for each in kept["tools"])
        except (OSError, ValueError, KeyError, TypeError):
            # It was never heard, or another version of the host has written it: it will answer.
            return None
        return Listing(tuple(each for each in tools if server.offers(each.name)))

    def _keep(self, server: ToolServer, listing: Listing) -> None:
        path = self._path(server.id)
        text = json.dumps(
            {
                "version": _VERSION,
                "reached": _reached(server),
                "tools": [
                    [each.own_name, each.description, each.schema_json, each.trouble]
                    for each in listing.tools
                ],
            }
        )
        if len(text) > self._limits.tools_remembered_bytes:
            path.unlink(missing_ok=True)
            return
        for folder in (self._folder, path.parent):
            folder.mkdir(mode=0o700, parents=folder == self._folder, exist_ok=True)
        # Whole or not at all, whenever the host is killed.
        written = path.with_suffix(".new")
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        written.replace(path)


def _tool(server: ToolServer, kept: Any) -> Tool:
    own_name, description, schema_json, trouble = map(str, kept)
    return Tool(
        name=f"{server.id}{SEPARATOR}{own_name}",
        server_id=server.id,
        own_name=own_name,
        description=description,
        schema_json=schema_json,
        trouble=trouble,
    )


def _reached(server: ToolServer) -> str:
    """Returns a digest of how a server is reached: by another way, other tools may be there."""
    way = (server.command, server.args, server.url, server.env, server.headers)
    return hashlib.sha256(json.dumps(way).encode()).hexdigest()
