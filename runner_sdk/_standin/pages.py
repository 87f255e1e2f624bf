"""Pages as the contract has them: a token is opaque, and good only for the query that made it."""

import base64
import hashlib
from collections.abc import Iterable
from typing import Any, TypeVar

from google.protobuf.message import Message

from runner_sdk._standin.refusals import invalid

_Item = TypeVar("_Item", bound=Message)

_PAGE_BYTES = 2 * 1024 * 1024


def page_of(
    request: Any,
    entries: Iterable[tuple[str, _Item]],
    *,
    descending: bool = False,
    default_size: int = 50,
) -> tuple[list[_Item], str]:
    """Returns one page and the token of the next.

    Args:
        request: It has `page_size` and `page_token`.
        entries: Places and items, in order; places compare as texts.
        descending: The places fall.
        default_size: How many items there are when the request does not say.
    """
    most = request.page_size or default_size
    after = _place_of(request)
    items: list[_Item] = []
    last, size = "", 0
    for place, item in entries:
        if after and not (place < after if descending else place > after):
            continue
        size += item.ByteSize()
        if len(items) == most or (items and size > _PAGE_BYTES):
            return items, _token(request, last)
        items.append(item)
        last = place
    return items, ""


def _place_of(request: Any) -> str:
    if not request.page_token:
        return ""
    try:
        digest, _, place = base64.urlsafe_b64decode(request.page_token).decode().partition(":")
    except ValueError:
        digest, place = "", ""
    if digest != _digest(request):
        raise invalid("page_token", "is not one that this query made")
    return place


def _token(request: Any, place: str) -> str:
    return base64.urlsafe_b64encode(f"{_digest(request)}:{place}".encode()).decode()


def _digest(request: Any) -> str:
    query = type(request)()
    query.CopyFrom(request)
    query.ClearField("page_token")
    query.ClearField("page_size")
    return hashlib.sha256(query.SerializeToString(deterministic=True)).hexdigest()[:16]
