"""Values that the agent keeps between turns, in the state that the host grants it.

State may be off, or have no place for the event: then nothing is found and nothing is kept, and
the agent does without.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from runner_sdk import HostCallError, RunContext
from runner_sdk.errors import Conflict, NotFound
from runner_sdk.results import StateScope

# Others write the same value seldom; so often in a row never.
_TRIES = 5


class Remembered:
    """One value of state.

    Args:
        ctx: The run.
        scope: Where the value belongs.
        key: Its key.
    """

    def __init__(self, ctx: RunContext, scope: StateScope, key: str) -> None:
        self._ctx = ctx
        self._scope = scope
        self._key = key

    async def read(self) -> Any:
        """Returns the value as it was when the run started; None where there is none."""
        initial = self._ctx.state
        value = initial.get(self._scope, self._key)
        if value is not None or not initial.truncated:
            return value
        try:
            return (await self._now())[0]
        except HostCallError as error:
            self._ctx.logger.info("state %s was not read: %s", self._key, error.reason)
            return None

    async def change(self, change: Callable[[Any], Any]) -> bool:
        """Writes a new value over the one of now; nothing that others write meanwhile is lost.

        Args:
            change: Makes the new value of the one of now, which is None where there is none;
                called again when somebody else was faster. What it returns is written, unless it
                is None.

        Returns:
            Whether it was written.
        """
        if not self._ctx.proto.context.available_apis.state:
            return False
        try:
            for _ in range(_TRIES):
                value, version = await self._now()
                changed = change(value)
                if changed is None:
                    return False
                with contextlib.suppress(Conflict):
                    await self._ctx.host.state.set(
                        self._scope, self._key, changed, expected_version=version
                    )
                    return True
        except HostCallError as error:
            # An answer that was given is worth more than what would be kept of it.
            self._ctx.logger.info("state %s was not kept: %s", self._key, error.reason)
        return False

    async def _now(self) -> tuple[Any, int]:
        try:
            found = await self._ctx.host.state.get(self._scope, self._key)
        except NotFound:
            return None, 0
        return found.value, found.version
