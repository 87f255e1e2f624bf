"""The clock runner. All processes of a machine share the monotonic clock that it reads."""

import asyncio
import time
from collections.abc import AsyncIterator

from runner_sdk import AgentRunner, Result, RunContext, serve


class Clock(AgentRunner):
    """Tells the time again and again; when it is cancelled, it says when that reached it."""

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        """Yields times as text, and a last one as a log line when it is cancelled."""
        interval_seconds = ctx.config["interval_seconds"]
        try:
            for _ in range(ctx.config["repeat"]):
                yield ctx.delta(str(time.monotonic_ns()))
                await asyncio.sleep(interval_seconds)
        except asyncio.CancelledError:
            yield ctx.log(str(time.monotonic_ns()))
            raise


if __name__ == "__main__":
    serve(Clock())
