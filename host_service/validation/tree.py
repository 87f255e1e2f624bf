"""Walks over whatever is set in a message, at any depth, with the path of each thing.

Only what is suspected of something is walked over: a message that passes is not.
"""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from host_service.validation.rule_kinds import CheckedApart
from host_service.validation.rules import RULES

_APART: Final = frozenset(
    name for name, rules in RULES.items() if any(isinstance(rule, CheckedApart) for rule in rules)
)


def is_map(field: FieldDescriptor) -> bool:
    """Tells maps from the other repeated fields."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def walk(message: Message, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields a message and all messages in it, but for those checked apart, each with its path."""
    waiting: list[tuple[str, Any]] = [(path, message)]
    while waiting:
        path, message = waiting.pop()
        yield path, message
        nested = [
            entry
            for field, value in message.ListFields()
            if field.message_type is not None
            and not is_map(field)
            and field.full_name not in _APART
            for entry in _entries(join(path, field.name), field, value)
        ]
        # The last in is the first out: in reverse they come out in order.
        waiting.extend(reversed(nested))


def walk_texts(message: Message) -> Iterator[tuple[str, str, str]]:
    """Yields path, full field name and content of every text in a message, those of maps too."""
    for path, part in walk(message):
        for field, value in part.ListFields():
            if is_map(field):
                for key, text in value.items():
                    for content in (key, text):
                        if isinstance(content, str):
                            yield join(path, field.name), field.full_name, content
            elif is_text(field):
                for place, text in _entries(join(path, field.name), field, value):
                    yield place, field.full_name, text


def walk_unknown_numbers(message: Message) -> Iterator[tuple[str, int]]:
    """Yields path and number of every enum in a message whose number this version does not know."""
    for path, part in walk(message):
        for field, value in part.ListFields():
            if field.enum_type is not None:
                for place, number in _entries(join(path, field.name), field, value):
                    if number not in field.enum_type.values_by_number:
                        yield place, number


def join(path: str, name: str) -> str:
    """Puts a field's name behind the path of its message."""
    return f"{path}.{name}" if path else name


def is_text(field: FieldDescriptor) -> bool:
    """Tells texts, single or in a list, from bytes and everything else."""
    return field.type == FieldDescriptor.TYPE_STRING


def _entries(path: str, field: FieldDescriptor, value: Any) -> Iterator[tuple[str, Any]]:
    if field.is_repeated:
        for index, entry in enumerate(value):
            yield f"{path}[{index}]", entry
    else:
        yield path, value
