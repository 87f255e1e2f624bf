"""Retrieved passages in a prompt, and the sentences of them that answer a question.

A passage is recognised as agents usually write one: as an element with a source, or as a numbered
source with its text below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
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
_SHORT_SENTENCE = 200
# Begins and ends as sentences do, and as code and headings do not.
_PROSE = re.compile(r"^[^\W\d_a-z].*[.!?\u3002\uff01\uff1f)]$", re.DOTALL)
_PROSE_WEIGHT = 1.5
# Less of a question than this is had by chance.
_LEAST_SHARE = 1 / 3
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

    Each passage gives one at most; one that has little of it gives none.
    """
    asked = subject_terms(question)
    sentences = [_sentences(passage.text) for passage in passages]
    every = [subject_terms(each) & asked for texts in sentences for each in texts]
    rarity = {
        term: math.log(1.0 + len(every) / (1 + sum(term in each for each in every)))
        for term in sorted(asked)
    }
    least = _LEAST_SHARE * sum(rarity.values())
    found = []
    for place, (passage, texts) in enumerate(zip(passages, sentences, strict=True)):
        scored = [(_score(each, rarity), -number, each) for number, each in enumerate(texts)]
        score, _, best = max(scored, default=(0.0, 0, ""))
        if score >= least > 0:
            found.append((-score, place, Quote(passage.source, best)))
    return [quote for *_, quote in sorted(found, key=lambda each: each[:2])][:_MOST_QUOTES]


def _score(sentence: str, rarity: Mapping[str, float]) -> float:
    """Return how well a sentence answers: what it has of the question, in few words, as prose."""
    has = subject_terms(sentence)
    found = sum(weight for term, weight in rarity.items() if term in has)
    beyond = max(0, len(sentence) - _SHORT_SENTENCE) / _SHORT_SENTENCE
    return found * (_PROSE_WEIGHT if _PROSE.search(sentence) else 1.0) / (1.0 + beyond)


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
