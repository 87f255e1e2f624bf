"""Metadata that authors add to a call: what gRPC takes, said before it is sent.

Names travel in lower case, since HTTP/2 knows no other; values are printable ASCII, and any bytes
under names that end in `-bin`. The SDK's own entries cannot be replaced.
"""

import re
from collections.abc import Mapping

from runner_sdk.errors import FieldViolation, InvalidArgument

CallMetadata = Mapping[str, str | bytes]

_NAME = re.compile(r"[0-9a-z._-]+")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_OURS = frozenset({"authorization", "runmesh-instance", "traceparent", "tracestate"})


def checked_metadata(method: str, metadata: CallMetadata) -> tuple[tuple[str, str | bytes], ...]:
    """Returns an author's metadata as gRPC takes it.

    Raises:
        InvalidArgument: An entry cannot be sent; it names the entry and the rule.
    """
    return tuple(_entry(method, name, value) for name, value in metadata.items())


def _entry(method: str, name: str, value: str | bytes) -> tuple[str, str | bytes]:
    lowered = name.lower()
    if not _NAME.fullmatch(lowered):
        raise _refused(method, name, "a name has letters, digits, '.', '_' and '-', all ASCII")
    if lowered in _OURS or lowered.startswith("grpc-"):
        raise _refused(method, name, "is set by the SDK or by gRPC itself")
    if lowered.endswith("-bin"):
        if not isinstance(value, bytes):
            raise _refused(method, name, "a name that ends in `-bin` takes bytes")
    elif not isinstance(value, str) or not _PRINTABLE.fullmatch(value):
        raise _refused(
            method, name, "a value is printable ASCII; other text and bytes need a `-bin` name"
        )
    return lowered, value


def _refused(method: str, name: str, rule: str) -> InvalidArgument:
    field = f"metadata[{name!r}]"
    return InvalidArgument(
        method=method,
        reason="INVALID_ARGUMENT",
        message=f"{field}: {rule}",
        violations=(FieldViolation(field, rule),),
    )
