"""One ranking out of several, which score by measures that have nothing in common.

Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): a passage has, for each ranking, the
weight of that ranking over a constant and its rank. BM25 has no upper end and a cosine hardly a
lower one, so that a sum of both, however they are normalised, depends on what else was found; ranks
do not.

The constant is small, unlike the 60 of the method's authors, who joined rankings of a thousand for
lists as long. Here five passages are looked at: what is first or second in either ranking is to be
among them, and not what is twentieth in both. Of the questions in English that the tests ask, the
answer is among the first five for all with 2, and for four fifths with 60; a weighted sum comes
near only with weights made for these very questions, and loses what one ranking alone has found.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Item = TypeVar("Item")

_RANK_CONSTANT = 2


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
