"""What people say while the agent works: taken up between two questions to the model."""

from contextlib import AsyncExitStack

from runner_sdk import HostCallError, RunContext
from runner_sdk.host import SteeringStream

from .heard import Heard


class FollowUps:
    """Listens for follow-up input, from the first round of tool calls on.

    What is not taken up, because the model was answering already, becomes a run of its own.

    Args:
        ctx: The run.
        stack: Ends the listening.
    """

    def __init__(self, ctx: RunContext, stack: AsyncExitStack) -> None:
        self._ctx = ctx
        self._stack = stack
        self._stream: SteeringStream | None = None
        self._over = not ctx.proto.context.available_apis.steering
        self._warnings: list[str] = []

    async def listen(self) -> None:
        """Begins to listen, where that is allowed and was not begun."""
        if self._stream is None and not self._over:
            self._stream = await self._stack.enter_async_context(self._ctx.host.steering.pull())

    async def waiting(self) -> list[Heard]:
        """Takes up what has arrived, and returns it in order."""
        if self._stream is None or self._over:
            return []
        try:
            arrived = await self._stream.waiting()
            heard = [await Heard.read(self._ctx, each.input, each.actor) for each in arrived]
            await self._ctx.host.steering.acknowledge(arrived)
        except HostCallError as error:
            self._over = True
            self._warnings.append(f"follow-up input is not taken up any more: {error.message}")
            return []
        return heard

    def take_warnings(self) -> list[str]:
        """Returns what went wrong since the last look."""
        warnings, self._warnings = self._warnings, []
        return warnings
