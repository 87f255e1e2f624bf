"""What text can be found by: folding, terms, and the rule by which a text answers a query.

Pure functions, the same before either database and for every kind of search: an index holds what
`terms` returns, a query is turned into terms that an item must have, and `Query.matches` decides.

**Folding.** Text and query are compared after `fold`: compatibility forms are resolved (NFKC: full
and half width, ligatures, circled digits), case is folded, marks on Latin, Greek, Cyrillic,
Hebrew and Arabic letters are dropped, so are strokes through Latin letters, and characters that
cannot be seen (joiners, variation selectors, directions) as well as the skin tones of emoji. Marks
that make another letter stay: the vowels of Thai and Hindi, the voicing of Japanese kana.

**Words.** In scripts that put spaces between words, a word is a run of letters and digits. A word
is found whole, or by parts where its writing shows them: `getUserName` by `get`, `userName`
or `name`, `python3` by `python`. It is not found by pieces of a part: `art` does not find `start`.

**Pairs.** Everything else is found by any piece of it, however short: Chinese, Japanese, Korean,
Thai, Hindi and all other scripts, where words join or take endings; emoji; punctuation and
symbols. Its terms are its characters and its pairs of neighbours.

**Query.** A query is words between spaces. All must occur, in any order. Each must occur as it is
written, once folded: `src/main.py` finds only that path, and `C++` not every C. Quotes, brackets
and the punctuation of sentences around a word are passed over, unless it has nothing else. There
is no syntax.

**Bounds.** The first 65,536 characters of a text can be found, and the first 1,024 of a query
count. The Unicode tables are those of the Python that runs, so that a character younger than its
tables is told neither case nor width.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from operator import add

TEXT_CHARACTERS = 65_536
QUERY_CHARACTERS = 1_024

# A word with more parts than this is a code or a key: nobody looks for a part of it.
_PARTS = 8

# Written alike by hand, told apart by Unicode: letters with a stroke, two letters in one, and the
# quotes and dashes of typography.
_ALIKE = str.maketrans(
    dict(zip("đðħ\u0131łøŧ", "ddhilot", strict=True))
    | {"æ": "ae", "œ": "oe"}
    | {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    }
)

_HAS_ALIKE = re.compile("[đðħ\u0131łøŧæœ\u2010-\u2015\u2018-\u201f\u2032\u2033\u2212]")

# Marks that only colour a letter, in scripts of words; what cannot be seen; skin tones.
_DROPPED = re.compile(
    "["
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff"
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
    "\u0898-\u089f\u08ca-\u08e1\u08e3-\u08ff\u135d-\u135f\u1ab0-\u1aff\u1dc0-\u1dff"
    "\u20d0-\u20ff\u2cef-\u2cf1\u2d7f\u2de0-\u2dff\ufe20-\ufe2f"
    "]+"
)

# Letters that may be such a letter and such a mark in one, beside the marks themselves. Most texts
# in English, Chinese, Japanese or Korean have none and need not be taken apart.
_COLOURED = re.compile(
    f"[\u00c0-\u1fff\u2c00-\u2dff\ua640-\ua69f\ua720-\ua7ff\uab30-\uabbf]|{_DROPPED.pattern}"
)

# Scripts whose words are not told apart by spaces alone, or whose vowels are marks, and emoji. What
# is not known to be a script of words is taken for one of these, which finds more, not less.
_PAIRED = (
    "\u0700-\u074f\u0780-\u086f\u0900-\u0963\u0966-\u109f\u1100-\u11ff\u1700-\u1c7f\u1cd0-\u1cff"
    "\u2e80-\u2fff\u3005-\u3007\u3021-\u302f\u3031-\u303c\u303e-\u30fa\u30fc-\ua63f"
    "\ua800-\uab2f\uabc0-\uffff\U00010000-\U0010ffff"
)
# Every character of a folded text that is no space is of exactly one of the three.
_WORD = re.compile(f"[^\\W_{_PAIRED}]+")
_PAIRS = re.compile(f"[{_PAIRED}]+")
_MARKS = re.compile(f"(?:[^\\w\\s{_PAIRED}]|_)+")
_RUN = re.compile(f"{_WORD.pattern}|{_PAIRS.pattern}|{_MARKS.pattern}")

# Where the writing of a word shows its parts: between digits and letters, and at capitals.
_CUT = re.compile(
    "(?<=\\d)(?=[^\\W\\d_])|(?<=[^\\W\\d_])(?=\\d)|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
)
# The same, a character long and quick to look for.
_HAS_CUT = re.compile(
    "[A-Z\\d](?:(?<=[a-z][A-Z])|(?<=[A-Z][A-Z])(?=[a-z])|(?<=[^\\W\\d_]\\d)|(?<=\\d)(?=[^\\W\\d_]))"
)

# What stands around a word in a sentence and is not meant: "(see `this`, or that.)"
_AROUND = "\"'`()[]{}<>,.;:!?¡¿«»\u2039\u203a、。〈〉《》「」『』【】〖〗〝〞〟\u3014\u3015・…·।॥"


def fold(text: str) -> str:
    """Return a text as it is compared: without case, width, and marks that only colour a letter."""
    return _without_case(_plain(text))


def _plain(text: str) -> str:
    """Return a text without compatibility forms and marks that only colour a letter."""
    if text.isascii():
        return text
    composed = unicodedata.normalize("NFKC", text)
    if not _COLOURED.search(composed):
        return composed
    apart = unicodedata.normalize("NFD", composed)
    return unicodedata.normalize("NFC", _DROPPED.sub("", apart))


def _without_case(plain: str) -> str:
    if plain.isascii():
        return plain.lower()
    folded = unicodedata.normalize("NFKC", plain.casefold())
    return folded.translate(_ALIKE) if _HAS_ALIKE.search(folded) else folded


def terms(text: str) -> set[str]:
    """Return the terms by which a text is found."""
    return set().union(*_terms(text[:TEXT_CHARACTERS]))


def counted_terms(text: str) -> Counter[str]:
    """Return the terms of a text with how often each occurs, for ranking."""
    return Counter(chain.from_iterable(_terms(text[:TEXT_CHARACTERS])))


def _terms(text: str) -> Iterator[Iterable[str]]:
    """Yield the terms of a text, many at a time."""
    plain = _plain(text)
    folded = _without_case(plain)
    yield _WORD.findall(folded)
    for pattern in (_MARKS,) if folded.isascii() else (_MARKS, _PAIRS):
        for run in pattern.findall(folded):
            yield run
            if len(run) > 1:
                yield map(add, run, run[1:])
    if _HAS_CUT.search(plain):
        for word in _WORD.findall(plain):
            parts = _CUT.split(word)
            if 1 < len(parts) <= _PARTS:
                yield _joined([_without_case(part) for part in parts])


def _joined(parts: list[str]) -> list[str]:
    """Return every part, and every few that follow each other, but not all of them."""
    count = len(parts)
    return [
        "".join(parts[first:end])
        for first in range(count)
        for end in range(first + 1, count + 1)
        if end - first < count
    ]


@dataclass(frozen=True, slots=True)
class Query:
    """A query, ready to be asked.

    Attributes:
        words: The folded words, each of which must occur as it stands.
        terms: Terms that every text has which the query finds.
    """

    words: tuple[str, ...]
    terms: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> Query:
        """Return the query that a text is. One with no words finds nothing."""
        words = tuple(dict.fromkeys(map(_bare, fold(text[:QUERY_CHARACTERS]).split())))
        return cls(words, frozenset(term for word in words for term in _terms_of_word(word)))

    def matches(self, text: str) -> bool:
        """Return whether a text has all the words."""
        folded = fold(text[:TEXT_CHARACTERS])
        return (
            bool(self.words)
            and all(word in folded for word in self.words)
            and self.terms <= terms(text)
        )


def ranking_terms(text: str, *, most: int) -> tuple[str, ...]:
    """Return the first different terms of a query of which any may occur, for ranking."""
    words = dict.fromkeys(map(_bare, fold(text[:QUERY_CHARACTERS]).split()))
    found = dict.fromkeys(chain.from_iterable(map(_terms_of_word, words)))
    return tuple(islice(found, most))


def _bare(word: str) -> str:
    return word.strip(_AROUND) or word


def _terms_of_word(word: str) -> Iterator[str]:
    for run in _RUN.findall(word):
        if len(run) == 1 or _WORD.match(run):
            yield run
        else:
            yield from map(add, run, run[1:])
