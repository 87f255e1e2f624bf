"""The frames of a runner's stream: read from their bytes, and mended where their texts are none."""

from typing import NamedTuple

from google.protobuf.message import DecodeError
from runmesh.v1 import run_pb2

from host_service.validation.split_pairs import rejoin_pairs
from host_service.validation.wire_texts import Malformed, mend_texts


class Frame(NamedTuple):
    """What came in one message of a runner's stream.

    Attributes:
        response: The results; None for bytes that are no `RunResponse`.
        size_bytes: Its size on the wire.
        suspicious: Whether its bytes have a zero byte, and so perhaps a text with U+0000, or it had
            to be mended.
        mended: Paths of texts in it that were no Unicode.
    """

    response: run_pb2.RunResponse | None
    size_bytes: int
    suspicious: bool
    mended: tuple[str, ...] = ()


class FrameReader:
    """Reads the frames of one stream, in order.

    A delta that ends in half a surrogate pair waits for the next frame, whose first delta may have
    the other half: it comes with that frame, or with `rest` at the end of the stream.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    @property
    def is_holding(self) -> bool:
        """Whether something waits for the next frame."""
        return bool(self._held)

    def read(self, data: bytes) -> Frame:
        """Reads the next frame."""
        if self._held:
            return self._mend(data)
        try:
            response = run_pb2.RunResponse.FromString(data)
        except DecodeError:
            return self._mend(data)
        # A text with U+0000 has a zero byte on the wire. Looking for one costs next to nothing, and
        # plain results have none.
        return Frame(response, len(data), suspicious=b"\x00" in data)

    def rest(self) -> Frame | None:
        """What waits when the stream has ended; None for nothing."""
        held, self._held = self._held, b""
        return _mended(held) if held else None

    def _mend(self, data: bytes) -> Frame:
        """Reads what protobuf refuses whole for one text that is no Unicode."""
        try:
            data, self._held = rejoin_pairs(self._held + data)
        except Malformed:
            return Frame(None, len(data), suspicious=True)
        return _mended(data)


def _mended(data: bytes) -> Frame:
    try:
        return Frame(run_pb2.RunResponse.FromString(data), len(data), suspicious=True)
    except DecodeError:
        pass
    try:
        mended = mend_texts(data, run_pb2.RunResponse.DESCRIPTOR)
        response = run_pb2.RunResponse.FromString(mended.data)
    except (Malformed, DecodeError):
        return Frame(None, len(data), suspicious=True)
    return Frame(response, len(data), suspicious=True, mended=mended.fields)
