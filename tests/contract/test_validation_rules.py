"""The rules that the host enforces are those that authors read: in the same words, none missing."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import attach_pb2, gateway_pb2, host_api_pb2, manifest_pb2, result_pb2, run_pb2

from host_service.validation import Validator
from host_service.validation.rule_kinds import (
    CheckedApart,
    Finite,
    Instant,
    Json,
    MetadataEntries,
    NotNegative,
    PlainText,
    Required,
    Span,
)
from host_service.validation.rules import MESSAGE_SIZES, RULES

# Where messages come in: what the host serves, and what it reads of a runner that it calls.
_SERVED = {
    gateway_pb2: "GatewayService",
    host_api_pb2: "HostAPIService",
    attach_pb2: "AttachService",
    admin_pb2: "AdminService",
}
_READ: tuple[type[Message], ...] = (
    manifest_pb2.RunnerManifest,
    result_pb2.RunResult,
    run_pb2.RunResponse,
)
# What a comment says of a value's bounds, whatever else it says.
_BOUND = re.compile(
    r"\d+ to \d+ bytes|up to \d+ bytes|at most \d+(?: [KMG]iB)?|at least (?:one|\d+)\b"
    r"|(?<=\. )\d+ to \d+(?=\.)|: \d+ bytes|matching `[^`]+`|\w+ are unique",
    re.IGNORECASE,
)
_FILE_MESSAGES, _MESSAGE_FIELDS, _MESSAGE_ONEOFS = 4, 2, 8

_Comments = Mapping[str, str]


@pytest.fixture(scope="module")
def comments(contract: list[FileDescriptorProto]) -> _Comments:
    """What is written above each message, field and oneof, in one line, by full name."""
    found: dict[str, str] = {}
    for file in contract:
        names: dict[tuple[int, ...], str] = {}
        for number, message in enumerate(file.message_type):
            name = f"{file.package}.{message.name}"
            path = (_FILE_MESSAGES, number)
            names[path] = name
            for index, field in enumerate(message.field):
                names[*path, _MESSAGE_FIELDS, index] = f"{name}.{field.name}"
            for index, oneof in enumerate(message.oneof_decl):
                names[*path, _MESSAGE_ONEOFS, index] = f"{name}.{oneof.name}"
        for location in file.source_code_info.location:
            if tuple(location.path) in names:
                text = " ".join(location.leading_comments.split())
                found[names[tuple(location.path)]] = text
    return found


@pytest.fixture(scope="module")
def general_rules(contract: list[FileDescriptorProto]) -> str:
    """The head of types.proto, whose rules hold for every field of a kind."""
    types = next(file for file in contract if file.name.endswith("/types.proto"))
    syntax = next(place for place in types.source_code_info.location if place.path == [12])
    head = [*syntax.leading_detached_comments, syntax.leading_comments]
    return " ".join(" ".join(head).split())


def test_each_rule_stands_in_its_fields_comment_in_the_same_words(comments: _Comments) -> None:
    unsaid = [
        f"{name}: {rule.words}"
        for name, rules in RULES.items()
        for rule in rules
        if rule.words.lower() not in comments[name].lower()
    ]
    assert unsaid == []


def test_each_size_of_a_message_stands_in_its_comment(comments: _Comments) -> None:
    for name, size in MESSAGE_SIZES.items():
        assert size.words.lower() in comments[name].lower(), name


def test_rules_that_hold_everywhere_stand_in_the_head_of_the_contract(general_rules: str) -> None:
    for rule in (MetadataEntries(), PlainText(), NotNegative(), Finite(), Instant(), Span()):
        assert rule.words in general_rules


def test_admin_contract_says_that_the_same_rules_hold_there(
    contract: list[FileDescriptorProto],
) -> None:
    admin = next(file for file in contract if file.package == "runmesh.admin.v1")
    heads = [
        " ".join(text.split())
        for place in admin.source_code_info.location
        for text in (*place.leading_detached_comments, place.leading_comments)
    ]
    assert any("`runmesh/v1/types.proto` hold here too" in head for head in heads)


def test_each_bound_that_a_comment_names_is_a_rule(comments: _Comments) -> None:
    unenforced = []
    for name in _names_that_come_in():
        words = " | ".join(rule.words.lower() for rule in RULES.get(name, ()))
        unenforced += [
            f"{name}: {bound}"
            for bound in _BOUND.findall(comments[name])
            if bound.lower().removeprefix(": ") not in words
        ]
    assert unenforced == []


def test_each_size_that_a_messages_comment_names_is_a_rule(comments: _Comments) -> None:
    named = {
        message.full_name
        for message in _messages_that_come_in()
        if re.search("at most .*iB", comments[message.full_name], re.IGNORECASE)
    }
    assert named == set(MESSAGE_SIZES)


def test_each_field_that_is_required_and_may_not_be_empty_has_the_rule(
    comments: _Comments,
) -> None:
    lax = []
    for message in _messages_that_come_in():
        for field in message.fields:
            rules = RULES.get(field.full_name, ())
            comment = comments[field.full_name]
            must = comment.startswith("Required.") and "may be empty" not in comment
            apart = any(isinstance(rule, CheckedApart) for rule in rules)
            if must and not apart and _can_be_asked(field) and Required() not in rules:
                lax.append(field.full_name)
        for oneof in message.oneofs:
            if comments.get(oneof.full_name, "").startswith("Required."):
                assert Required() in RULES.get(oneof.full_name, ()), oneof.full_name
    assert lax == []


def test_no_rule_requires_what_its_comment_calls_optional(comments: _Comments) -> None:
    for name, rules in RULES.items():
        if Required() in rules:
            assert comments[name].startswith("Required."), name


def test_each_json_field_that_comes_in_is_checked_as_json_unless_it_may_be_malformed(
    comments: _Comments,
) -> None:
    unchecked = []
    for message in _messages_that_come_in():
        for field in message.fields:
            if field.name.endswith("_json") and "malformed" not in comments[field.full_name]:
                kinds = [rule for rule in RULES.get(field.full_name, ()) if isinstance(rule, Json)]
                if len(kinds) != 1:
                    unchecked.append(field.full_name)
    assert unchecked == []


def test_every_metadata_map_is_known_by_its_name() -> None:
    for message in _messages_that_come_in():
        for field in message.fields:
            if field.name == "metadata":
                assert field.is_repeated
                assert field.message_type is not None
                assert field.message_type.GetOptions().map_entry


def test_rules_name_only_what_comes_in() -> None:
    known = set(_names_that_come_in()) | {
        oneof.full_name for message in _messages_that_come_in() for oneof in message.oneofs
    }
    assert sorted(set(RULES) - known) == []


@pytest.mark.parametrize("module", _SERVED, ids=_SERVED.values())
def test_every_request_can_be_checked(module: Any) -> None:
    check = Validator({})
    for method in module.DESCRIPTOR.services_by_name[_SERVED[module]].methods:
        check.find_violations(GetMessageClass(method.input_type)())


def _can_be_asked(field: FieldDescriptor) -> bool:
    """Zero and false are values like any other: whether they are absent cannot be seen."""
    return (
        field.is_repeated
        or field.message_type is not None
        or field.enum_type is not None
        or field.cpp_type == FieldDescriptor.CPPTYPE_STRING
    )


def _names_that_come_in() -> Iterator[str]:
    for message in _messages_that_come_in():
        for field in message.fields:
            yield field.full_name


def _messages_that_come_in() -> list[Descriptor]:
    """Every message that can be in a request to the host or in a runner's answer."""
    waiting: list[Any] = [message.DESCRIPTOR for message in _READ]
    for module, service in _SERVED.items():
        methods = module.DESCRIPTOR.services_by_name[service].methods
        waiting += [method.input_type for method in methods]
    found: dict[str, Descriptor] = {}
    while waiting:
        message = waiting.pop()
        if message.full_name in found or not message.full_name.startswith("runmesh."):
            continue
        if not message.GetOptions().map_entry:
            found[message.full_name] = message
        waiting += [field.message_type for field in message.fields if field.message_type]
    return list(found.values())
