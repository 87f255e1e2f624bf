"""What a message of an attached runner says: read, where protobuf can read it, or taken apart."""

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from runmesh.v1 import attach_pb2, run_pb2

from host_service.registry.frames import Frame, FrameReader
from host_service.validation.wire_texts import DELIMITED, Entry, Malformed, entries, write_entries

_RESULTS = attach_pb2.AttachRequest.DESCRIPTOR.fields_by_name["results"].number
_RUN_ID = attach_pb2.AttachResults.DESCRIPTOR.fields_by_name["run_id"].number
_RESULT = attach_pb2.AttachResults.DESCRIPTOR.fields_by_name["results"].number
_RESULT_OF_FRAME = run_pb2.RunResponse.DESCRIPTOR.fields_by_name["results"].number


@dataclass(frozen=True, slots=True)
class UpResults:
    """Results of a run as they came.

    Attributes:
        run_id: Whose.
        count: How many.
        data: The whole message on the wire.
        read: What protobuf read of it; None where a text in it is no Unicode.
    """

    run_id: str
    count: int
    data: bytes
    read: attach_pb2.AttachResults | None

    def frame(self, reader: FrameReader) -> Frame:
        """Return the results as a frame of `RunService.Run` would have brought them.

        Args:
            reader: Of this run; it holds back what only the next frame makes whole.
        """
        if self.read is None or reader.is_holding:
            try:
                return reader.read(self._frame_bytes())
            except Malformed:
                return Frame(None, len(self.data), suspicious=True)
        response = run_pb2.RunResponse()
        response.results.MergeFrom(self.read.results)
        return Frame(response, response.ByteSize(), suspicious=b"\x00" in self.data)

    def _frame_bytes(self) -> bytes:
        return write_entries(
            Entry(_RESULT_OF_FRAME, DELIMITED, entry.content)
            for entry in _entries_of_results(self.data)
            if entry.number == _RESULT and entry.kind == DELIMITED
        )


def read_up(data: bytes) -> attach_pb2.AttachRequest | UpResults:
    """Return what a message says; results apart, since they go the way of a run.

    Raises:
        Malformed: It is no message of `AttachService`.
    """
    try:
        message = attach_pb2.AttachRequest.FromString(data)
    except DecodeError:
        return _take_apart(data)
    if not message.HasField("results"):
        return message
    results = message.results
    return UpResults(results.run_id, len(results.results), data, results)


def _take_apart(data: bytes) -> UpResults:
    """Return what can be known of results that protobuf does not read: at least whose they are."""
    run_id, count = "", 0
    try:
        for entry in _entries_of_results(data):
            if entry.number == _RUN_ID:
                run_id = entry.content.decode("utf-8", "replace")
            count += entry.number == _RESULT
    except Malformed:
        # Whatever comes behind the run's id is that run's fault, and of no other on the stream.
        if not run_id:
            raise
    if not run_id:
        raise Malformed("it says of no run what it is about")
    return UpResults(run_id, max(1, count), data, None)


def _entries_of_results(data: bytes) -> Iterator[Entry]:
    for outer in entries(data):
        if outer.number == _RESULTS and outer.kind == DELIMITED:
            yield from entries(outer.content)
