"""Texts that are no Unicode, found and mended in a message's bytes.

Protobuf refuses a message with such a text whole, and does not say which field it is in. Programs
in some languages send them all the same: a lone half of a surrogate pair, written as UTF-8 would
write it if it were a character.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor

from host_service.validation.tree import is_map, is_text, join

_VARINT: Final = 0
DELIMITED: Final = 2
"""The wire type of texts, bytes and messages."""
_FIXED_BYTES: Final = {1: 8, 5: 4}
_LONGEST_VARINT: Final = 10
# As deep as protobuf itself reads.
_DEEPEST: Final = 100


class Entry(NamedTuple):
    """A field on the wire.

    Attributes:
        number: The field's number.
        kind: Its wire type.
        content: What it has, without the length that stands before a text or message.
    """

    number: int
    kind: int
    content: bytes


class Malformed(ValueError):
    """The bytes are no message at all."""


@dataclass(frozen=True, slots=True)
class Mended:
    """A message whose texts are Unicode.

    Attributes:
        data: The message on the wire.
        fields: The paths of the texts that were not, such as `event.input.text`.
    """

    data: bytes
    fields: tuple[str, ...]


def mend_texts(data: bytes, descriptor: Descriptor) -> Mended:
    """Replaces what is no Unicode in the texts of a message.

    Two halves of a surrogate pair that stand together become the character that they mean; every
    other fault becomes U+FFFD.

    Args:
        data: A message on the wire.
        descriptor: Which message it is.

    Raises:
        Malformed: It is none.
    """
    return _mend_message(data, descriptor, "", _DEEPEST)


def _mend_message(data: bytes, descriptor: Descriptor, path: str, deepest: int) -> Mended:
    if deepest == 0:
        raise Malformed("it is nested too deep")
    written: list[Entry] = []
    fields: list[str] = []
    counts: dict[int, int] = {}
    for number, kind, content in entries(data):
        field = descriptor.fields_by_number.get(number)
        mended = Mended(content, ())
        if kind == DELIMITED and field is not None:
            place = join(path, field.name)
            if field.is_repeated and not is_map(field):
                counts[number] = counts.get(number, -1) + 1
                place = f"{place}[{counts[number]}]"
            if is_text(field):
                mended = _mend_text(content, place)
            elif field.message_type is not None:
                mended = _mend_message(content, field.message_type, place, deepest - 1)
            # Key and value of a map's entry are told as the map.
            fields += [place] if mended.fields and is_map(field) else mended.fields
        written.append(Entry(number, kind, mended.data))
    return Mended(write_entries(written), tuple(dict.fromkeys(fields)))


def _mend_text(content: bytes, path: str) -> Mended:
    try:
        content.decode()
    except UnicodeDecodeError:
        return Mended(_unicode(content).encode(), (path,))
    return Mended(content, ())


def _unicode(content: bytes) -> str:
    try:
        halves = content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return content.decode("utf-8", "replace")
    return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def entries(data: bytes) -> Iterator[Entry]:
    """Yields the fields of a message on the wire, in order.

    Raises:
        Malformed: It is none.
    """
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == DELIMITED:
            size, at = _read_varint(data, at)
            end = at + size
        elif kind == _VARINT:
            _, end = _read_varint(data, at)
        elif kind in _FIXED_BYTES:
            end = at + _FIXED_BYTES[kind]
        else:
            raise Malformed(f"field {number} has wire type {kind}")
        if number == 0 or end > len(data):
            raise Malformed("it ends within a field")
        yield Entry(number, kind, data[at:end])
        at = end


def write_entries(fields: Iterable[Entry]) -> bytes:
    """Returns the message that fields make."""
    return b"".join(piece for entry in fields for piece in _pieces(entry))


def _pieces(entry: Entry) -> Iterator[bytes]:
    yield varint(entry.number << 3 | entry.kind)
    if entry.kind == DELIMITED:
        yield varint(len(entry.content))
    yield entry.content


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise Malformed("a number does not end")


def varint(value: int) -> bytes:
    """Return a number as protobuf writes sizes and keys."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
