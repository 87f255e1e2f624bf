"""The echo runner."""

import asyncio
from collections.abc import AsyncIterator
from itertools import repeat

from runner_sdk import AgentRunner, Result, RunContext, serve

from .pieces import pieces

_MESSAGE_BYTES = 1_000_000
"""Larger messages are left to the host, which completes them from the pieces."""


class Echo(AgentRunner):
    """Streams back what it is told."""

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        """Sends the input's pieces, then the message; or what the configuration asks for."""
        await asyncio.sleep(ctx.config.get("delay_seconds", 0))
        failure = ctx.config.get("failure", "none")
        if failure != "none":
            from .faults import misbehave  # a runner that behaves need not load it

            async for result in misbehave(ctx, failure):
                yield result
            return
        count = ctx.config.get("repeat", 0)
        piece = "x" * ctx.config.get("size", 6)
        answer = _answer(ctx)
        size = count * len(piece) if count else len(answer.encode())
        interval_seconds = ctx.config.get("interval_seconds", 0)
        for text in repeat(piece, count) if count else pieces(answer):
            yield ctx.delta(text)
            if interval_seconds:
                await asyncio.sleep(interval_seconds)
        if size == 0:
            # Nothing was said, and nothing is what an echo has to say.
            yield ctx.completed("silent")
        elif ctx.config.get("message", True) and size <= _MESSAGE_BYTES:
            yield ctx.reply(piece * count if count else answer)


def _answer(ctx: RunContext) -> str:
    """Returns what to say: the input, or for events without text what happened."""
    if ctx.input.HasField("text"):
        return ctx.text
    return f"Event {ctx.event.type}, without text."


if __name__ == "__main__":
    serve(Echo())
