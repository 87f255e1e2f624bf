"""Rankings over the common `/rerank` shape, in the spellings of those who serve it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from host_service.models.failures import Kind, failed, failure_of_record

#: What a provider misses that does not know `documents`.
TEXTS = "`texts`"

_LISTS = ("results", "data", "rankings")
_SCORES = ("relevance_score", "score")


def read_ranking(body: str, count: int) -> tuple[Sequence[tuple[int, float]], object]:
    """Return index and score of documents, most relevant first, and the report of usage.

    Args:
        body: The answer: `results` (or a bare list) of `index` and `relevance_score` or `score`.
        count: How many documents there were.

    Raises:
        ProviderFailure: It is an error, or no ranking of these documents.
    """
    try:
        content: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise failed(Kind.BAD_ANSWER, f"no JSON: {body}") from None
    usage: object = None
    if isinstance(content, Mapping):
        if content.get("error"):
            raise failure_of_record(content)
        usage = _usage(content)
        content = next((content[name] for name in _LISTS if name in content), None)
    if not isinstance(content, list):
        raise failed(Kind.BAD_ANSWER, "no list of results")
    places: dict[int, float] = {}
    for entry in content:
        index, score = _place(entry)
        if not 0 <= index < count or index in places:
            raise failed(Kind.BAD_ANSWER, f"a result for document {index} of {count}")
        places[index] = score
    return sorted(places.items(), key=lambda place: (-place[1], place[0])), usage


def _place(entry: object) -> tuple[int, float]:
    values = entry if isinstance(entry, Mapping) else {}
    index = values.get("index")
    score = next((values[name] for name in _SCORES if name in values), None)
    if (
        isinstance(index, int)
        and isinstance(score, int | float)
        and not isinstance(index, bool)
        and math.isfinite(score)
    ):
        return index, float(score)
    raise failed(Kind.BAD_ANSWER, "a result without `index` or `relevance_score`")


def _usage(content: Mapping[str, Any]) -> object:
    usage = content.get("usage")
    if not isinstance(usage, Mapping):
        meta = content.get("meta")
        usage = meta.get("tokens") if isinstance(meta, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    # All that is counted is read: nothing is written.
    return {"prompt_tokens": usage.get("total_tokens"), **usage}
