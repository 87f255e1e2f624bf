"""Code in a run of a stand-in host: what a plugin's parts are tested with."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Self

from runner_sdk import Manifest, Result, RunContext, agent_runner
from runner_sdk.results import StateScope
from runner_sdk.testing import RunOutcome, StandInHost

Work = Callable[[RunContext], Awaitable[str]]


class Runs:
    """Runs whatever a test wants to do with a run's context.

    Attributes:
        host: The stand-in host.
    """

    def __init__(self, *, state_scopes: tuple[StateScope, ...] | None = None) -> None:
        self._work: Work | None = None

        @agent_runner
        async def default(ctx: RunContext) -> AsyncIterator[Result]:
            assert self._work is not None
            yield ctx.reply(await self._work(ctx))

        self.host = StandInHost(
            default, manifest=Manifest.minimal("runmesh/tests"), state_scopes=state_scopes
        )

    async def __aenter__(self) -> Self:
        await self.host.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.host.__aexit__(None, None, None)

    async def run(self, said: str, work: Work) -> RunOutcome:
        """Does something in a run, and says what it returns."""
        self._work = work
        outcome = await self.host.run(said)
        assert outcome.failed is None, outcome.failed
        return outcome
