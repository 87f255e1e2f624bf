"""Where a page of keys ends, as page tokens carry it.

A key may be 255 bytes of any text, and a token 1,024. As JSON, some characters of a key take
twelve: so a token carries its bytes.
"""

from __future__ import annotations

from base64 import b85decode, b85encode


def cursor_of_key(key: str | None) -> str | None:
    """Return the cursor of the page behind a key; None for none."""
    return None if key is None else b85encode(key.encode()).decode()


def key_of_cursor(cursor: str | None) -> str | None:
    """Return the key that a cursor stands for."""
    return None if cursor is None else b85decode(cursor).decode()
