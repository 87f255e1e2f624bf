"""A runner on the SDK with a secret, that calls the host as the event says and logs its answers.

The event's `data_json` is `{"calls": [[RPC, REQUEST] ...], "seconds": SECONDS}`. For each call the
runner logs one line of JSON: the answer, or `{"refused": REASON}`. It takes so many seconds, and
says the digest of its secret, which it tells nobody otherwise.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

from google.protobuf import json_format
from runmesh.v1 import host_api_pb2

from runner_sdk import AgentRunner, HostCallError, Result, RunContext, serve


class Keeper(AgentRunner):
    """Calls, waits, and proves that it knows its secret."""

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        """Does what the event says."""
        script = json.loads(ctx.event.data_json or "{}")
        for name, fields in script.get("calls", ()):
            request = getattr(host_api_pb2, f"{name}Request")()
            json_format.ParseDict(fields, request)
            yield ctx.log(json.dumps(await _answer(ctx, name, request)))
        await asyncio.sleep(script.get("seconds", 0))
        yield ctx.reply(sha256(ctx.config["token"].encode()).hexdigest())


async def _answer(ctx: RunContext, name: str, request: Any) -> Any:
    try:
        return json_format.MessageToDict(await ctx.host.call(name, request))
    except HostCallError as error:
        return {"refused": error.reason}


if __name__ == "__main__":
    serve(Keeper())
