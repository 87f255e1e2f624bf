"""Where a text may be cut without breaking what a reader takes for one character.

Follows the rules of Unicode Standard Annex 29 for what occurs in documents: combining marks, joined
and coloured emoji, flags, Hangul written in parts, and line ends of two characters.
"""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"
_MARKS = frozenset({"Mn", "Mc", "Me"})
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
_TAGS = range(0xE0020, 0xE0080)
_HANGUL_MIDDLE_AND_LAST = range(0x1160, 0x1200)
# A text that is nothing but marks must be cut somewhere.
_LONGEST = 64


def may_cut(text: str, at: int) -> bool:
    """Return whether no character, as a reader takes it, reaches over a place in a text."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before.isascii() and after.isascii():
        return not (before == "\r" and after == "\n")
    if after == _JOINER or unicodedata.category(after) in _MARKS or before == _JOINER:
        return False
    code = ord(after)
    if code in _SKIN_TONES or code in _TAGS or code in _HANGUL_MIDDLE_AND_LAST:
        return False
    return not (code in _FLAG_LETTERS and _letters_before(text, at) % 2)


def cut_before(text: str, at: int, *, after: int) -> int:
    """Return the last place up to one where a text may be cut; that one itself if none is near.

    Args:
        text: The text.
        at: The latest place.
        after: Only places behind this one.
    """
    for place in range(at, max(after, at - _LONGEST), -1):
        if may_cut(text, place):
            return place
    return at


def _letters_before(text: str, at: int) -> int:
    count = 0
    while count < _LONGEST and count < at and ord(text[at - 1 - count]) in _FLAG_LETTERS:
        count += 1
    return count
