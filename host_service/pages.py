"""Pages: how many items they have, and the tokens that lead from one to the next."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import Message

from host_service.errors import FieldFault, InvalidArgument
from host_service.identity import join_key
from host_service.limits import Limits

Item = TypeVar("Item")


class PageTokens:
    """Makes and reads page tokens: opaque to clients, good only for the query that made them.

    Args:
        limits: How many items a page has.
    """

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits

    def size(self, page_size: int) -> int:
        """Return how many items to give.

        Raises:
            InvalidArgument: It is negative, or more than a page may have.
        """
        return _size(
            page_size, most=self._limits.page_items, default=self._limits.page_default_items
        )

    def search_size(self, page_size: int) -> int:
        """Return how many items to give of what a search finds, as `size` does."""
        return _size(
            page_size, most=self._limits.search_items, default=self._limits.search_default_items
        )

    def issue(self, request: Message, cursor: str | None, *, within: str = "") -> str:
        """Return the token of the page after a cursor; empty at the end.

        Args:
            request: The query, with or without a token of its own.
            cursor: Where the next page begins.
            within: What the query is about beside what it says, such as the conversation of the
                run that asks: the token is good only there.
        """
        if cursor is None:
            return ""
        text = json.dumps([_fingerprint(request, within), cursor])
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def read(self, request: Message, *, within: str = "") -> str | None:
        """Return the cursor that a request's token stands for; None for the first page.

        Raises:
            InvalidArgument: It is no token, or one of another query.
        """
        token: str = request.page_token  # type: ignore[attr-defined]  # every paged request has it
        if not token:
            return None
        try:
            decoded = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        except (ValueError, RecursionError) as error:
            raise foreign_token("something else") from error
        cursor = decoded[1] if isinstance(decoded, list) and len(decoded) == 2 else None
        # Decoding is lenient: only the very text that would be issued is a token.
        if not isinstance(cursor, str) or self.issue(request, cursor, within=within) != token:
            raise foreign_token("another text, or a token of another query")
        return cursor


def _size(page_size: int, *, most: int, default: int) -> int:
    if not 0 <= page_size <= most:
        rule = f"0 (for {default}) to {most}"
        raise InvalidArgument([FieldFault("page_size", rule, str(page_size))])
    return page_size or min(default, most)


def page_of(
    items: Sequence[Item], *, cursor: str | None, size: int, keys: Sequence[str]
) -> tuple[Sequence[Item], str | None]:
    """Return a page of a short list that is ordered by its keys, and the cursor of the next one."""
    start = (
        0 if cursor is None else next((i for i, key in enumerate(keys) if key > cursor), len(keys))
    )
    end = start + size
    return items[start:end], keys[end - 1] if end < len(items) else None


def descending(key: str) -> str:
    """Return a text that sorts the other way round."""
    return "".join(chr(0x10FFFF - ord(character)) for character in key)


def _fingerprint(request: Message, within: str) -> str:
    same = type(request)()
    same.CopyFrom(request)
    # Neither decides which items there are.
    same.ClearField("page_token")
    same.ClearField("page_size")
    about = join_key(same.DESCRIPTOR.full_name, within).encode()
    return hashlib.sha256(about + same.SerializeToString(deterministic=True)).hexdigest()[:16]


def foreign_token(got: str) -> InvalidArgument:
    """Return the error for a page token that is not the query's."""
    return InvalidArgument([FieldFault("page_token", "the next_page_token of the same query", got)])
