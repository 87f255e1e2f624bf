"""Runners made with the SDK, in both of its forms; as a program it serves where it is told."""

import sys
import time
from collections.abc import AsyncIterator, Iterator

from runner_sdk import AgentRunner, Manifest, Result, RunContext, serve


class Waiting(AgentRunner):
    """Asks its host for something, and answers with what it was told."""

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        """Counts the runs of its conversation, and answers."""
        count = await ctx.host.state["conversation"].get("count", 0)
        await ctx.host.state["conversation"].set("count", count + 1)
        yield ctx.delta(ctx.text or "(no text)")
        yield ctx.reply(ctx.text[:100_000] or "(no text)")


class Blocking(AgentRunner):
    """The same in a thread, as who knows no `async` writes it."""

    def run(self, ctx: RunContext) -> Iterator[Result]:
        """Takes its time, asks its host, and answers."""
        time.sleep(0.01)
        ctx.block_on(ctx.host.state["conversation"].set("said", ctx.text[:100]))
        for start in range(0, len(ctx.text), 100_000):
            yield ctx.delta(ctx.text[start : start + 100_000])
        yield ctx.reply(ctx.text[:100_000] or "(no text)")


if __name__ == "__main__":
    runner = {"waiting": Waiting, "blocking": Blocking}[sys.argv[1]]()
    serve(
        runner,
        manifest=Manifest.minimal(f"acme/{sys.argv[1]}", "default", version="1.0.0"),
        max_concurrent_runs=int(sys.argv[2]),
    )
