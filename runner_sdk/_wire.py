"""How results become frames.

A frame is a `RunResponse`: one repeated field, so its bytes are those of its results, each behind
a tag and a length. Results are encoded one by one as they are yielded, and a frame is made by
joining them: that counts sizes exactly, lets an author yield the same object twice, and spares the
copy that adding a message to a repeated field costs.

The run's id goes behind each result's own bytes: protobuf takes the last value of a field that
occurs twice, so that whatever an author put there does not matter.
"""

from dataclasses import dataclass

from runmesh.v1.result_pb2 import RunResult

FRAME_BYTES = 3 * 1024 * 1024
"""The contract's limit of one frame."""

RESULT_BYTES = 1024 * 1024
"""The contract's limit of one result, an inline artifact not counted."""

_RESULTS_TAG = b"\x0a"  # field 1 of RunResponse, length-delimited
_SHORT = 1024


def varint(number: int) -> bytes:
    """Encodes a non-negative integer as protobuf does."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class FrameEncoder:
    """Encodes the results of one run."""

    __slots__ = ("_heads", "_tail", "_text", "_text_delta")

    def __init__(self, run_id: str) -> None:
        self._tail = RunResult(run_id=run_id).SerializeToString()
        # Heads of short results, by the length of their own bytes, made as they are needed.
        self._heads: dict[int, bytes] = {}
        # One message object encodes every piece of plain text: that is most of what is encoded.
        self._text = RunResult()
        self._text_delta = self._text.message_delta

    def encode_text(self, text: str, sequence: int) -> bytes:
        """Encodes a piece of the message in progress.

        Raises:
            UnicodeEncodeError: The text has halves of surrogate pairs.
        """
        self._text_delta.text = text
        self._text.sequence = sequence
        body = self._text.SerializeToString()
        head = self._heads.get(len(body)) or self._head(len(body))
        return head + body + self._tail

    def encode(self, result: RunResult, sequence: int) -> bytes:
        """Numbers a result and returns it as a piece of a frame."""
        result.sequence = sequence
        body = result.SerializeToString()
        return self._head(len(body)) + body + self._tail

    def size_of(self, result: RunResult) -> int:
        """Returns how many bytes a numbered result has with its run's id: what a host counts."""
        return result.ByteSize() + len(self._tail)

    def _head(self, length: int) -> bytes:
        head = _RESULTS_TAG + varint(length + len(self._tail))
        if length < _SHORT:
            self._heads[length] = head
        return head


def encode_unchecked(result: RunResult) -> bytes:
    """Returns a result as a piece of a frame, exactly as it is."""
    body = result.SerializeToString()
    return _RESULTS_TAG + varint(len(body)) + body


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Results that go onto the wire exactly as they are: for tests of hosts.

    Run id, sequence, size and order are the yielder's own, and from here on the SDK adds nothing to
    the run, so its stream ends without a terminal result unless one is among these.
    """

    results: tuple[RunResult, ...] = ()
