"""Pieces of text, and the text that protobuf refuses: halves of surrogate pairs.

A Python string can hold them. They come from decoders that cut a character in two, and from JSON
escapes. A pair that ends up together is the character it stands for; a half that stays alone
becomes U+FFFD.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

_HIGH = range(0xD800, 0xDC00)


class Delta(NamedTuple):
    """A piece of a message's text, or of the reasoning beside it.

    It is the one result that is not a message of the contract yet when it is yielded: most results
    are pieces of text, and one message object can encode them all.
    """

    text: str
    reasoning: bool = False
    message_id: str = ""


def mend(text: str) -> str:
    """Joins surrogate pairs and replaces lone halves by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def mend_all(value: Any) -> Any:
    """Mends every text in a value: in lists, in mappings, and in the keys of mappings."""
    match value:
        case str():
            return mend(value)
        case Mapping():
            return {mend_all(key): mend_all(entry) for key, entry in value.items()}
        case list() | tuple():
            return [mend_all(entry) for entry in value]
        case _:
            return value


class TextMender:
    """Mends the deltas of one run, joining pairs that were cut between two of them."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        # The first halves that wait for their second ones, by kind and message.
        self._held: dict[tuple[bool, str], str] = {}

    def __bool__(self) -> bool:
        """Whether a half waits."""
        return bool(self._held)

    def mend(self, delta: Delta) -> Delta:
        """Returns what can be sent of a delta now, and holds a half at its end."""
        key = (delta.reasoning, delta.message_id)
        text = self._held.pop(key, "") + delta.text
        if text and ord(text[-1]) in _HIGH:
            self._held[key] = text[-1]
            text = text[:-1]
        return delta._replace(text=mend(text))

    def release(self) -> list[Delta]:
        """Gives up the halves that wait: their second ones did not come."""
        held, self._held = self._held, {}
        return [Delta("\ufffd", *key) for key in held]
