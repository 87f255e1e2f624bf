"""A runner of a later version: it says and asks what today's hosts do not know.

`later_runner.py STUBS` runs with the later version's stubs.
"""

import sys

sys.path.insert(0, sys.argv[1])

from collections.abc import AsyncIterator
from typing import Any

from runmesh.v1 import host_api_pb2, result_pb2, types_pb2

from runner_sdk import AgentRunner, HostCallError, RunContext, serve

LATER = 1000
NEWS = "of a later version"
# Only the later version's stubs have what is used here.
api: Any = host_api_pb2
results: Any = result_pb2
types: Any = types_pb2


class Later(AgentRunner):
    name = "later"

    async def run(self, ctx: RunContext) -> AsyncIterator[Any]:
        match ctx.text:
            case "result" | "must understand":
                later = results.RunResult(later_result=types.LaterThing(later_number=7))
                later.must_understand = ctx.text == "must understand"
                yield ctx.reply("before")
                yield later
                yield ctx.reply("after")
            case "values":
                said: Any = ctx.message("hello")
                content = types.ContentPart(later_content=types.LaterThing(later_number=7))
                said.message_completed.message.parts.append(content)
                said.message_completed.message.role = LATER
                for each in (said.message_completed, said.message_completed.message):
                    each.later_text = NEWS
                    each.later_thing.later_number = 7
                yield said
                yield results.RunResult(log=results.LogLine(level=LATER, text="a line"))
            case "call":
                try:
                    await ctx.host.call("Foretell", api.ForetellRequest(later_text=NEWS))
                except HostCallError as error:
                    yield ctx.reply(f"{error.method}: {error.reason}")
            case "fields":
                place = {"scope": 1, "key": "later", "later_text": NEWS}
                request = api.SetStateRequest(value_json='"kept"', **place)
                await ctx.host.call("SetState", request)
                found = await ctx.host.call("GetState", api.GetStateRequest(**place))
                yield ctx.reply(found.entry.value_json + found.entry.later_text)


serve(Later())
