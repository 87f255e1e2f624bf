"""Rules compiled into closures, one set for each message type.

What most fields have (texts within bounds, numbers that are not negative) is judged for a whole message by a few calls into
C. Only where that says no are its fields asked one by one, and only then are paths and shapes worked out: a nested message
tells its faults from its own point of view, and the levels above put their part of the path in front.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, OneofDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from host_service.validation.rule_kinds import (
    CheckedApart,
    Each,
    Finite,
    Instant,
    LastPart,
    Length,
    MaxSize,
    MetadataEntries,
    NotNegative,
    Required,
    Rule,
    Span,
)
from host_service.validation.violation import (
    MOST_VIOLATIONS,
    Violation,
    find_violation,
)

Check = Callable[[Any, list[Violation]], None]
"""Looks at a message and adds what breaks a rule, told from the message's own point of view."""

_REQUIRED: Final = Required()
_NOT_NEGATIVE: Final = (NotNegative(),)
_FINITE: Final = (Finite(),)
_METADATA: Final = (MetadataEntries(),)
_WELL_KNOWN: Final[Mapping[str, tuple[Rule, ...]]] = {
    "google.protobuf.Timestamp": (Instant(),),
    "google.protobuf.Duration": (Span(),),
}
_INTEGERS: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)
_FLOATS: Final = frozenset({FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE})
# A character takes at most so many bytes of UTF-8.
_LONGEST_CHARACTER: Final = 4


class CompiledMessage:
    """The rules of one message type. It is filled in after all types have one, so that they can refer to each other."""

    __slots__ = ("_check_fields", "_check_rest", "_passes")

    def __init__(self) -> None:
        self._passes: Callable[[Any], bool] = _always
        self._check_fields: tuple[Check, ...] = ()
        self._check_rest: tuple[Check, ...] = ()

    def fill(self, fields: "_FieldChecks") -> None:
        """Takes over what the fields of the type need."""
        self._passes = fields.quick()
        self._check_fields = tuple(fields.counted)
        self._check_rest = tuple(fields.rest)

    def check(self, message: Any, found: list[Violation]) -> None:
        """Adds what breaks a rule."""
        if not self._passes(message):
            for check in self._check_fields:
                check(message, found)
        for check in self._check_rest:
            check(message, found)


def compile_files(
    files: Iterable[FileDescriptor],
    rules: Mapping[str, tuple[Rule, ...]],
    limits: Mapping[str, int | float],
) -> Mapping[str, CompiledMessage]:
    """Compiles every message type of some files, by full name."""
    types = [descriptor for file in files for descriptor in file.message_types_by_name.values()]
    compiled = {descriptor.full_name: CompiledMessage() for descriptor in types}
    for descriptor in types:
        compiled[descriptor.full_name].fill(_compile(descriptor, rules, limits, compiled))
    return compiled


class _FieldChecks:
    """What the fields of one message type need, sorted by how it is looked at."""

    def __init__(self) -> None:
        # Fields that `quick` judges together, and their single checks for when it says no.
        self.counted: list[Check] = []
        self.texts: list[tuple[str, Length]] = []
        self.numbers: list[str] = []
        # Everything else, looked at one by one.
        self.rest: list[Check] = []

    def quick(self) -> Callable[[Any], bool]:
        """Returns a judgement on all counted fields at once: True means that none breaks a rule."""
        required = [(name, rule) for name, rule in self.texts if rule.minimum]
        optional = [(name, rule) for name, rule in self.texts if not rule.minimum]
        judgements = [_texts_pass(group) for group in (required, optional) if group]
        if self.numbers:
            judgements.append(_numbers_pass(self.numbers))
        return _all_of(judgements)


def _compile(
    descriptor: Descriptor,
    rules: Mapping[str, tuple[Rule, ...]],
    limits: Mapping[str, int | float],
    compiled: Mapping[str, CompiledMessage],
) -> _FieldChecks:
    checks = _FieldChecks()
    for oneof in descriptor.oneofs:
        if _REQUIRED in rules.get(oneof.full_name, ()):
            checks.rest.append(_oneof_is_set(oneof))
    for field in descriptor.fields:
        own = tuple(
            rule.at(limits) if isinstance(rule, MaxSize) else rule
            for rule in rules.get(field.full_name, ())
        )
        _compile_field(field, own, checks, compiled)
    return checks


def _compile_field(
    field: FieldDescriptor,
    rules: tuple[Rule, ...],
    checks: _FieldChecks,
    compiled: Mapping[str, CompiledMessage],
) -> None:
    if _is_map(field):
        checks.rest.extend(_map_checks(field, rules))
    elif field.is_repeated:
        checks.rest.extend(_list_checks(field, rules, compiled))
    elif field.message_type is not None:
        checks.rest.extend(_message_checks(field, rules, compiled))
    elif field.enum_type is not None:
        if _REQUIRED in rules:
            checks.rest.append(_enum_check(field))
    elif field.cpp_type in _INTEGERS:
        _compile_integer(field, rules, checks)
    elif field.cpp_type in _FLOATS:
        checks.rest.append(_single_check(field, (*_FINITE, *rules)))
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING and rules:
        _compile_text(field, rules, checks)


def _compile_integer(field: FieldDescriptor, rules: tuple[Rule, ...], checks: _FieldChecks) -> None:
    if rules:
        checks.rest.append(_single_check(field, (*_NOT_NEGATIVE, *rules)))
    else:
        # An absent number reads as 0, and that is not negative.
        checks.numbers.append(field.name)
        checks.counted.append(_single_check(field, _NOT_NEGATIVE))


def _compile_text(field: FieldDescriptor, rules: tuple[Rule, ...], checks: _FieldChecks) -> None:
    """Takes texts and bytes."""
    alone = tuple(rule for rule in rules if not isinstance(rule, LastPart))
    lengths = [rule for rule in alone if isinstance(rule, Length)]
    if lengths and not field.has_presence and set(alone) <= {_REQUIRED, *lengths}:
        checks.texts.append((field.name, lengths[0]))
        checks.counted.append(_single_check(field, alone))
    else:
        checks.rest.append(_single_check(field, alone))
    checks.rest.extend(_beside_check(field, rule) for rule in rules if isinstance(rule, LastPart))


def _texts_pass(group: list[tuple[str, Length]]) -> Callable[[Any], bool]:
    """Judges texts by their characters: what is short enough by these is short enough in bytes."""
    least = min(rule.minimum for _, rule in group)
    most = min(rule.maximum for _, rule in group) // _LONGEST_CHARACTER
    names = [name for name, _ in group]
    get = attrgetter(*names)
    if len(names) == 1:
        return lambda message: least <= len(get(message)) <= most
    if least:
        return lambda message: (
            min(lengths := [len(text) for text in get(message)]) >= least and max(lengths) <= most
        )
    return lambda message: max(map(len, get(message))) <= most


def _numbers_pass(names: list[str]) -> Callable[[Any], bool]:
    get = attrgetter(*names)
    if len(names) == 1:
        return lambda message: bool(get(message) >= 0)
    return lambda message: min(get(message)) >= 0


def _always(_message: Any) -> bool:
    return True


def _all_of(judgements: list[Callable[[Any], bool]]) -> Callable[[Any], bool]:
    match judgements:
        case []:
            return _always
        case [one]:
            return one
        case [one, other]:
            return lambda message: one(message) and other(message)
    return lambda message: all(judge(message) for judge in judgements)


def _single_check(field: FieldDescriptor, rules: tuple[Rule, ...]) -> Check:
    """Looks at one value; one that is absent and need not be there breaks no rule."""
    name, get = field.name, attrgetter(field.name)

    def check(message: Any, found: list[Violation]) -> None:
        violation = find_violation(name, rules, get(message))
        if violation:
            found.append(violation)

    def check_present(message: Any, found: list[Violation]) -> None:
        if message.HasField(name):
            check(message, found)

    def check_given(message: Any, found: list[Violation]) -> None:
        if get(message):
            check(message, found)

    if _REQUIRED in rules:
        return check
    return check_present if field.has_presence else check_given


def _beside_check(field: FieldDescriptor, rule: LastPart) -> Check:
    name = field.name
    get = attrgetter(field.name, rule.other)

    def check(message: Any, found: list[Violation]) -> None:
        value, other = get(message)
        got = rule.fault_beside(value, other)
        if got:
            found.append(Violation(name, rule.words, got))

    return check


def _enum_check(field: FieldDescriptor) -> Check:
    name, get = field.name, attrgetter(field.name)
    known = frozenset(value.number for value in field.enum_type.values if value.number)

    def check(message: Any, found: list[Violation]) -> None:
        number = get(message)
        if number not in known:
            got = f"enum number {number}" if number else "not set"
            found.append(Violation(name, _REQUIRED.words, got))

    return check


def _oneof_is_set(oneof: OneofDescriptor) -> Check:
    """Demands a choice; one from a later version of the contract is a choice too, which the reader skips."""
    name = oneof.name

    def check(message: Any, found: list[Violation]) -> None:
        if message.WhichOneof(name) is None and not len(UnknownFieldSet(message)):
            found.append(Violation(name, _REQUIRED.words, "not set"))

    return check


def _message_checks(
    field: FieldDescriptor, rules: tuple[Rule, ...], compiled: Mapping[str, CompiledMessage]
) -> list[Check]:
    name, get = field.name, attrgetter(field.name)
    if any(isinstance(rule, CheckedApart) for rule in rules):
        return []
    kind = field.message_type.full_name
    if kind in _WELL_KNOWN:
        return [_single_check(field, _WELL_KNOWN[kind])]
    nested, required = compiled[kind], _REQUIRED in rules

    def check(message: Any, found: list[Violation]) -> None:
        if message.HasField(name):
            before = len(found)
            nested.check(get(message), found)
            if len(found) > before:
                _put_in_front(name, found, before)
        elif required:
            found.append(Violation(name, _REQUIRED.words, "not set"))

    return [check]


def _list_checks(
    field: FieldDescriptor, rules: tuple[Rule, ...], compiled: Mapping[str, CompiledMessage]
) -> list[Check]:
    if any(isinstance(rule, CheckedApart) for rule in rules):
        return []
    each = tuple(rule for rule in rules if isinstance(rule, Each))
    whole = tuple(rule for rule in rules if rule not in each)
    checks = [_single_check(field, whole)] if whole else []
    if each:
        checks.append(_each_check(field, each))
    if field.message_type is not None:
        checks.append(_each_message_check(field, compiled[field.message_type.full_name]))
    return checks


def _each_check(field: FieldDescriptor, rules: tuple[Rule, ...]) -> Check:
    name, get = field.name, attrgetter(field.name)

    def check(message: Any, found: list[Violation]) -> None:
        for index, value in enumerate(get(message)):
            violation = find_violation(f"{name}[{index}]", rules, value)
            if violation:
                found.append(violation)
                if len(found) >= MOST_VIOLATIONS:
                    return

    return check


def _each_message_check(field: FieldDescriptor, nested: CompiledMessage) -> Check:
    name, get = field.name, attrgetter(field.name)

    def check(message: Any, found: list[Violation]) -> None:
        before = len(found)
        for index, entry in enumerate(get(message)):
            nested.check(entry, found)
            if len(found) > before:
                _put_in_front(f"{name}[{index}]", found, before)
                before = len(found)
                if before >= MOST_VIOLATIONS:
                    return

    return check


def _map_checks(field: FieldDescriptor, rules: tuple[Rule, ...]) -> list[Check]:
    """Takes maps: metadata by its name, others by the rules that they have."""
    every = (*rules, *(_METADATA if field.name == "metadata" else ()))
    return [_single_check(field, every)] if every else []


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _put_in_front(name: str, found: list[Violation], start: int) -> None:
    found[start:] = [violation.below(name) for violation in found[start:]]
