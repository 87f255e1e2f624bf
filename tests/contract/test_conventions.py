"""Rules of the contract that lint does not know."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

# Numbers of repeated fields in descriptor.proto, of which source code paths are made.
_FILE_MESSAGES = 4
_MESSAGE_FIELDS = 2
_MESSAGE_NESTED = 3


@dataclass(frozen=True, slots=True)
class Field:
    """A field as these rules see it; `value` is the field itself, or the values of a map."""

    name: str
    value: FieldDescriptorProto
    comment: str


def test_runners_contract_imports_protobufs_own_types_only(
    contract: list[FileDescriptorProto],
) -> None:
    for file in contract:
        allowed = ["google/protobuf/", "runmesh/v1/"]
        if file.package.startswith("runmesh.admin."):
            allowed.append("runmesh/admin/")
        for name in file.dependency:
            assert name.startswith(tuple(allowed)), f"{file.name} imports {name}"


def test_json_is_text_in_fields_that_say_so(contract: list[FileDescriptorProto]) -> None:
    for file in contract:
        for field in _fields(file):
            if field.name.endswith("_json"):
                assert field.value.type == FieldDescriptorProto.TYPE_STRING, field.name


def test_no_field_is_of_a_type_that_loses_integers_or_meaning(
    contract: list[FileDescriptorProto],
) -> None:
    refused = {
        f".google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue", "Any", "Empty")
    }
    for file in contract:
        for field in _fields(file):
            kind = field.value.type_name
            assert kind not in refused, f"{field.name} is a {kind}"


def test_every_rpc_has_a_request_and_a_response_of_its_own(
    contract: list[FileDescriptorProto],
) -> None:
    used: Counter[str] = Counter()
    for file in contract:
        for service in file.service:
            for method in service.method:
                # Two services may have an RPC of one name: then the service's name comes before it.
                for kind, message in (
                    ("Request", method.input_type),
                    ("Response", method.output_type),
                ):
                    assert message in {
                        f".{file.package}.{method.name}{kind}",
                        f".{file.package}.{service.name}{method.name}{kind}",
                    }
                    used[message] += 1
    assert used
    assert [name for name, times in used.items() if times > 1] == []


def test_every_field_says_whether_it_is_required(contract: list[FileDescriptorProto]) -> None:
    silent = [
        f"{file.name}: {field.name}"
        for file in contract
        for field in _fields(file)
        if not field.comment.startswith(("Required.", "Optional."))
    ]
    assert silent == []


def _fields(file: FileDescriptorProto) -> Iterator[Field]:
    """Yields each field of each message, nested ones too, with the comment above it."""
    comments = {
        tuple(location.path): location.leading_comments.strip()
        for location in file.source_code_info.location
    }
    for index, message in enumerate(file.message_type):
        yield from _message_fields(message, message.name, (_FILE_MESSAGES, index), comments)


def _message_fields(
    message: DescriptorProto,
    name: str,
    path: tuple[int, ...],
    comments: dict[tuple[int, ...], str],
) -> Iterator[Field]:
    # The compiler makes the entry messages of maps; nobody can comment on them.
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    for index, field in enumerate(message.field):
        entry = entries.get(field.type_name.rpartition(".")[2])
        yield Field(
            name=f"{name}.{field.name}",
            value=entry.field[1] if entry else field,
            comment=comments.get((*path, _MESSAGE_FIELDS, index), ""),
        )
    for index, nested in enumerate(message.nested_type):
        if nested.name not in entries:
            nested_path = (*path, _MESSAGE_NESTED, index)
            yield from _message_fields(nested, f"{name}.{nested.name}", nested_path, comments)
