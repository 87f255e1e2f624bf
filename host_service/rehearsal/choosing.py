"""Which of the offered tools a message asks for: the one whose words it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from host_service.rehearsal.request import OfferedTool
from host_service.rehearsal.wording import is_of_pairs, subject_terms

# A word of the name says as much as two of the description. Less than this is by chance.
_NAME_WEIGHT = 2.0
_ENOUGH = 2.0
# What every other tool's description has as well tells none of them apart.
_SHARED_WEIGHT = 0.5


def choose_tool(
    text: str, tools: Sequence[OfferedTool], *, already: Collection[str] = ()
) -> OfferedTool | None:
    """Return the tool that a message asks for; None where none fits.

    Args:
        text: The message.
        tools: The tools on offer.
        already: Names of those that were called for it. What they were called for is done: another
            one is chosen only for what the message has beside.
    """
    asked = subject_terms(text)
    for tool in tools:
        if tool.name in already:
            asked -= _described(tool)
    described = Counter(term for tool in tools for term in _described(tool))
    best, most = None, 0.0
    for tool in tools:
        if tool.name in already:
            continue
        found = _score(asked, tool, described)
        if found > most:
            best, most = tool, found
    return best if most >= _ENOUGH else None


def _described(tool: OfferedTool) -> frozenset[str]:
    return subject_terms(_spoken(tool.name)) | subject_terms(tool.description)


def _score(asked: frozenset[str], tool: OfferedTool, described: Counter[str]) -> float:
    named = subject_terms(_spoken(tool.name))
    hits = [_NAME_WEIGHT * _told_apart(described[term]) for term in asked & named]
    for term in asked & (subject_terms(tool.description) - named):
        weight = _NAME_WEIGHT if is_of_pairs(term) else 1.0
        hits.append(weight * _told_apart(described[term]))
    # Words that all tools of a server share may add to a choice, and never are one.
    return sum(hits)


def _told_apart(tools: int) -> float:
    return 1.0 if tools == 1 else _SHARED_WEIGHT


def _spoken(name: str) -> str:
    return name.replace("_", " ").replace("-", " ")
