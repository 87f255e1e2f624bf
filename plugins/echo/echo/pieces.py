"""Cuts text into pieces that a reader can be shown one after another.

Joined again they are the text, byte for byte. No cut falls inside what a reader sees as one
character (an extended grapheme cluster of Unicode's UAX #29): where in doubt, there is no cut.
"""

import unicodedata
from collections.abc import Iterator

_LONGEST = 12
"""How many characters a piece of a text without spaces has, if it can be cut there."""

_JOINERS = ("\u200d", "\u200c")


def pieces(text: str) -> Iterator[str]:
    """Yields the words of a text, each with the space behind it; long words in several pieces."""
    start = 0
    for end in range(1, len(text)):
        word_ends = text[end - 1].isspace() and not text[end].isspace()
        if (word_ends or end - start >= _LONGEST) and _may_cut(text[end - 1], text[end]):
            yield text[start:end]
            start = end
    if text:
        yield text[start:]


def _may_cut(before: str, after: str) -> bool:
    """Returns whether two characters surely belong to different clusters."""
    if before == "\r" or before in _JOINERS:
        return False
    return _stands_alone(before, ending=True) and _stands_alone(after, ending=False)


def _stands_alone(character: str, *, ending: bool) -> bool:
    category = unicodedata.category(character)
    if category[0] in "NPZ":
        return True
    if category == "Cc":
        return True
    if category[0] == "L":
        # Hangul letters join into syllables; letters that modify the next one are rare and old.
        return not "\u1100" <= character <= "\u11ff" and not "\ua960" <= character <= "\ud7fb"
    # Symbols are emoji, which marks and joiners may follow; regional indicators pair up.
    return ending and category == "So" and not "\U0001f1e6" <= character <= "\U0001f1ff"
