"""What a check is."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from host_service.conformance.session import Session


class Reach(enum.Enum):
    """Which runners a check is about."""

    ANY = "any"
    DIALLED = "the kit calls"
    ATTACHED = "attached to the kit"


@dataclass(frozen=True, slots=True)
class Check:
    """One rule of the contract, and how to find out whether a runner keeps it.

    Attributes:
        name: `group.rule`, such as `results.sequence`.
        asks: What must hold, in one sentence.
        source: Where the contract says so, such as `run.proto, RunService.Run`.
        run: Looks. Returns a remark for the report, which may be empty.
        needs_process: Whether the kit must have started the runner's process itself.
        reach: Whether it is about runners that are dialled, that attached, or any.
    """

    name: str
    asks: str
    source: str
    run: Callable[[Session], Awaitable[str]]
    needs_process: bool = False
    reach: Reach = Reach.ANY
