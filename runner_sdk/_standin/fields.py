"""The contract's rules of the fields in requests, so far as runners are likely to break them."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from runner_sdk._json import from_json
from runner_sdk._standin.refusals import invalid, too_large

_KIB = 1024
_MIB = 1024 * _KIB

_IDS = frozenset({"model_id", "tool_name", "event_id", "artifact_id", "key"})
_NOT_EMPTY = frozenset(
    {"messages", "documents", "texts", "query", "steering_ids", "scope", "area", "action"}
)
_OBJECTS = frozenset({"parameters_json", "extra_args_json", "filters_json"})
_SIZES: Mapping[tuple[str, str], int] = {
    ("SetStateRequest", "value_json"): 256 * _KIB,
    ("SetStorageRequest", "value"): 3 * _MIB,
    ("CreateArtifactRequest", "chunk"): _MIB,
}
_RANGES: Mapping[tuple[str, str], tuple[int, int]] = {
    ("SearchHistoryRequest", "page_size"): (0, 50),
    ("RetrieveKnowledgeRequest", "top_k"): (0, 50),
    ("RerankDocumentsRequest", "top_k"): (1, 2**31 - 1),
    ("ReadArtifactRequest", "offset"): (0, 2**63 - 1),
    ("StreamArtifactRequest", "offset"): (0, 2**63 - 1),
}
_RANGE_BYTES = _MIB


def check_fields(request: Message) -> None:
    """Checks a request's own fields.

    Raises:
        HostCallError: One breaks a rule; it names the field.
    """
    kind = request.DESCRIPTOR.name
    for field in request.DESCRIPTOR.fields:
        value = getattr(request, field.name)
        given = request.HasField(field.name) if field.has_presence else bool(value)
        if field.name in _IDS and not 1 <= len(value.encode()) <= 255:
            raise invalid(field.name, f"must have 1 to 255 bytes, has {len(value.encode())}")
        if field.name in _NOT_EMPTY and not given:
            raise invalid(field.name, "is required")
        if given:
            _check_value(kind, field.name, value)


def check_range(length: int) -> None:
    """Checks how many bytes of an artifact are asked for.

    Raises:
        HostCallError: More than one range may have.
    """
    if length < 0:
        raise invalid("length", f"must not be negative, is {length}")
    if length > _RANGE_BYTES:
        raise too_large("length", length, _RANGE_BYTES)


def _check_value(kind: str, name: str, value: Any) -> None:
    low, high = _RANGES.get((kind, name), (0, 100) if name == "page_size" else (0, 0))
    if (low or high) and not low <= value <= high:
        raise invalid(name, f"must be {low} to {high}, is {value}")
    if isinstance(value, str):
        _check_text(name, value)
    limit = _SIZES.get((kind, name))
    if limit is not None:
        size = len(value.encode() if isinstance(value, str) else value)
        if size > limit:
            raise too_large(name, size, limit)


def _check_text(name: str, value: str) -> None:
    if "\0" in value:
        raise invalid(name, "must be free of U+0000")
    if not name.endswith("_json"):
        return
    try:
        parsed = from_json(value)
    except (ValueError, RecursionError) as error:
        raise invalid(name, f"must be one JSON value: {error}") from error
    if name in _OBJECTS and not isinstance(parsed, dict):
        raise invalid(name, "must be a JSON object")
