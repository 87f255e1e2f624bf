"""The runner `echo`: streams back what it is told."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import repeat

from runner_sdk import AgentRunner, Result, RunContext, RunFailure

# Larger messages are left to the host, which completes them from the pieces.
_MESSAGE_BYTES = 1_000_000
# Longer words are cut, so that a piece stays small.
_WORD_CHARACTERS = 4096


class Echo(AgentRunner):
    """Streams back what it is told."""

    name = "echo"

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        """Sends the input's pieces, then the message; or what the configuration asks for."""
        await asyncio.sleep(ctx.config.get("delay_seconds", 0))
        if ctx.config.get("failure") == "error":
            yield ctx.delta("Before the fault. ")
            raise RunFailure("echo.asked", "the configuration asks for a failure", retryable=True)
        answer = _heard(ctx)
        spoken: Iterable[str] = _pieces(answer)
        size = len(answer.encode())
        if count := ctx.config.get("repeat", 0):
            piece = "x" * ctx.config.get("size", 6)
            spoken, size = repeat(piece, count), count * len(piece)
        for piece in spoken:
            yield ctx.delta(piece)
            if pause := ctx.config.get("interval_seconds", 0):
                await asyncio.sleep(pause)
        if size == 0:
            yield ctx.completed("silent")
        elif ctx.config.get("message", True) and size <= _MESSAGE_BYTES:
            yield ctx.reply("x" * size if count else answer)


def _heard(ctx: RunContext) -> str:
    """What was said, or for events without text what happened."""
    if ctx.input.HasField("text"):
        return ctx.text
    return f"Event {ctx.event.type}, without text."


def _pieces(text: str) -> Iterator[str]:
    """Cuts a text into its words, each with the space behind it."""
    start = 0
    for end in range(1, len(text)):
        begins_word = text[end - 1].isspace() and not text[end].isspace()
        if begins_word or end - start >= _WORD_CHARACTERS:
            yield text[start:end]
            start = end
    if text:
        yield text[start:]
