"""Retrieved passages in a prompt, and the sentences of them that answer a question.

A passage is recognised as agents usually write one: as an element with a source, or as a numbered
source with its text below.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from host_service.rehearsal.request import ChatRequest
from host_service.rehearsal.wording import subject_terms

_ELEMENT = re.compile(
    r"<(?P<tag>passage|document|source|context)\b(?P<attributes>[^>]*)>(?P<text>.*?)</(?P=tag)>",
    re.DOTALL | re.IGNORECASE,
)
_SOURCE = re.compile(r"""\b(?:source|document|title|name|uri)\s*=\s*["']([^"']+)["']""")
_NUMBERED = re.compile(
    r"^\[\d+\][ \t]*(?P<source>[^\n]+)\n(?P<text>.*?)(?=^\[\d+\]|\Z)", re.DOTALL | re.MULTILINE
)
_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=\S)|(?<=[\u3002\uff01\uff1f])|\n\s*\n|\n(?=[-*#|>])")
_BLANK = re.compile(r"\n\s*\n")
_SPACES = re.compile(r"\s+")
_LONGEST_SENTENCE = 400
_MOST_QUOTES = 3


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document that came with a prompt."""

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence of a passage."""

    source: str
    text: str


def passages_of(request: ChatRequest) -> list[Passage]:
    """Return the passages that came with the newest question, in their order."""
    found = _parted(request.question.text)[0]
    instructions = (each for each in request.messages if each.role in {"system", "developer"})
    return found + [passage for each in instructions for passage in _elements(each.text)]


def question_of(request: ChatRequest) -> str:
    """Return what was asked, without the passages that may stand around it."""
    return _parted(request.question.text)[1]


def quotes(question: str, passages: Sequence[Passage]) -> list[Quote]:
    """Return the sentences that have most of what a question is about, best first.

    Each passage gives one at most; one that has nothing of it gives none.
    """
    asked = subject_terms(question)
    found = []
    for place, passage in enumerate(passages):
        scored = [
            (len(asked & subject_terms(sentence)), -number, sentence)
            for number, sentence in enumerate(_sentences(passage.text))
        ]
        hits, _, best = max(scored, default=(0, 0, ""))
        if hits:
            # A passage as a whole may be about it where its best sentence says little.
            around = len(asked & subject_terms(passage.text))
            found.append((-hits, -around, place, Quote(passage.source, best)))
    return [quote for *_, quote in sorted(found, key=lambda each: each[:3])][:_MOST_QUOTES]


def _parted(text: str) -> tuple[list[Passage], str]:
    """Return the passages in a message, and the question that is left of it."""
    elements = _elements(text)
    if elements:
        return elements, _last_block(_ELEMENT.sub("\n\n", text))
    # Numbered passages have no end: what was asked is the paragraph behind them.
    question = _last_block(text)
    before = text.rstrip().removesuffix(question)
    numbered = [
        Passage(each["source"].strip(), each["text"].strip()) for each in _NUMBERED.finditer(before)
    ]
    return (numbered, question) if numbered else ([], text.strip())


def _last_block(text: str) -> str:
    return _BLANK.split(text.strip())[-1].strip()


def _elements(text: str) -> list[Passage]:
    return [
        Passage(_source(each["attributes"]), each["text"].strip())
        for each in _ELEMENT.finditer(text)
    ]


def _source(attributes: str) -> str:
    named = _SOURCE.search(attributes)
    return named[1] if named else "a passage without a name"


def _sentences(text: str) -> list[str]:
    parts = (_SPACES.sub(" ", part).strip(" #*->|") for part in _SENTENCES.split(text))
    return [
        part if len(part) <= _LONGEST_SENTENCE else f"{part[:_LONGEST_SENTENCE]}…"
        for part in parts
        if part
    ]
