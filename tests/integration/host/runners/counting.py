"""A runner that somebody else runs: it counts its runs in the host's state.

Told `until PATH` it goes on saying something until that file is there.

Its certificates, and where it listens or attaches, come from the environment, and `PLUGIN`, its id.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from runner_sdk import HostCallError, Manifest, Result, RunContext, agent_runner, serve

_KEY = "count"


@agent_runner
async def counting(ctx: RunContext) -> AsyncIterator[Result]:
    """Says how often it ran in this conversation, and at which address it asked."""
    word, _, path = (ctx.text or "").partition(" ")
    while word == "until" and not Path(path).exists():  # noqa: ASYNC240 - it takes microseconds
        yield ctx.delta(".")
        await asyncio.sleep(0.05)
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
