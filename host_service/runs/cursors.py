"""Cursors of the transcript: places in one conversation and thread, opaque to everybody else.

A cursor is a position, and beside it a digest of the conversation that it is a position of, so that
one of another conversation is known for what it is. It holds for any query.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

# 60 bits: enough that no two conversations of one host share it by chance.
_DIGITS = 15
_CURSOR = re.compile(rf"p([1-9][0-9]{{0,17}})-([0-9a-f]{{{_DIGITS}}})", re.ASCII)


class ForeignCursor(Exception):
    """A cursor of another conversation or thread."""


class MalformedCursor(ValueError):
    """A text that is no cursor."""


@dataclass(frozen=True, slots=True)
class Cursors:
    """The cursors of one conversation and thread.

    Attributes:
        mark: What all of them end in.
    """

    mark: str

    @classmethod
    def of(cls, conversation_key: str) -> Cursors:
        """Return the cursors of a conversation."""
        return cls(hashlib.sha256(conversation_key.encode()).hexdigest()[:_DIGITS])

    def encode(self, position: int) -> str:
        """Return the cursor of a position, the same wherever it is made."""
        return f"p{position}-{self.mark}"

    def decode(self, cursor: str) -> int:
        """Return the position of a cursor.

        Raises:
            MalformedCursor: It is none.
            ForeignCursor: It is one of another conversation.
        """
        found = _CURSOR.fullmatch(cursor)
        if found is None:
            raise MalformedCursor(cursor)
        if found[2] != self.mark:
            raise ForeignCursor(cursor)
        return int(found[1])
