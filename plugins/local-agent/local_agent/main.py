"""The local agent's runner."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from runner_sdk import AgentRunner, HostCallError, Result, RunContext, serve

from .failures import host_failed
from .turn import Turn


class LocalAgent(AgentRunner):
    """Answers with the models, tools and knowledge that a run was given."""

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        """Answers one event."""
        turn = Turn(ctx)
        try:
            async with aclosing(turn.results()) as results:
                async for result in results:
                    yield result
        except asyncio.CancelledError:
            for result in turn.cancelled():
                yield result
            raise
        except HostCallError as error:
            raise host_failed(error) from error


if __name__ == "__main__":
    serve(LocalAgent())
