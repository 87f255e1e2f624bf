"""Requests that protobuf refuses: handed on to the edge, so that they are refused in our own words.

gRPC answers what a deserializer raises with UNKNOWN and the names of our insides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from host_service.errors import FieldFault, InvalidArgument
from host_service.validation.wire_texts import Malformed, mend_texts


@dataclass(frozen=True, slots=True)
class _Unreadable:
    data: bytes
    descriptor: Descriptor

    def refusal(self) -> InvalidArgument:
        """Return what is wrong with it."""
        try:
            fields = mend_texts(self.data, self.descriptor).fields
        except Malformed:
            fields = ()
        if not fields:
            rule = f"must be a {self.descriptor.full_name} on the wire"
            return InvalidArgument([FieldFault("request", rule, f"{len(self.data)} other bytes")])
        rule, got = "must be Unicode in UTF-8", "bytes that are not"
        return InvalidArgument([FieldFault(field, rule, got) for field in fields])


def tolerant_deserializer(handler: Any) -> Callable[[bytes], Any]:
    """Return a deserializer for a handler's requests that hands on what it cannot read.

    Args:
        handler: As generated code registers it: with a message class's `FromString`; or without
            any, where the servicer reads bytes.
    """
    read = handler.request_deserializer
    if read is None:
        return lambda data: data
    descriptor: Descriptor = read.__self__.DESCRIPTOR

    def deserialize(data: bytes) -> Any:
        try:
            return read(data)
        except DecodeError as error:
            unreadable = _Unreadable(data, descriptor)
            if handler.request_streaming:
                # Raised where the servicer asks for the next request, which is behind the edge.
                raise unreadable.refusal() from error
            return unreadable

    return deserialize


def require_readable(request: object) -> None:
    """Return if a request could be read; its sender must be known by now.

    Raises:
        InvalidArgument: It could not; every text that is no Unicode is named.
    """
    if isinstance(request, _Unreadable):
        raise request.refusal()
