"""A tool server by the official library, over stdio or streamable HTTP, with a state of its own.

`python stateful.py NOTE` speaks over stdio, `python stateful.py NOTE PORT` over HTTP. What happens
to its calls it writes into NOTE, one line each.
"""

import asyncio
import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import CallToolResult, TextContent

NOTE = Path(sys.argv[1])
server = MCPServer("stateful", version="1.2.3")
counter = {"value": 0}


def note(line: str) -> None:
    with NOTE.open("a") as file:
        file.write(line + "\n")


@server.tool()
def count(by: int = 1) -> int:
    """Adds to a counter that lives as long as this process."""
    counter["value"] += by
    return counter["value"]


@server.tool()
def echo(value: Any) -> str:
    """Says how Python shows what came."""
    return repr(value)


@server.tool()
def fail(reason: str) -> str:
    """Fails."""
    raise ValueError(reason)


@server.tool()
async def wait(seconds: float, context: Context) -> str:
    """Waits, and writes down when it is cancelled."""
    note("waiting")
    try:
        for step in range(int(seconds * 10)):
            await context.report_progress(step, seconds * 10)
            await asyncio.sleep(0.1)
    except BaseException:
        note("cancelled")
        raise
    return "waited"


@server.tool(structured_output=False)
def large(size: int) -> str:
    """Answers with a text of so many bytes."""
    return "x" * size


@server.tool()
def picture(size: int) -> Image:
    """Answers with bytes that claim to be an image."""
    return Image(data=b"\x89PNG" + b"\0" * size, format="png")


@server.tool(structured_output=False)
def odd_texts() -> CallToolResult:
    """Answers with U+0000."""
    return CallToolResult(content=[TextContent(type="text", text="a\0b 你好")])


@server.tool()
def environment() -> dict[str, str]:
    """Tells the variables of its environment."""
    return dict(os.environ)


@server.tool()
def spawn() -> int:
    """Starts a process that outlives its caller unless somebody ends it."""
    return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid


@server.tool()
async def grow(context: Context) -> str:
    """Offers one more tool from now on."""

    def grown() -> str:
        """Came later."""
        return "grown"

    server.add_tool(grown)
    await context.session.send_tool_list_changed()
    return base64.b64encode(b"ok").decode()


@server.tool()
def leave() -> None:
    """Ends this process at once."""
    os._exit(3)


if __name__ == "__main__":
    note(f"started {os.getpid()}")
    if len(sys.argv) > 2:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
