"""Postings: in which chunks of a block a term stands, and how often.

A posting is four bytes: the chunk's place in its block, and how often the term stands there (65,535
at most), 16 bits each, the lowest byte first. All postings of a term in a block are one row. So a
search reads as many rows as there are blocks, and a document adds one for each of its terms.

A term is 64 bits of its BLAKE2b, so that a term of any length can be indexed, and nothing of a text
is ever seen by a database's own rules for text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from stores.knowledge_records import NewChunk
from stores.search_text import counted_terms
from stores.sql.connection import Connection
from stores.sql.knowledge_blocks import Places

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

POSTING_BYTES = 4
_MOST_COUNTED = 0xFFFF


def term_number(term: str) -> int:
    """Return the number that stands for a term."""
    digest = blake2b(term.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class _Numbers(dict[str, int]):
    """Numbers of terms, each made once."""

    def __missing__(self, term: str) -> int:
        number = self[term] = term_number(term)
        return number


@dataclass(frozen=True, slots=True)
class Postings:
    """The postings of new chunks, in the order of their terms and then of the chunks.

    Attributes:
        lengths: How many terms each chunk has, counted as often as they stand there.
        terms: The term of each posting.
        chunks: Which of the chunks it is of.
        counts: How often the term stands there.
    """

    lengths: tuple[int, ...]
    terms: npt.NDArray[np.int64]
    chunks: npt.NDArray[np.uint16]
    counts: npt.NDArray[np.uint16]

    def within(self, first: int, places: Places) -> Iterator[dict[str, Any]]:
        """Give rows for the chunks that have places, of which `first` is the first."""
        import numpy as np

        chosen = (self.chunks >= first) & (self.chunks < first + places.size)
        terms = self.terms[chosen]
        pairs = np.empty((len(terms), 2), "<u2")
        pairs[:, 0] = self.chunks[chosen].astype(np.int64) - first + places.first
        pairs[:, 1] = self.counts[chosen]
        packed = pairs.tobytes()
        if not packed:
            return
        starts = np.flatnonzero(np.diff(terms, prepend=terms[:1] - 1))
        ends = [*starts[1:].tolist(), len(terms)]
        for term, start, end in zip(terms[starts].tolist(), starts.tolist(), ends, strict=True):
            yield {
                "block": places.block,
                "term": term,
                "postings": packed[start * POSTING_BYTES : end * POSTING_BYTES],
            }


def find_postings(chunks: Sequence[NewChunk]) -> Postings:
    """Return the postings of chunks: of their texts, and of the headings over them."""
    import numpy as np

    numbers = _Numbers()
    terms: list[int] = []
    of_chunk: list[int] = []
    counts: list[int] = []
    lengths: list[int] = []
    for index, chunk in enumerate(chunks):
        counted = counted_terms("\n".join((*chunk.heading, chunk.text)))
        # Most of the work of taking in a document: no step of its own for each term.
        terms.extend(map(numbers.__getitem__, counted))
        counts.extend(counted.values())
        of_chunk += [index] * len(counted)
        lengths.append(counted.total())
    as_terms = np.array(terms, np.int64)
    as_chunks = np.array(of_chunk, np.uint16)
    # Stable: chunks are in order already.
    order = np.argsort(as_terms, kind="stable")
    return Postings(
        lengths=tuple(lengths),
        terms=as_terms[order],
        chunks=as_chunks[order],
        counts=np.minimum(np.array(counts, np.int64), _MOST_COUNTED).astype(np.uint16)[order],
    )


def add_postings(connection: Connection, postings: Postings, taken: Sequence[Places]) -> None:
    """Store the postings of chunks that were given places, in the same order."""
    first = 0
    for places in taken:
        connection.run_many(connection.add_postings, postings.within(first, places))
        first += places.size
