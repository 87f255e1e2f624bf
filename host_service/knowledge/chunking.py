"""Documents to passages.

A passage never reaches over a heading or a page. Within one it ends where a paragraph ends, else a
line, a sentence, a word, and only then between two characters. Each passage is the document's text
from its position on, exactly: nothing is added to it, and what lies between passages is blank.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from host_service.knowledge.document import Part, ReadDocument
from host_service.knowledge.graphemes import cut_before, may_cut

# A better place to cut is looked for in the last part of a passage, the better the further back.
_FROM_PARAGRAPH, _FROM_LINE, _FROM_SENTENCE, _FROM_WORD = 0.4, 0.5, 0.5, 0.75

_PARAGRAPH = re.compile(r"\n[ \t\r]*\n\s*")
_LINE = re.compile(r"\n\s*")
# Full width marks end a sentence by themselves, the others with what is blank behind them.
_SENTENCE = re.compile(
    "[\u3002\uff01\uff1f\uff1b\u2026]+[\u201d\u2019\u300d\u300f\uff09\u3011]*\\s*"
    "|[.!?]+[\"'\u201d\u2019)\\]]*\\s+"
)
_WORD = re.compile("\\s+|(?<=[\uff0c\u3001\uff1a])")
_BLANK = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage: the document's text from `position`, `length` characters long.

    Attributes:
        position: Where it begins in the document's text, in characters.
        length: How many characters it has, at least one.
        part: The part of the document that it is of.
    """

    position: int
    length: int
    part: Part


def cut(document: ReadDocument, *, characters: int, overlap: int) -> Iterator[Passage]:
    """Yield the passages of a document, in their order.

    Args:
        document: What to cut.
        characters: How long a passage may be.
        overlap: How much of a passage the next one may repeat, less than a passage.
    """
    ends = [part.position for part in document.parts[1:]] + [len(document.text)]
    for part, end in zip(document.parts, ends, strict=True):
        for start, stop in _spans(document.text, part.position, end, characters, overlap):
            yield Passage(start, stop - start, part)


def _spans(text: str, start: int, end: int, characters: int, overlap: int) -> Iterator[_Span]:
    """Yield where the passages of one part begin and end."""
    start, end = _after_blank(text, start, end), _before_blank(text, start, end)
    told = start
    while start < end:
        stop = end if end - start <= characters else _find_stop(text, start, start + characters)
        last = _before_blank(text, start, stop)
        if last <= told:
            # All of it was in the passage before: what is repeated leaves no room for more.
            start = _after_blank(text, told, end)
            continue
        yield start, last
        if stop >= end:
            return
        told = last
        following = _find_start(text, last, earliest=max(start + 1, last - overlap))
        start = _after_blank(text, following, end)


_Span = tuple[int, int]


def _find_stop(text: str, start: int, latest: int) -> int:
    """Return where a passage that begins at `start` ends best, `latest` at most."""
    length = latest - start
    for pattern, share in (
        (_PARAGRAPH, _FROM_PARAGRAPH),
        (_LINE, _FROM_LINE),
        (_SENTENCE, _FROM_SENTENCE),
        (_WORD, _FROM_WORD),
    ):
        earliest = start + max(1, int(length * share))
        last = _last_of(pattern.finditer(text, earliest, latest))
        if last is not None and last.end() > start and may_cut(text, last.end()):
            return last.end()
    return cut_before(text, latest, after=start)


def _last_of(found: Iterator[re.Match[str]]) -> re.Match[str] | None:
    last = deque(found, maxlen=1)
    return last[0] if last else None


def _find_start(text: str, stop: int, *, earliest: int) -> int:
    """Return where a passage begins best that follows one which ends at `stop`."""
    if earliest >= stop:
        return stop
    for pattern in (_SENTENCE, _LINE, _WORD):
        found = pattern.search(text, earliest, stop)
        if found is not None and found.end() < stop and may_cut(text, found.end()):
            return found.end()
    return next((at for at in range(earliest, stop) if may_cut(text, at)), stop)


def _after_blank(text: str, start: int, end: int) -> int:
    found = _BLANK.match(text, start, end)
    return found.end() if found is not None else start


def _before_blank(text: str, start: int, end: int) -> int:
    while end > start and text[end - 1].isspace():
        end -= 1
    return end
