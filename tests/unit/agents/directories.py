"""Directories over real stores, as tests make them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from host_service.agents.agent import Agent
from host_service.agents.binding import Binding
from host_service.agents.changes import Change
from host_service.agents.declared import Declared
from host_service.agents.directory import AgentDirectory
from stores import Stores

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def directory_over(stores: Stores, **around: Any) -> AgentDirectory:
    """Return a directory of what these stores hold; nothing is read yet."""
    return AgentDirectory(
        catalogue=stores.catalogue,
        secrets=stores.secrets,
        keys=stores.keys,
        clock=lambda: NOON,
        **around,
    )


async def apply(
    directory: AgentDirectory,
    agents: Sequence[Agent],
    bindings: Sequence[Binding],
    *,
    dry_run: bool = False,
) -> Sequence[Change]:
    """Apply agents and bindings alone."""
    outcome = await directory.apply(Declared.of(agents, bindings), dry_run=dry_run)
    return outcome.changes
