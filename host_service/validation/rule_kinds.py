"""The kinds of rules.

Each says itself in the words of the contract's comments, and says of a value that breaks it what
is seen there: its shape, and never its content where that may be long or private.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from google.protobuf.message import Message

from host_service.validation.json_text import find_json_fault

KIB = 1024
MIB = 1024 * KIB

_LONGEST_SHOWN = 64


class Rule(Protocol):
    """A rule that a field's value must satisfy."""

    @property
    def words(self) -> str:
        """The rule as the field's comment in the contract says it."""

    def fault(self, value: Any, /) -> str | None:
        """Returns the shape of a value that breaks the rule, or None for one that does not."""


@dataclass(frozen=True, slots=True)
class Required:
    """A text or list is not empty, a message or oneof is set, an enum has a value that is known."""

    words: str = field(default="required", init=False)

    def fault(self, value: Any) -> str | None:
        """Judges texts, bytes, lists and maps; of others only the message around them can tell."""
        return None if value else "not set"


@dataclass(frozen=True, slots=True)
class Length:
    """A text's length in bytes of UTF-8."""

    minimum: int
    maximum: int

    @property
    def words(self) -> str:
        """For example `1 to 255 bytes`."""
        if self.minimum:
            return f"{self.minimum} to {self.maximum} bytes"
        return f"up to {self.maximum} bytes"

    def fault(self, value: str) -> str | None:
        """Counts the bytes."""
        size = len(value.encode())
        if self.minimum <= size <= self.maximum:
            return None
        return f"string of {size} bytes" if size else "not set"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text matches a regular expression as a whole."""

    expression: str
    words: str
    # A pattern has no state; compiled here, it is not looked up again for every value.
    fullmatch: Callable[[str], re.Match[str] | None] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fullmatch", re.compile(self.expression).fullmatch)

    def fault(self, value: str) -> str | None:
        """Shows a short identifier as it is, so that a slip of the pen is seen at once."""
        return None if self.fullmatch(value) else show_identifier(value)


@dataclass(frozen=True, slots=True)
class Json:
    """A text is one JSON value."""

    only_object: bool = False

    @property
    def words(self) -> str:
        """What the text must hold."""
        return "a JSON object" if self.only_object else "a JSON value"

    def fault(self, value: str) -> str | None:
        """Says what is wrong with the text, and where, without showing it."""
        found = find_json_fault(value, only_object=self.only_object)
        return str(found) if found else None


@dataclass(frozen=True, slots=True)
class Count:
    """The number of entries of a list."""

    minimum: int
    maximum: int | None = None

    @property
    def words(self) -> str:
        """For example `1 to 1000`."""
        return f"{self.minimum} to {self.maximum}" if self.maximum else "at least one"

    def fault(self, value: Sequence[Any]) -> str | None:
        """Counts the entries."""
        count = len(value)
        if self.minimum <= count and (self.maximum is None or count <= self.maximum):
            return None
        return _counted(count, "entry", "entries")


@dataclass(frozen=True, slots=True)
class Each:
    """Every entry of a list satisfies a rule."""

    rule: Rule
    words: str = field(init=False)

    def __post_init__(self) -> None:
        words = self.rule.words
        object.__setattr__(self, "words", f"each {words}" if words[0].isdigit() else words)

    def fault(self, value: Any) -> str | None:
        """Judges one entry."""
        return self.rule.fault(value)


@dataclass(frozen=True, slots=True)
class Unique:
    """No two messages of a list have the same value in one field."""

    key: str
    words: str

    def fault(self, value: Sequence[Message]) -> str | None:
        """Says which entry repeats which."""
        seen: dict[str, int] = {}
        for index, entry in enumerate(value):
            first = seen.setdefault(getattr(entry, self.key), index)
            if first != index:
                return f"entries {first} and {index} with the same {self.key}"
        return None


@dataclass(frozen=True, slots=True)
class MetadataEntries:
    """The bounds of every metadata map."""

    entries: int = 64
    key: Length = Length(1, 128)
    value: Length = Length(0, 1024)

    @property
    def words(self) -> str:
        """The bounds in one sentence."""
        return (
            f"up to {self.entries} entries, keys of {self.key.words}, values of {self.value.words}"
        )

    def fault(self, value: Mapping[str, str]) -> str | None:
        """Names the first bound that is broken, and a key only when it is short."""
        if len(value) > self.entries:
            return f"{len(value)} entries"
        for key in value:
            text = value[key]
            if self.key.fault(key):
                return f"a key of {len(key.encode())} bytes"
            if self.value.fault(text):
                return f"a value of {len(text.encode())} bytes under {show_identifier(key)}"
        return None


@dataclass(frozen=True, slots=True)
class Range:
    """A number's bounds. Zero in a field without presence means that it is not set.

    Attributes:
        minimum: The smallest number.
        maximum: The largest, or None.
        name: The setting that moves the largest, as `GetHostResponse.limits` lists it.
    """

    minimum: int
    maximum: int | None = None
    name: str | None = None

    @property
    def words(self) -> str:
        """For example `at most 100`."""
        return f"at least {self.minimum}" if self.maximum is None else f"at most {self.maximum}"

    def at(self, limits: Mapping[str, int | float]) -> "Range":
        """Returns the rule with the limit that an operator set, where there is one."""
        if self.name is not None and self.name in limits:
            return replace(self, maximum=int(limits[self.name]))
        return self

    def fault(self, value: int) -> str | None:
        """Shows the number."""
        if self.minimum <= value and (self.maximum is None or value <= self.maximum):
            return None
        return str(value)


@dataclass(frozen=True, slots=True)
class MaxSize:
    """A size that an operator may set: what is larger is PAYLOAD_TOO_LARGE, not INVALID_ARGUMENT.

    Attributes:
        limit: The largest size in bytes.
        name: The setting, as `GetHostResponse.limits` lists it.
        uncounted: Path of a field of bytes that does not count.
    """

    limit: int
    name: str
    uncounted: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """For example `at most 256 KiB`."""
        return f"at most {show_size(self.limit)}"

    def at(self, limits: Mapping[str, int | float]) -> "MaxSize":
        """Returns the rule with the limit that an operator set, where there is one."""
        return replace(self, limit=int(limits.get(self.name, self.limit)))

    def measure(self, value: Any) -> int:
        """Returns the size in bytes of a text, bytes, a message, or a range that is asked for."""
        if isinstance(value, int):
            return value
        if isinstance(value, str):
            return len(value.encode())
        if isinstance(value, Message):
            return value.ByteSize() - self._size_not_counted(value)
        return len(value)

    def fault(self, value: Any) -> str | None:
        """Shows the size."""
        size = self.measure(value)
        return f"{size} bytes" if size > self.limit else None

    def _size_not_counted(self, message: Any) -> int:
        if not self.uncounted:
            return 0
        for name in self.uncounted[:-1]:
            if not message.HasField(name):
                return 0
            message = getattr(message, name)
        return len(getattr(message, self.uncounted[-1]))


@dataclass(frozen=True, slots=True)
class Digest:
    """Bytes that are a SHA-256 digest."""

    words: str = field(default="32 bytes", init=False)

    def fault(self, value: bytes) -> str | None:
        """Counts the bytes."""
        return None if len(value) == 32 else f"{len(value)} bytes"


@dataclass(frozen=True, slots=True)
class LastPart:
    """A text is the part of another field of the same message that follows its last slash."""

    other: str
    words: str

    def fault_beside(self, value: str, other: str) -> str | None:
        """Judges the value beside the other field's."""
        return None if other.rpartition("/")[2] == value else show_identifier(value)

    def fault(self, _value: str, /) -> str | None:
        """Cannot judge a value alone."""
        return None


@dataclass(frozen=True, slots=True)
class CheckedApart:
    """The field's messages are checked one by one by others, and a bad one costs only itself."""

    words: str = field(default="", init=False)

    def fault(self, _value: Any, /) -> str | None:
        """Leaves the judgement to others."""
        return None


@dataclass(frozen=True, slots=True)
class NotNegative:
    """Holds for every integer and every duration of the contract."""

    words: str = field(default="not negative", init=False)

    def fault(self, value: int) -> str | None:
        """Shows the number."""
        return str(value) if value < 0 else None


@dataclass(frozen=True, slots=True)
class Finite:
    """Holds for every floating-point number of the contract."""

    words: str = field(default="neither NaN nor infinite", init=False)

    def fault(self, value: float) -> str | None:
        """Shows what it is instead of a number."""
        return None if math.isfinite(value) else str(value)


@dataclass(frozen=True, slots=True)
class Instant:
    """Holds for every Timestamp of the contract."""

    words: str = field(default="within the years 1 to 9999", init=False)

    def fault(self, value: Any) -> str | None:
        """Shows the parts that are out of bounds."""
        if -62135596800 <= value.seconds <= 253402300799 and 0 <= value.nanos <= 999999999:
            return None
        return f"{value.seconds} seconds and {value.nanos} nanoseconds"


@dataclass(frozen=True, slots=True)
class Span:
    """Holds for every Duration of the contract."""

    words: str = field(default="not negative, at most 10000 years", init=False)

    def fault(self, value: Any) -> str | None:
        """Shows the parts that are out of bounds."""
        if 0 <= value.seconds <= 315576000000 and 0 <= value.nanos <= 999999999:
            return None
        return f"{value.seconds} seconds and {value.nanos} nanoseconds"


@dataclass(frozen=True, slots=True)
class PlainText:
    """Holds for every text of the contract, keys and values of maps too."""

    words: str = field(default="free of U+0000", init=False)

    def fault(self, value: str) -> str | None:
        """Says where it is."""
        position = value.find("\0")
        return None if position < 0 else f"U+0000 at character {position + 1}"


def show_size(size: int) -> str:
    """Writes a size as the contract does: `256 KiB`, `2 MiB`, or in bytes when it is not round."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def show_identifier(value: str) -> str:
    """Quotes a short, printable identifier, and tells no more than the length of anything else."""
    if not value:
        return "not set"
    if len(value) <= _LONGEST_SHOWN and value.isprintable():
        return json.dumps(value, ensure_ascii=False)
    return f"string of {len(value.encode())} bytes"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
