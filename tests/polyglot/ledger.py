"""A tool server that takes exactly what it asks for, and says back what it got."""

from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from pydantic import Field, StrictInt

server = MCPServer("ledger", version="1.0.0")


@server.tool(structured_output=False)
def post(
    line: StrictInt,
    big: StrictInt,
    # Neither a whole number nor its text is taken for one.
    f: Annotated[Any, Field(json_schema_extra={"type": "number"})],
    text: str = "",
) -> str:
    """Says back the values of an entry, each with its type."""
    if not isinstance(f, float):
        raise TypeError(f"f is no float: {f!r}")
    return f"{line!r} {big!r} {f!r} {text!r}"


@server.tool(structured_output=False)
def refuse(reason: str) -> str:
    """Fails."""
    raise ValueError(reason)


if __name__ == "__main__":
    server.run("stdio")
