"""How large single values may be."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Bounds that the stores enforce themselves; `ValueTooLarge` names size and limit.

    Attributes:
        state_value_bytes: A value of state, as JSON in UTF-8.
        storage_value_bytes: A value of storage.
        secret_bytes: A secret, in UTF-8.
        vector_cache_bytes: Vectors of knowledge that are kept in memory.
        unindexed_passages: Passages of a knowledge base whose vectors are compared one by one; of
            one with more, PostgreSQL indexes them, where it has the extension pgvector.
    """

    state_value_bytes: int = 256 * KIB
    storage_value_bytes: int = 3 * MIB
    secret_bytes: int = 64 * KIB
    vector_cache_bytes: int = 512 * MIB
    unindexed_passages: int = 300_000
