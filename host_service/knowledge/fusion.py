"""One ranking out of several, which score by measures that have nothing in common.

Reciprocal rank fusion: a passage has, for each ranking, the weight of that ranking over a constant
and its rank. BM25 has no upper end and a cosine hardly a lower one, so that a sum of both, however
they are normalised, depends on what else was found; ranks do not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Item = TypeVar("Item")

# The constant of the method's authors. The larger it is, the more counts that a passage is in both.
_RANK_CONSTANT = 60


def fuse(
    rankings: Sequence[tuple[Sequence[Item], Callable[[Item], float]]],
    *,
    key: Callable[[Item], Hashable],
) -> list[tuple[Item, float]]:
    """Return all items of some rankings with their scores, best first.

    A score is above 0, and 1 for what is first in rankings whose weights are 1 together. Of equal
    scores, what comes first in an earlier ranking comes first.

    Args:
        rankings: Each with what it found, best first, and the weight that it has for an item.
        key: Tells whether two items are the same.
    """
    items: dict[Hashable, Item] = {}
    scores: dict[Hashable, float] = {}
    for ranking, weight in rankings:
        for rank, item in enumerate(ranking):
            items.setdefault(key(item), item)
            share = weight(item) * (_RANK_CONSTANT + 1) / (_RANK_CONSTANT + 1 + rank)
            scores[key(item)] = scores.get(key(item), 0.0) + share
    ordered = sorted(scores, key=lambda each: -scores[each])
    return [(items[each], scores[each]) for each in ordered]
