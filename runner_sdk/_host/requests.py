"""Making requests from what authors give: any Python text, any JSON value."""

from typing import Any, Literal, TypeAlias, TypeVar

from google.protobuf.message import Message
from runmesh.v1 import host_api_pb2

from runner_sdk._json import to_json
from runner_sdk._text import mend_all

PageOrder: TypeAlias = Literal["newest_first", "oldest_first"]

_Request = TypeVar("_Request", bound=Message)


def make(kind: type[_Request], **fields: Any) -> _Request:
    """Makes a message; halves of surrogate pairs, which protobuf refuses, are mended."""
    try:
        return kind(**fields)
    except UnicodeEncodeError:
        return kind(**mend_all(fields))


def optional_json(value: object, field: str) -> str | None:
    """Returns a value as JSON text; None stays None: not said."""
    return None if value is None else to_json(value, field=field)


def page_direction(order: PageOrder) -> host_api_pb2.PageDirection.ValueType:
    """Returns an order's number in the contract.

    Raises:
        ValueError: There is no such order.
    """
    match order:
        case "newest_first":
            return host_api_pb2.PAGE_DIRECTION_NEWEST_FIRST
        case "oldest_first":
            return host_api_pb2.PAGE_DIRECTION_OLDEST_FIRST
    raise ValueError(f"direction: {order!r} is none of newest_first, oldest_first")
