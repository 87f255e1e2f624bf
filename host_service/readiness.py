"""Whether the host would take an event now."""

from __future__ import annotations

from host_service.supervisor.supervisor import Supervisor
from stores import Stores
from stores.errors import StoreError

# How long plugins may take to start before the host says that it is ready all the same: one that
# hangs must not keep the others from being used.
_SETTLE_SECONDS = 15.0


class Readiness:
    """Tells what is not ready.

    Args:
        stores: They must answer.
        supervisor: Its plugins must have started, or failed to.
    """

    def __init__(self, *, stores: Stores, supervisor: Supervisor) -> None:
        self._stores = stores
        self._supervisor = supervisor
        self._settled = False

    async def settle(self) -> None:
        """Return once plugins have started, or failed to."""
        await self._supervisor.settled(_SETTLE_SECONDS)
        self._settled = True

    async def missing(self) -> dict[str, str]:
        """Return what is not ready, by name; empty when everything is."""
        missing = {}
        if not self._settled:
            missing["plugins"] = "starting"
        try:
            await self._stores.ping()
        except StoreError as error:
            missing["database"] = type(error).__name__
        return missing
