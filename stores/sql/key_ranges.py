"""Keys that begin alike, as a range of keys.

A range is found by an index on either engine, whatever characters the keys hold: nothing in a
prefix is a pattern.
"""

from __future__ import annotations

from stores.sql.values import ID_BYTES

# Keys are compared by their bytes and have at most 255 of them, so that this is above every key.
_ABOVE_ALL = "\U0010ffff" * (ID_BYTES // 4 + 1)

_SURROGATES = range(0xD800, 0xE000)


def key_range(prefix: str, after: str | None) -> dict[str, str]:
    """Return values for `from_key <= key < below_key and key != behind_key`.

    Args:
        prefix: How the keys begin.
        after: The key behind which they begin, if any.
    """
    # Texts compare by code points, which is the order of their bytes in UTF-8.
    start = max(prefix, after or "")
    return {"from_key": start, "behind_key": after or "", "below_key": above_prefix(prefix)}


def above_prefix(prefix: str) -> str:
    """Return a text above every key that begins so, and above no greater key."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return _ABOVE_ALL
    following = ord(stem[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return stem[:-1] + chr(following)
