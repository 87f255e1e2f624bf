"""A tool server over streamable HTTP, written by hand: it answers as it is told to."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Forgetful(ThreadingHTTPServer):
    """Answers on a port of its own.

    Attributes:
        refusal: How it answers a call in a session that it forgot: `404`, `200`, or `400`.
        sessions: How many sessions were begun.
        known: The sessions that it knows.
        calls: Names of tools that were called in a session it knows.
        cancelled: Ids of requests that were cancelled.
        headers_seen: Headers of the last request.
        answer: What a tool gives.
        hold: Set once a call of `hold` may be answered.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.refusal = "404"
        self.sessions = 0
        self.known: set[str] = set()
        self.calls: list[str] = []
        self.cancelled: list[Any] = []
        self.headers_seen: dict[str, str] = {}
        self.answer: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
        self.raw_answer = b""
        self.hold = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_port}/mcp"

    def close(self) -> None:
        """Ends it."""
        self.hold.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Forgetful
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server, body = self.server, self.rfile.read(int(self.headers["content-length"]))
        request = json.loads(body)
        server.headers_seen = {name.lower(): value for name, value in self.headers.items()}
        method, number = request["method"], request.get("id")
        if method == "initialize":
            server.sessions += 1
            session = f"session-{server.sessions}"
            server.known.add(session)
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "forgetful", "version": "1"},
            }
            self._say(200, {"id": number, "result": result}, session)
            return
        if self.headers.get("mcp-session-id") not in server.known:
            error = {"code": -32600, "message": "Bad Request: No valid session ID provided"}
            status = int(server.refusal)
            self._say(status, {"id": number, "error": error} if status != 404 else None)
            return
        if method == "notifications/cancelled":
            server.cancelled.append(request["params"]["requestId"])
        if number is None:
            self._say(202, None)
        elif method == "tools/list":
            tools = [{"name": each, "inputSchema": {"type": "object"}} for each in ("act", "hold")]
            self._say(200, {"id": number, "result": {"tools": tools}})
        else:
            server.calls.append(request["params"]["name"])
            if request["params"]["name"] == "hold":
                server.hold.wait(60)
            if server.raw_answer:
                self._send(200, server.raw_answer.replace(b"ID", str(number).encode()))
            else:
                self._say(200, {"id": number, "result": server.answer})

    def do_GET(self) -> None:
        self._say(405, None)

    def do_DELETE(self) -> None:
        self.server.known.discard(self.headers.get("mcp-session-id", ""))
        self._say(200, None)

    def _say(self, status: int, message: dict[str, Any] | None, session: str = "") -> None:
        data = b"" if message is None else json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._send(status, data, session)

    def _send(self, status: int, data: bytes, session: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if session:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
