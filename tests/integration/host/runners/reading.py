"""A runner on the SDK that calls the host as the event says, and logs what it was answered.

The event's `data_json` is `{"calls": [[RPC, REQUEST] ...]}`, each request in JSON. For each call it
logs one line of JSON: the answer, or `{"refused": REASON}`. `"{latest}"` in a request stands for
the run's latest cursor. It then says `read`, and the event's text.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf import json_format
from runmesh.v1 import host_api_pb2

from runner_sdk import AgentRunner, HostCallError, Result, RunContext, serve


class Reader(AgentRunner):
    """Calls and tells."""

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        """Makes each call of the script."""
        script = json.loads(ctx.event.data_json or "{}")
        latest = ctx.proto.context.latest_cursor
        for name, fields in script.get("calls", ()):
            text = json.dumps(fields).replace("{latest}", latest)
            request = getattr(host_api_pb2, f"{name}Request")()
            json_format.Parse(text, request)
            yield ctx.log(json.dumps(await _answer(ctx, name, request)))
        yield ctx.reply(f"read {ctx.text or 'nothing'}")


async def _answer(ctx: RunContext, name: str, request: Any) -> Any:
    try:
        return json_format.MessageToDict(await ctx.host.call(name, request))
    except HostCallError as error:
        return {"refused": error.reason}


if __name__ == "__main__":
    serve(Reader())
