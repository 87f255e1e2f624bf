"""Surrogate pairs that a runner cut in two, between one delta and the next.

Programs in languages whose strings are UTF-16 stream them so, each half written as UTF-8 would
write it if it were a character. Apart they mean nothing; together they are the character that was
meant. All of this is done on the bytes, since protobuf reads no message with such a text.
"""

import itertools
from dataclasses import dataclass, field
from typing import Final

from runmesh.v1.result_pb2 import MessageDelta, RunResult
from runmesh.v1.run_pb2 import RunResponse

from host_service.validation.wire_texts import DELIMITED, Entry, entries, write_entries

_RESULTS: Final = RunResponse.DESCRIPTOR.fields_by_name["results"].number
_DELTA: Final = RunResult.DESCRIPTOR.fields_by_name["message_delta"].number
_MESSAGE_ID: Final = MessageDelta.DESCRIPTOR.fields_by_name["message_id"].number
_TEXTS: Final = tuple(
    MessageDelta.DESCRIPTOR.fields_by_name[name].number for name in ("text", "reasoning_text")
)
_HALF_BYTES: Final = 3
_LEAD: Final = 0xED


def rejoin_pairs(data: bytes) -> tuple[bytes, bytes]:
    """Puts the halves of pairs together that are in two results, one behind the other.

    Args:
        data: A `RunResponse` on the wire.

    Returns:
        The same with the characters whole, and what must come before the next frame: the last
        result, where it ends in a first half, which is then no more in the frame itself.

    Raises:
        Malformed: It is no message.
    """
    fields = list(entries(data))
    results = [_Result.read(entry.content) for entry in fields if _is(entry, _RESULTS)]
    for before, after in itertools.pairwise(results):
        if before.message_id == after.message_id:
            for number in _TEXTS:
                _rejoin(before.texts, after.texts, number)
    waits = bool(results) and any(_ends_in_half(text) for text in results[-1].texts.values())
    held = results.pop() if waits else None
    others = [entry for entry in fields if not _is(entry, _RESULTS)]
    frame = write_entries([*map(_entry, results), *others])
    return frame, write_entries([_entry(held)]) if held is not None else b""


@dataclass(slots=True)
class _Result:
    """A result, and the texts in it that may be cut.

    Attributes:
        rest: Its fields without its delta.
        delta: The fields of its delta without those texts; None for a result of another kind.
        message_id: The delta's message.
        texts: The delta's texts, by field number.
    """

    rest: list[Entry]
    delta: list[Entry] | None = None
    message_id: bytes | None = None
    texts: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def read(cls, data: bytes) -> "_Result":
        """Takes a result apart."""
        fields = list(entries(data))
        deltas = [each.content for each in fields if _is(each, _DELTA)]
        # A field of one message may come in parts; none of our writers does that.
        if len(deltas) != 1:
            return cls(fields)
        inner = list(entries(deltas[0]))
        texts = {each.number: each.content for each in inner if _is(each, *_TEXTS)}
        ids = [each.content for each in inner if _is(each, _MESSAGE_ID)]
        return cls(
            rest=[each for each in fields if not _is(each, _DELTA)],
            delta=[each for each in inner if not _is(each, *_TEXTS)],
            message_id=ids[-1] if ids else b"",
            texts=texts,
        )

    def write(self) -> bytes:
        """Puts it together again."""
        if self.delta is None:
            return write_entries(self.rest)
        texts = [Entry(number, DELIMITED, text) for number, text in self.texts.items()]
        delta = Entry(_DELTA, DELIMITED, write_entries([*self.delta, *texts]))
        return write_entries([*self.rest, delta])


def _is(entry: Entry, *numbers: int) -> bool:
    return entry.kind == DELIMITED and entry.number in numbers


def _entry(result: _Result) -> Entry:
    return Entry(_RESULTS, DELIMITED, result.write())


def _rejoin(before: dict[int, bytes], after: dict[int, bytes], number: int) -> None:
    first, second = before.get(number, b""), after.get(number, b"")
    if _ends_in_half(first) and _begins_with_half(second):
        pair = first[-_HALF_BYTES:] + second[:_HALF_BYTES]
        whole = pair.decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass")
        before[number] = first[:-_HALF_BYTES] + whole.decode("utf-16-le").encode()
        after[number] = second[_HALF_BYTES:]


def _ends_in_half(text: bytes) -> bool:
    """Whether a text ends in the first half of a pair, U+D800 to U+DBFF."""
    return _is_half(text[-_HALF_BYTES:], range(0xA0, 0xB0))


def _begins_with_half(text: bytes) -> bool:
    """Whether a text begins with the second half of a pair, U+DC00 to U+DFFF."""
    return _is_half(text[:_HALF_BYTES], range(0xB0, 0xC0))


def _is_half(piece: bytes, second: range) -> bool:
    return (
        len(piece) == _HALF_BYTES
        and piece[0] == _LEAD
        and piece[1] in second
        and 0x80 <= piece[2] < 0xC0
    )
