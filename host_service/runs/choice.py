"""How a run came to its agent, as the ledger keeps it: a text, written with the acceptance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from host_service.agents.resolution import Found, Match, Rank

_BINDING, _CALLER, _REPLAY = "binding", "caller", "replay"


@dataclass(frozen=True, slots=True)
class ByBinding:
    """A binding won.

    Attributes:
        winner: The one that did.
        beaten: Others that matched, the best first.
    """

    winner: Match
    beaten: tuple[Match, ...] = ()


@dataclass(frozen=True, slots=True)
class ByCaller:
    """The caller named the agent."""


@dataclass(frozen=True, slots=True)
class ByReplay:
    """An operator had a run replayed.

    Attributes:
        side_effects: Whether what the replay did had effects.
        runner_address: The address that was called; empty: an instance that the host knows.
    """

    side_effects: bool
    runner_address: str = ""


Choice = ByBinding | ByCaller | ByReplay


def by_found(found: Found) -> ByBinding:
    """Return the choice that a resolution means."""
    return ByBinding(Match(found.binding.id, found.rank), found.beaten)


# Most events of an agent come to it in the same way.
@lru_cache(maxsize=256)
def choice_text(choice: Choice) -> str:
    """Return a choice as the ledger keeps it."""
    if isinstance(choice, ByBinding):
        document: dict[str, Any] = {
            "by": _BINDING,
            "matches": [
                [match.binding_id, *match.rank] for match in (choice.winner, *choice.beaten)
            ],
        }
    elif isinstance(choice, ByReplay):
        document = {
            "by": _REPLAY,
            "side_effects": choice.side_effects,
            "runner_address": choice.runner_address,
        }
    else:
        document = {"by": _CALLER}
    return json.dumps(document, ensure_ascii=False)


def read_choice(text: str | None) -> Choice | None:
    """Return the choice that was kept; None for none, and for one of a later version."""
    document: Mapping[str, Any] = json.loads(text) if text else {}
    match document.get("by"):
        case "binding":
            winner, *beaten = [
                Match(binding_id, Rank(scope, pattern, filters))
                for binding_id, scope, pattern, filters in document["matches"]
            ]
            return ByBinding(winner, tuple(beaten))
        case "caller":
            return ByCaller()
        case "replay":
            return ByReplay(document["side_effects"], document["runner_address"])
    return None


def lost_by(beaten: Rank, winner: Rank) -> str:
    """Return by what a match lost: the first that tells the two apart."""
    if beaten.scope != winner.scope:
        return "scope"
    return "pattern" if beaten.pattern != winner.pattern else "filters"
