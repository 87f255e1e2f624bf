"""Vectors and orders out of the terms of texts: near is what has words in common, no more."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence

from stores.search_text import counted_terms

#: Numbers of a vector.
DIMENSION = 256


def embed(text: str, *, dimension: int = DIMENSION) -> list[float]:
    """Return a vector of length 1 for a text: its terms, each counted at a place of its own.

    Args:
        text: Any text. One without terms has a vector all the same.
        dimension: How many numbers.
    """
    vector = [0.0] * dimension
    for term, count in (counted_terms(text) or Counter({text: 1})).items():
        digest = hashlib.blake2b(term.encode("utf-8", "replace"), digest_size=8).digest()
        place = int.from_bytes(digest, "little")
        # The sign keeps terms that meet at a place from adding up.
        sign = 1.0 if place & 1 else -1.0
        vector[(place >> 1) % dimension] += sign * (1.0 + math.log(count))
    length = math.sqrt(sum(each * each for each in vector)) or 1.0
    return [each / length for each in vector]


def rerank(query: str, documents: Sequence[str]) -> list[tuple[int, float]]:
    """Return places of documents with their scores of 0 to 1, best first, equal ones in order.

    A score is how much of the query a document has; a term counts the more, the fewer documents
    have it.
    """
    asked = set(counted_terms(query))
    having = [set(counted_terms(each)) & asked for each in documents]
    rarity = {
        term: math.log(1.0 + len(documents) / (1 + sum(term in each for each in having)))
        for term in asked
    }
    whole = sum(rarity.values()) or 1.0
    scores = [sum(rarity[term] for term in sorted(each)) / whole for each in having]
    return sorted(enumerate(scores), key=lambda scored: (-scored[1], scored[0]))
