"""What holds for any text and any message, however odd."""

import json
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import (
    attach_pb2,
    event_pb2,
    gateway_pb2,
    host_api_pb2,
    manifest_pb2,
    result_pb2,
)

from host_service.validation import find_violations
from host_service.validation.adapter_extra import filter_adapter_extra
from host_service.validation.digest import event_digest
from host_service.validation.json_exact import read_exactly, write_exactly
from host_service.validation.json_scanner import scan
from host_service.validation.json_text import (
    find_json_fault,
    passes_quickly,
    repair_json_text,
    repair_text,
)
from host_service.validation.results import repair_result
from host_service.validation.tree import is_map, walk_texts

_quick = settings(max_examples=100, deadline=None)
# Whole messages take long to make up.
_costly = settings(max_examples=30, deadline=None)

# Surrogates and U+0000 come up more often than chance has it.
_any_text = st.text(
    st.one_of(st.characters(exclude_categories=()), st.sampled_from('\0\ud83d\ude00\\u"aé明'))
)
_proto_text = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("\0a")))
_numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_values = st.recursive(
    st.none() | st.booleans() | _numbers | _any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_any_text, inner, max_size=4),
    max_leaves=20,
)
_pieces = st.sampled_from(
    [
        *(
            '"a"',
            '"b"',
            '"\\u0061"',
            '"\\u0000"',
            '"\\ud83d"',
            '"\\ude00"',
            '"\\\\"',
            '"',
            "\\",
            "\0",
        ),
        *("{", "}", "[", "]", ",", ":", " ", "\n", "1", "-", "0", ".5", "e400", "9" * 400),
        *("NaN", "Infinity", "true", "null", "明", "\ud800", "[" * 64, "]" * 64),
    ]
)
_roots = st.sampled_from(
    [
        gateway_pb2.DispatchRequest,
        gateway_pb2.ListRunsRequest,
        host_api_pb2.InvokeModelRequest,
        host_api_pb2.SetStateRequest,
        host_api_pb2.RequestActionRequest,
        attach_pb2.AttachRequest,
        admin_pb2.ApplyRequest,
        manifest_pb2.RunnerManifest,
        result_pb2.RunResult,
    ]
)


@_quick
@given(st.lists(_pieces, max_size=12).map("".join))
def test_quick_look_and_scanner_agree_on_any_text(text: str) -> None:
    assert passes_quickly(text) is (scan(text) is None)


@_quick
@given(_values, st.booleans())
def test_any_value_passes_unless_it_has_what_the_contract_forbids(
    value: Any, escaped: bool
) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    told = find_json_fault(text)
    if repair_text(_all_text(value)) == _all_text(value):
        assert told is None
    assert scan(text) == told


@_quick
@given(_values, st.booleans())
def test_repair_makes_any_value_valid_and_a_second_one_changes_nothing(
    value: Any, escaped: bool
) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    repaired, changed = repair_json_text(text)
    assert find_json_fault(repaired) is None
    assert changed is (repaired != text)
    assert repair_json_text(repaired) == (repaired, False)


@_quick
@given(st.lists(_pieces, max_size=12).map("".join) | _any_text)
def test_repair_of_any_text_takes_away_nothing_but_what_is_forbidden(text: str) -> None:
    for repaired in (repair_json_text(text)[0], repair_text(text)):
        assert "\0" not in repaired
        repaired.encode()
    assert repair_text(repair_text(text)) == repair_text(text)


@_quick
@given(_values)
def test_value_is_read_and_written_without_loss(value: Any) -> None:
    text = repair_json_text(json.dumps(value))[0]
    written = write_exactly(read_exactly(text))
    assert read_exactly(written) == read_exactly(text)
    assert find_json_fault(written) is None


@_quick
@given(st.dictionaries(_any_text | st.sampled_from(["token", "_x", "ok"]), _values, max_size=6))
def test_filtered_extra_is_an_object_that_needs_no_filter(value: dict[str, Any]) -> None:
    text = repair_json_text(json.dumps(value))[0]
    kept, _ = filter_adapter_extra(text)
    if kept is not None:
        assert find_json_fault(kept, only_object=True) is None
        assert filter_adapter_extra(kept) == (kept, [])


@_quick
@given(_values)
def test_digest_counts_a_json_value_however_it_is_written(value: Any) -> None:
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    spread = json.dumps(_reversed(value), ensure_ascii=True, indent=2)
    events = [
        event_pb2.EventEnvelope(type="a.b", data_json=repair_json_text(text)[0])
        for text in (compact, spread)
    ]
    if repair_text(compact) == compact:
        assert event_digest(events[0]) == event_digest(events[1])


@_quick
@given(_roots, st.binary(max_size=200))
def test_validation_of_any_bytes_never_raises(root: Any, data: bytes) -> None:
    try:
        message = root.FromString(data)
    except DecodeError:
        return
    assert len(find_violations(message)) <= 20


@_costly
@given(st.data(), _roots)
def test_validation_of_any_message_never_raises_and_tells_paths_that_exist(
    data: st.DataObject, root: Any
) -> None:
    message = data.draw(_messages(root.DESCRIPTOR, 2))
    for violation in find_violations(message):
        assert violation.rule
        assert violation.got
        first = violation.field.partition(".")[0].partition("[")[0]
        known = [field.name for field in root.DESCRIPTOR.fields]
        assert first in known + [oneof.name for oneof in root.DESCRIPTOR.oneofs]


@_costly
@given(st.data())
def test_any_result_is_free_of_zeros_after_repair_and_needs_no_other(data: st.DataObject) -> None:
    result = data.draw(_messages(result_pb2.RunResult.DESCRIPTOR, 4))
    repair_result(result)
    assert all("\0" not in text for _, _, text in walk_texts(result))
    assert not [each for each in find_violations(result) if each.rule == "free of U+0000"]
    assert repair_result(result) == []


@cache
def _messages(kind: Descriptor, depth: int) -> st.SearchStrategy[Any]:
    """Messages of a type with any of its fields set to anything, some levels deep."""
    fields = {field.name: _field_values(field, depth) for field in kind.fields}
    usable = {name: values for name, values in fields.items() if values is not None}
    return st.fixed_dictionaries({}, optional=usable).map(
        lambda chosen: GetMessageClass(kind)(**chosen)
    )


def _field_values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any] | None:
    if is_map(field):
        values = field.message_type.fields_by_name["value"] if field.message_type else None
        if values is None or values.message_type is not None:
            return None
        return st.dictionaries(_proto_text, _scalar_values(values), max_size=3)
    if field.message_type is not None:
        if depth == 0:
            return None
        nested = _messages(field.message_type, depth - 1)
        return st.lists(nested, max_size=2) if field.is_repeated else nested
    scalar = _scalar_values(field)
    return st.lists(scalar, max_size=3) if field.is_repeated else scalar


def _scalar_values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    match field.type:
        case FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=40)
        case FieldDescriptor.TYPE_STRING:
            return st.lists(_proto_pieces, max_size=4).map("".join) | _proto_text
        case FieldDescriptor.TYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
            return st.floats(width=32)
        case FieldDescriptor.TYPE_INT64:
            return st.integers(-(2**63), 2**63 - 1)
    return st.integers(-(2**31), 2**31 - 1)


_proto_pieces = _pieces.filter(lambda piece: piece != "\ud800")


def _all_text(value: Any) -> str:
    """All text of a value, with something between that joins no halves of pairs."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(f"{name} {_all_text(entry)}" for name, entry in value.items())
    return " ".join(map(_all_text, value)) if isinstance(value, list) else ""


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _reversed(entry) for name, entry in reversed(value.items())}
    return [_reversed(entry) for entry in value] if isinstance(value, list) else value
