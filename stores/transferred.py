"""What an export or an import tells, while it goes and at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FORMAT = "runmesh-export"
FORMAT_VERSION = 1

Progress = Callable[[str, int], None]
"""Is told what is moved, such as `table runs`, and how much of it by now, from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """What an export or an import moved.

    Attributes:
        digest: The digest over everything, in hexadecimal digits.
        rows: How many rows, of all tables.
        blobs: How many blobs.
        blob_bytes: How many bytes these have.
    """

    digest: str
    rows: int
    blobs: int
    blob_bytes: int
