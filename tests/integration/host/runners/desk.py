"""Runners of three kinds that do what the message says, for tests of sessions.

A message is words with a blank between; what is no command is said back:

    hold:PATH   goes on once there is such a file
    hang        for ever, until cancelled
    die         ends the process
    steer:N     takes up follow-up input until it has N pieces, and says each
    peek:N      looks at N pieces and acknowledges none

Into the file that its first argument names each run writes a line when it begins and when it ends:
`begin` or `end`, its process, its event's id and its conversation. The second argument is how
many runs it takes at once.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from runner_sdk import AgentRunner, Result, RunContext, serve

POLL_SECONDS = 0.01


class Desk(AgentRunner):
    """Does what the message says."""

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        room = ctx.conversation.conversation_id if ctx.conversation else "-"
        _note("begin", ctx, room)
        try:
            async for text in _answer(ctx):
                yield ctx.delta(text)
            if not ctx.text:
                yield ctx.completed("silent")
        finally:
            _note("end", ctx, room)


def _note(word: str, ctx: RunContext, room: str) -> None:
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{word} {os.getpid()} {ctx.event.event_id} {room}\n")


async def _answer(ctx: RunContext) -> AsyncIterator[str]:
    for word in (ctx.text or "").split():
        command, _, value = word.partition(":")
        match command:
            case "hold":
                # Another process makes it, which sets no event of ours.
                while not Path(value).exists():  # noqa: ASYNC110, ASYNC240
                    await asyncio.sleep(POLL_SECONDS)
            case "hang":
                await asyncio.Event().wait()
            case "die":
                os._exit(1)
            case "steer" | "peek":
                async for text in _take_up(ctx, int(value), acknowledge=command == "steer"):
                    yield text
            case _:
                yield f"{word} "


async def _take_up(ctx: RunContext, count: int, *, acknowledge: bool) -> AsyncIterator[str]:
    async with ctx.host.steering.pull() as inputs:
        taken = 0
        async for follow_up in inputs:
            if acknowledge:
                await follow_up.acknowledge()
            yield f"[{follow_up.text}] "
            taken += 1
            if taken == count:
                return


class Stateful(Desk):
    name = "stateful"


class Steered(Desk):
    name = "steered"


class Plain(Desk):
    name = "plain"


if __name__ == "__main__":
    serve(
        Stateful(),
        Steered(),
        Plain(),
        manifest=Path.cwd() / "manifest.yaml",
        max_concurrent_runs=int(sys.argv[2]),
    )
