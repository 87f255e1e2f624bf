"""What a text is about: its terms, without the words that every sentence has."""

from __future__ import annotations

from collections.abc import Iterable

from stores.search_text import terms


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EVERYDAY = _words(
    """
    a about all also am an and any are as at be been but by can could did do does for from get give
    had has have her here hers him his how i if in into is it its let like may me might mine more
    must my no not now of on one or our ours out over please shall she should show so some tell than
    thank thanks that the their them then there these they this those to too up us use used uses
    using very want was we were what when where which while who whom whose why will with would you
    your yours
    given return returns tool call value values string number input output optional default
    """
)
_EVERYDAY_PAIRS = _words(
    """
    什么 怎么 怎样 如何 为什 哪里 哪个 哪些 多少 一下 一个 这个 那个 可以 能否 请问 请你 帮我
    给我 告诉 诉我 我们 你们 他们 它们 以及 或者 并且 因为 所以 但是 如果 是否 没有 的是 是什
    么样 今天 现在 です ます ください して する した から まで これ それ あれ とは
    입니 니다 에서 으로
    """
)
# A letter that stands for an ending, longest first.
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ed", "es", "s", "e", "y")
_SHORTEST_STEM = 3


def subject_terms(text: str) -> frozenset[str]:
    """Return the terms that say what a text is about, words without their endings.

    Words of spaced scripts stand for themselves; all else is there as pairs of neighbours.
    """
    return frozenset(_subject(terms(text)))


def _subject(found: Iterable[str]) -> Iterable[str]:
    for term in found:
        if term in _EVERYDAY or term in _EVERYDAY_PAIRS:
            continue
        if term.isascii():
            if term.isalnum() and (len(term) > 1 or term.isdigit()):
                yield _stem(term)
        elif len(term) > 1 and term.isalnum():
            yield term


def is_of_pairs(term: str) -> bool:
    """Return whether a term is a piece of a text without spaces, and so weighs as a word does."""
    return not term.isascii()


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word.removesuffix(ending)
    return word
