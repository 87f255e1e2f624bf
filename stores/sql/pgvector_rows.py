"""Vectors as PostgreSQL takes them, in the binary form of COPY and pgvector's own of `halfvec`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stores.sql.knowledge_vectors import of_one_length

# Signature, flags, and the length of a further header.
_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TAIL = b"\xff\xff"


def packed_rows(rows: Sequence[tuple[int, bytes]], dimensions: int) -> bytes:
    """Return rows of a number and a vector, which is divided by its length.

    Args:
        rows: The number of a chunk, and its vector.
        dimensions: How many numbers each vector has.
    """
    packed = np.zeros(
        len(rows),
        [
            ("fields", ">i2"),
            ("number_bytes", ">i4"),
            ("number", ">i8"),
            ("vector_bytes", ">i4"),
            ("dimensions", ">i2"),
            ("unused", ">i2"),
            ("vector", ">f2", (dimensions,)),
        ],
    )
    packed["fields"] = 2
    packed["number_bytes"] = 8
    packed["number"] = [number for number, _ in rows]
    packed["vector_bytes"] = 4 + 2 * dimensions
    packed["dimensions"] = dimensions
    packed["vector"] = of_one_length([vector for _, vector in rows], dimensions)
    return _HEAD + packed.tobytes() + _TAIL
