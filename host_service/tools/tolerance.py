"""Takes lists of tools as servers give them: one that is malformed costs itself, not all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


class TolerantDispatcher(JSONRPCDispatcher):
    """Sends and receives, and makes of every list of tools one that the protocol allows.

    Attributes:
        schemas: Schemas of parameters as the server gave them, by its names of the tools; of two
            tools with one name, the first one's.
    """

    schemas: dict[str, Any]

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        **related: Any,
    ) -> dict[str, Any]:
        """Sends a request and returns its result; see the library."""
        result = await super().send_raw_request(method, params, opts, **related)
        if method == "tools/list" and isinstance(result.get("tools"), list):
            result["tools"] = list(self._tools(result["tools"]))
        return result

    def _tools(self, entries: list[Any]) -> Iterator[dict[str, Any]]:
        for entry in entries:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str):
                # It has nothing that it could be told of by.
                continue
            schema = entry.get("inputSchema")
            self.schemas.setdefault(name, schema)
            description = entry.get("description")
            yield {
                "name": name,
                "description": description if isinstance(description, str) else "",
                "inputSchema": schema if _is_allowed(schema) else dict(_ANY_OBJECT),
            }


def _is_allowed(schema: Any) -> bool:
    """Returns whether the protocol's own types take a schema."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        isinstance(properties, dict)
        and all(isinstance(each, dict) for each in properties.values())
        and isinstance(required, list)
        and all(isinstance(each, str) for each in required)
    )
