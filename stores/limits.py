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
    """

    state_value_bytes: int = 256 * KIB
    storage_value_bytes: int = 3 * MIB
    secret_bytes: int = 64 * KIB
    vector_cache_bytes: int = 512 * MIB
