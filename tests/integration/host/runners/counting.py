"""A runner that somebody else runs: it counts its runs in the host's state, slowly if told so.

Its certificates, and where it listens or attaches, come from the environment, and `PLUGIN`, its id.
"""

import asyncio
import os
from collections.abc import AsyncIterator

from runner_sdk import HostCallError, Manifest, Result, RunContext, agent_runner, serve

_KEY = "count"


@agent_runner
async def counting(ctx: RunContext) -> AsyncIterator[Result]:
    """Says how often it ran in this conversation, and at which address it asked."""
    if ctx.text == "slow":
        for _ in range(60):
            yield ctx.delta(".")
            await asyncio.sleep(0.1)
    try:
        count = await _count(ctx)
    except HostCallError as error:
        yield ctx.delta(f"{error.reason}: {error}")
        return
    yield ctx.delta(f"{count} at {ctx.host._calls.access.address}")


async def _count(ctx: RunContext) -> int:
    state = ctx.host.state["conversation"]
    count = int(await state.get(_KEY, 0)) + 1
    await state.set(_KEY, count)
    return count


if __name__ == "__main__":
    serve(counting, manifest=Manifest.minimal(os.environ["PLUGIN"]))
