"""What every servicer does with a request: check it, page by it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import Message

from host_service.errors import FieldFault, InvalidArgument, PayloadTooLarge
from host_service.limits import Limits
from host_service.validation import Validator

Item = TypeVar("Item")


class RequestCheck:
    """Refuses requests that break the contract's rules.

    Args:
        validator: Knows the rules.
    """

    def __init__(self, *, validator: Validator) -> None:
        self._validator = validator

    def require(self, request: Message) -> None:
        """Return if a request may pass.

        Raises:
            PayloadTooLarge: A field is larger than its limit.
            InvalidArgument: Fields break rules; all of them are named.
        """
        violations = self._validator.find_violations(request)
        if not violations:
            return
        for each in violations:
            if each.size is not None and each.limit is not None:
                raise PayloadTooLarge(each.field, size_bytes=each.size, limit_bytes=each.limit)
        raise InvalidArgument([FieldFault(each.field, each.rule, each.got) for each in violations])


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
        if not 0 <= page_size <= self._limits.page_items:
            rule = f"0 (for {self._limits.page_default_items}) to {self._limits.page_items}"
            raise InvalidArgument([FieldFault("page_size", rule, str(page_size))])
        return page_size or self._limits.page_default_items

    def issue(self, request: Message, cursor: str | None) -> str:
        """Return the token of the page after a cursor; empty at the end."""
        if cursor is None:
            return ""
        text = json.dumps([_fingerprint(request), cursor])
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def read(self, request: Message) -> str | None:
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
        if not isinstance(cursor, str) or self.issue(request, cursor) != token:
            raise foreign_token("another text, or a token of another query")
        return cursor


def page_of(
    items: Sequence[Item], *, cursor: str | None, size: int, keys: Sequence[str]
) -> tuple[Sequence[Item], str | None]:
    """Return a page of a short list that is ordered by its keys, and the cursor of the next one."""
    start = (
        0 if cursor is None else next((i for i, key in enumerate(keys) if key > cursor), len(keys))
    )
    end = start + size
    return items[start:end], keys[end - 1] if end < len(items) else None


def _fingerprint(request: Message) -> str:
    same = type(request)()
    same.CopyFrom(request)
    # Neither decides which items there are.
    same.ClearField("page_token")
    same.ClearField("page_size")
    encoded = same.DESCRIPTOR.full_name.encode() + same.SerializeToString(deterministic=True)
    return hashlib.sha256(encoded).hexdigest()[:16]


def foreign_token(got: str) -> InvalidArgument:
    """Return the error for a page token that is not the query's."""
    return InvalidArgument([FieldFault("page_token", "the next_page_token of the same query", got)])
