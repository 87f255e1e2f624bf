"""What a call cost, as providers say it: late, repeated, summed up, in parts, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from host_service.models.answers import Usage

_MOST = 2**63 - 1

# Where each count may stand; the first that is there holds.
_PLACES: Mapping[str, Sequence[tuple[str, ...]]] = {
    "input_tokens": (("prompt_tokens",), ("input_tokens",)),
    "output_tokens": (("completion_tokens",), ("output_tokens",)),
    "reasoning_tokens": (
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
        ("reasoning_tokens",),
    ),
    "cache_read_tokens": (
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("prompt_cache_hit_tokens",),
        ("cache_read_input_tokens",),
        ("cached_tokens",),
    ),
    "cache_write_tokens": (
        ("prompt_tokens_details", "cache_write_tokens"),
        ("prompt_tokens_details", "cache_creation_tokens"),
        ("cache_creation_input_tokens",),
    ),
}


class UsageTally:
    """Takes reports of one call; of each count the latest holds, since they are cumulative."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def take(self, report: object) -> None:
        """Take what a provider says; whatever is no report says nothing."""
        counts = dict(_counts(report))
        # A call without any tokens is none: where all are zero, nothing was counted.
        if any(counts.values()):
            self._counts |= counts

    def total(self, model_id: str) -> Usage | None:
        """Return the cost of the call; None: unknown."""
        return Usage(model_id=model_id, **self._counts) if self._counts else None


def reported_usage(model_id: str, *reports: object) -> Usage | None:
    """Return the cost of a call by its reports; None: unknown."""
    tally = UsageTally()
    for report in reports:
        tally.take(report)
    return tally.total(model_id)


def added(model_id: str, parts: Sequence[Usage | None]) -> Usage | None:
    """Return the cost of several calls; what is unknown of one of them is unknown of all."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    sums: dict[str, int] = {}
    for name in _PLACES:
        values = [getattr(part, name) for part in known]
        if None not in values:
            sums[name] = sum(values)
    return Usage(model_id=model_id, **sums)


def _counts(report: object) -> Iterator[tuple[str, int]]:
    for name, places in _PLACES.items():
        for place in places:
            count = _count(report, place)
            if count is not None:
                yield name, count
                break


def _count(report: object, place: tuple[str, ...]) -> int | None:
    value: Any = report
    for name in place:
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        return None
    return value
