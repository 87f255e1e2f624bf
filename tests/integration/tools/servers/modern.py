"""A tool server by the official library that speaks the newest revision of the protocol alone.

`python modern.py NOTE` speaks over stdio, `python modern.py NOTE PORT` over HTTP. It knows no
handshake, and tells of changes only who asked for them; whoever asks is in NOTE.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.message import SessionMessage
from mcp_types import METHOD_NOT_FOUND, ErrorData, JSONRPCError, JSONRPCRequest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

NOTE = Path(sys.argv[1])
NO_HANDSHAKE = ErrorData(code=METHOD_NOT_FOUND, message="no such method")


def note(line: str) -> None:
    with NOTE.open("a") as file:
        file.write(line + "\n")


class Bus(InMemorySubscriptionBus):
    """Writes down who listens."""

    def subscribe(self, listener: Any) -> Any:
        note("listens")
        return super().subscribe(listener)


server = MCPServer("modern", version="3.2.1", subscriptions=Bus())


@server.tool()
def echo(value: Any) -> str:
    """Says how Python shows what came."""
    return repr(value)


@server.tool()
async def grow(context: Context) -> str:
    """Offers one more tool from now on."""

    def grown() -> str:
        """Came later."""
        return "grown"

    server.add_tool(grown)
    await context.notify_tools_changed()
    return "ok"


@server.tool()
async def wait(seconds: float) -> str:
    """Waits, and writes down when it is cancelled."""
    note("waiting")
    try:
        await asyncio.sleep(seconds)
    except BaseException:
        note("cancelled")
        raise
    return "waited"


async def speak() -> None:
    """Serves stdio; answers a handshake as what it is to this server: nothing that it knows."""
    lowlevel = server._lowlevel_server
    async with stdio_server() as (heard, said), anyio.create_task_group() as tasks:
        to_server, for_server = anyio.create_memory_object_stream[SessionMessage | Exception](16)

        async def pass_on() -> None:
            async with to_server:
                async for each in heard:
                    message = each.message if isinstance(each, SessionMessage) else None
                    if isinstance(message, JSONRPCRequest) and message.method == "initialize":
                        refusal = JSONRPCError(jsonrpc="2.0", id=message.id, error=NO_HANDSHAKE)
                        await said.send(SessionMessage(refusal))
                    else:
                        await to_server.send(each)

        tasks.start_soon(pass_on)
        await lowlevel.run(for_server, said, lowlevel.create_initialization_options())


class WithoutHandshake:
    """Answers a handshake over HTTP so."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        if b'"initialize"' in body:
            request = json.loads(body)
            error = {"jsonrpc": "2.0", "id": request["id"], "error": NO_HANDSHAKE.model_dump()}
            await JSONResponse(error)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives what was read already, then what comes."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Any:
        return left.pop() if left else await receive()

    return replayed


if __name__ == "__main__":
    note("started")
    if len(sys.argv) > 2:
        app = WithoutHandshake(server.streamable_http_app())
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
    else:
        anyio.run(speak)
