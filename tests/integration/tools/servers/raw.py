"""A tool server written by hand, which does what its only argument, a JSON object, says.

`noise`: prints a byte order mark, colours and a megabyte before it listens, and between answers.
`stderr_bytes`: writes so much to stderr first. `says`: a line for stderr. `exit`: ends with this
code before it answers anything. `gate`: waits for this file before it does anything. `hang`: never
answers this method. `version`: answers `initialize` with it; `?` for the one that was asked for.
`tools`: pages of its tools. `answers`: what `tools/call` gives, by tool; a number is the code of an
error. `leaves`: ignores SIGTERM and the end of its input.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

does = json.loads(sys.argv[1])
OUT = sys.stdout.buffer
NOISE = b"\xef\xbb\xbf\x1b[31mWelcome!\x1b[0m " + b"garbage \xff\x00 " * 100_000 + b"\n{not json}\n"


def say(message: dict[str, Any]) -> None:
    if does.get("noise"):
        OUT.write(b"\x1b[2K between\n")
    OUT.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    OUT.flush()


def result_of(method: str, params: dict[str, Any]) -> Any:
    if method == "initialize":
        version = does.get("version", "?")
        return {
            "protocolVersion": params["protocolVersion"] if version == "?" else version,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "raw", "version": "0"},
        }
    if method == "tools/list":
        pages = does.get("tools", [["one"]])
        number = int(params.get("cursor", 0))
        tools = [
            each if isinstance(each, dict) else {"name": each, "inputSchema": {"type": "object"}}
            for each in pages[number]
        ]
        page: dict[str, Any] = {"tools": tools}
        if number + 1 < len(pages):
            page["nextCursor"] = str(number + 1)
        return page
    return does.get("answers", {}).get(params.get("name"), {"content": []})


while "gate" in does and not Path(does["gate"]).exists():
    time.sleep(0.02)
if does.get("leaves"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "says" in does:
    sys.stderr.write(f"{does['says']} {os.environ.get('TOKEN', '')}\n")
sys.stderr.write("e" * 79 + "\n" if does.get("stderr_bytes") else "")
for _ in range(does.get("stderr_bytes", 0) // 80):
    sys.stderr.write("e" * 79 + "\n")
sys.stderr.flush()
if "exit" in does:
    sys.exit(does["exit"])
if does.get("noise"):
    OUT.write(NOISE)
    OUT.flush()
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == does.get("hang"):
        time.sleep(1000)
    if "id" not in request:
        continue
    result = result_of(request["method"], request.get("params") or {})
    if isinstance(result, int):
        say({"id": request["id"], "error": {"code": result, "message": "it said no"}})
    elif "raw" in result:
        OUT.write(result["raw"].replace("ID", str(request["id"])).encode("latin-1") + b"\n")
        OUT.flush()
    else:
        say({"id": request["id"], "result": result})
while does.get("leaves"):
    time.sleep(1)
