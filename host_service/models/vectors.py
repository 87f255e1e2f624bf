"""Vectors of texts, in batches that providers take."""

from __future__ import annotations

import array
import asyncio
import base64
import binascii
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from host_service.models.failures import Kind, failed, failure_of_record

# Providers bound the tokens of one request; a character is at most a few of them.
_BATCH_CHARACTERS = 100_000
# To read more at once would hold up everybody else.
_READ_IN_PLACE_CHARACTERS = 256 * 1024
_FLOAT_BYTES = 4


def batches(texts: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    """Yield texts in batches of at most so many, and of no more characters than go together."""
    begin, characters = 0, 0
    for index, text in enumerate(texts):
        full = index - begin >= most or characters + len(text) > _BATCH_CHARACTERS
        if full and index > begin:
            yield texts[begin:index]
            begin, characters = index, 0
        characters += len(text)
    if begin < len(texts):
        yield texts[begin:]


async def read_vectors(body: str, count: int) -> tuple[list[Sequence[float]], object]:
    """Return the vectors of an answer in the order of the texts, and its report of usage.

    Args:
        body: The answer.
        count: How many texts there were.

    Raises:
        ProviderFailure: It is an error, or not a vector for each text, all of one length.
    """
    if len(body) <= _READ_IN_PLACE_CHARACTERS:
        return _read(body, count)
    return await asyncio.to_thread(_read, body, count)


def require_one_length(vectors: Sequence[Sequence[float]]) -> None:
    """Raise `ProviderFailure` unless all vectors are of one length."""
    lengths = sorted({len(vector) for vector in vectors})
    if len(lengths) > 1:
        raise failed(Kind.BAD_ANSWER, f"vectors of {lengths[0]} and of {lengths[-1]} numbers")


def _read(body: str, count: int) -> tuple[list[Sequence[float]], object]:
    try:
        content: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise failed(Kind.BAD_ANSWER, f"no JSON: {body}") from None
    if isinstance(content, Mapping) and content.get("error"):
        raise failure_of_record(content)
    entries = content.get("data") if isinstance(content, Mapping) else None
    if not isinstance(entries, list) or len(entries) != count:
        found = len(entries) if isinstance(entries, list) else "no"
        raise failed(Kind.BAD_ANSWER, f"{found} vectors for {count} texts")
    vectors: list[Sequence[float] | None] = [None] * count
    for place, entry in enumerate(entries):
        index = entry.get("index", place) if isinstance(entry, Mapping) else None
        if not isinstance(index, int) or not 0 <= index < count or vectors[index] is not None:
            raise failed(Kind.BAD_ANSWER, f"a vector for text {index!r} of {count}")
        vectors[index] = _vector(entry.get("embedding"))
    whole = [vector for vector in vectors if vector is not None]
    require_one_length(whole)
    return whole, content.get("usage")


def _vector(value: object) -> Sequence[float]:
    if isinstance(value, str):
        return _unpacked(value)
    numbers = value if isinstance(value, list) else []
    if not numbers or not all(
        isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each)
        for each in numbers
    ):
        raise failed(Kind.BAD_ANSWER, "a vector that is no list of numbers")
    return [float(each) for each in numbers]


def _unpacked(text: str) -> Sequence[float]:
    """Return the numbers of a vector that came as base64 of floats, little end first."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data or len(data) % _FLOAT_BYTES:
        raise failed(Kind.BAD_ANSWER, "a vector that is no base64 of floats")
    numbers = array.array("f", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    if not all(map(math.isfinite, numbers)):
        raise failed(Kind.BAD_ANSWER, "a vector with numbers that are not finite")
    return numbers.tolist()
