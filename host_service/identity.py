"""Ids that the host makes, and keys that it builds of other people's ids."""

from __future__ import annotations

from uuid_utils import uuid7


def new_id() -> str:
    """Return a new UUIDv7 as text: ids of later times sort later."""
    return str(uuid7())


def join_key(*parts: str) -> str:
    """Return one text for several such that no two different lists share one.

    Each part stands behind its length, so a part may hold any character.
    """
    return "".join(f"{len(part)}:{part}" for part in parts)
