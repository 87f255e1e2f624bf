"""How long a workspace keeps its content, and removing what it does not keep.

A workspace's policy is the catalogue's item of kind `policy` with its id; of the document the
retention reads `retention`, and nothing else::

    {"retention": {"max_age_seconds": 7776000, "max_items_per_conversation": 10000}}

What is removed, once it is older than the age:

- transcript items, with what they are found by;
- runs that have ended, with their results, log entries, event, actions and remaining transcript
  items;
- events that started no run;
- artifacts whose run is gone or that have none, that neither a transcript item nor an agent
  mentions, that are no document's, and in whose conversation no run is active;
- values of state, by when they were written last.

Beyond the newest items that a conversation may have, older ones are removed whatever their age.
Blobs go by `Artifacts.collect_orphans`, agent snapshots with the last run that has them. The audit,
the catalogue, keys, storage and knowledge stay: they are not conversations.

Promises:

- A run that has not ended is not touched, nor are its event, its transcript items and its results.
- No reference is left to nothing: a run goes in one transaction with its event, and artifacts
  after whatever mentions them.
- It goes in small transactions with pauses between them, beside running hosts. It may end at any
  point: what is done is whole, and the next purge goes on.
- Positions, numbers and versions are not used again: conversations go on behind their last
  position, state above its last version.
- Whatever waits for approval when its run is removed is removed with it: nobody said yes in time.
- The id of a removed event is forgotten. An event that is delivered again after that is a new one,
  and starts a run: the age is for how long deliveries are told apart, and is a day at least. So is
  the idempotency key of an action forgotten that is removed with its run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from stores.errors import InvalidRecord

SHORTEST_AGE_SECONDS: Final = 86_400
_LONGEST_AGE_SECONDS: Final = 100 * 366 * 86_400
_MOST_ITEMS: Final = 2**31 - 1
_NAME: Final = "retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """What a workspace keeps.

    Attributes:
        max_age_seconds: How long; at least a day. `None`: for ever.
        max_items_per_conversation: How many transcript items a conversation keeps, at least one.
            `None`: all.
    """

    max_age_seconds: int | None = None
    max_items_per_conversation: int | None = None

    def __post_init__(self) -> None:
        _check("max_age_seconds", self.max_age_seconds, SHORTEST_AGE_SECONDS, _LONGEST_AGE_SECONDS)
        _check("max_items_per_conversation", self.max_items_per_conversation, 1, _MOST_ITEMS)

    @classmethod
    def parse(cls, document: str) -> RetentionPolicy | None:
        """Return what a policy's document says of retention; `None` if nothing.

        Raises:
            InvalidRecord: It says what cannot be.
        """
        content = json.loads(document)
        told = content.get(_NAME) if isinstance(content, Mapping) else None
        if told is None:
            return None
        if not isinstance(told, Mapping):
            raise InvalidRecord("policy", _NAME, "must be an object")
        if unknown := sorted(told.keys() - cls.__dataclass_fields__.keys()):
            raise InvalidRecord("policy", f"{_NAME}.{unknown[0]}", "is not known")
        return cls(**told)

    def within(self, document: str | None) -> str:
        """Return a policy's document with this retention, and all else as it was."""
        content: Any = json.loads(document) if document else {}
        if not isinstance(content, dict):
            raise InvalidRecord("policy", "document", "must be an object")
        told = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps({**content, _NAME: told}, ensure_ascii=False)


def _check(name: str, value: object, least: int, most: int) -> None:
    if value is None:
        return
    if type(value) is not int or not least <= value <= most:
        rule = f"must be a whole number from {least} to {most}"
        raise InvalidRecord("policy", f"{_NAME}.{name}", rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """How many of each were removed; of a trial, about how many would be."""

    items: int = 0
    runs: int = 0
    results: int = 0
    log_entries: int = 0
    actions: int = 0
    events: int = 0
    artifacts: int = 0
    state_values: int = 0
    agent_snapshots: int = 0

    def __add__(self, other: Purged) -> Purged:
        mine, others = asdict(self), asdict(other)
        return Purged(**{name: mine[name] + others[name] for name in mine})


class Retention(Protocol):
    """Removes what is no longer to be kept."""

    async def purge(
        self,
        workspace: str,
        *,
        before: datetime | None = None,
        max_items: int | None = None,
        dry_run: bool = False,
        batch: int = 200,
    ) -> Purged:
        """Remove what a workspace does not keep.

        Args:
            workspace: The workspace.
            before: What is older than this goes; `None`: nothing for its age.
            max_items: How many items a conversation keeps; `None`: all.
            dry_run: Only count. What goes because something else would is then counted by what
                is known before, so that the numbers are about right.
            batch: How many rows a transaction removes at most, 1 to 10,000.
        """

    async def workspaces(self) -> list[str]:
        """Return all workspaces that have content, in order."""

    async def policies(self) -> dict[str, RetentionPolicy]:
        """Return the retention of each workspace that has an enabled policy with one.

        Raises:
            InvalidRecord: A policy says what cannot be.
        """

    async def set_policy(self, workspace: str, policy: RetentionPolicy) -> None:
        """Set a workspace's retention; what else its policy says stays as it is.

        Raises:
            InvalidRecord: The workspace cannot be one, or its policy is no JSON object.
            RevisionConflict: Somebody else changed the policy at the same time.
        """
