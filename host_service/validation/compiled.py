"""Rules compiled into closures, one set for each message type.

What most fields have (texts within bounds, numbers that are not negative) is judged for a whole
message by a few calls into C. Only where that says no are its fields asked one by one, and only
then are paths and shapes worked out: a nested message tells its faults from its own point of view,
and the levels above put their part of the path in front.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, le
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, OneofDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from host_service.validation.json_text import passes_quickly
from host_service.validation.rule_kinds import (
    CheckedApart,
    Each,
    Finite,
    Instant,
    Json,
    LastPart,
    Length,
    MaxSize,
    MetadataEntries,
    NotNegative,
    Pattern,
    Range,
    Required,
    Rule,
    Span,
)
from host_service.validation.tree import is_map
from host_service.validation.violation import MOST_VIOLATIONS, Violation, find_violation

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


def compile_files(
    files: Iterable[FileDescriptor],
    rules: Mapping[str, tuple[Rule, ...]],
    limits: Mapping[str, int | float],
) -> Mapping[Descriptor, Check]:
    """Compiles every message type of some files, whatever types they refer to included."""
    compiler = _Compiler(rules, limits)
    for file in files:
        for descriptor in file.message_types_by_name.values():
            compiler.compile(descriptor)
    return compiler.checks


class _Compiler:
    """Makes the check of a message type when it is first asked for, those of its fields before it.

    Message types of the contract do not contain themselves, at no remove.
    """

    def __init__(
        self, rules: Mapping[str, tuple[Rule, ...]], limits: Mapping[str, int | float]
    ) -> None:
        self._rules = rules
        self._limits = limits
        self.checks: dict[Descriptor, Check] = {}

    def compile(self, descriptor: Descriptor) -> Check:
        """Returns the check of a message type."""
        if descriptor not in self.checks:
            self.checks[descriptor] = self._fields(descriptor).message_check()
        return self.checks[descriptor]

    def _fields(self, descriptor: Descriptor) -> "_FieldChecks":
        checks = _FieldChecks()
        choices: dict[str, dict[str, Check]] = {}
        for field in descriptor.fields:
            if any(isinstance(rule, CheckedApart) for rule in self._rules_of(field)):
                continue
            oneof = _real_oneof(field)
            if oneof is None:
                self._add(field, checks)
                continue
            if oneof.name not in choices:
                choices[oneof.name] = {}
                required = _REQUIRED in self._rules.get(oneof.full_name, ())
                checks.rest.append(_oneof_check(oneof, choices[oneof.name], required=required))
            alone = _FieldChecks()
            self._add(field, alone)
            for check in (*alone.counted, *alone.rest):
                choices[oneof.name][field.name] = check
        return checks

    def _rules_of(self, field: FieldDescriptor) -> tuple[Rule, ...]:
        return tuple(
            rule.at(self._limits) if isinstance(rule, MaxSize | Range) else rule
            for rule in self._rules.get(field.full_name, ())
        )

    def _add(self, field: FieldDescriptor, checks: "_FieldChecks") -> None:
        rules = self._rules_of(field)
        if is_map(field):
            every = (*rules, *(_METADATA if field.name == "metadata" else ()))
            if every:
                checks.rest.append(_single_check(field, every))
        elif field.is_repeated:
            checks.rest.extend(_list_checks(field, rules))
            if field.message_type is not None:
                checks.rest.append(_each_message_check(field, self.compile(field.message_type)))
        elif field.message_type is None:
            checks.add_scalar(field, rules)
        elif times := _WELL_KNOWN.get(field.message_type.full_name):
            checks.rest.append(_single_check(field, times))
        else:
            nested = self.compile(field.message_type)
            checks.rest.append(_message_check(field, nested, required=_REQUIRED in rules))


class _FieldChecks:
    """What the fields of one message type need, sorted by how it is looked at."""

    def __init__(self) -> None:
        # Fields that are judged together, and their single checks for when the judgement is no.
        self.counted: list[Check] = []
        self._texts: list[tuple[str, Length]] = []
        self._numbers: list[str] = []
        # Everything else, looked at one by one.
        self.rest: list[Check] = []

    def add_scalar(self, field: FieldDescriptor, rules: tuple[Rule, ...]) -> None:
        """Takes a single value that is no message."""
        if field.enum_type is not None:
            if _REQUIRED in rules:
                self.rest.append(_enum_check(field))
        elif field.cpp_type in _INTEGERS:
            self._add_integer(field, rules)
        elif field.cpp_type in _FLOATS:
            self.rest.append(_single_check(field, (*_FINITE, *rules)))
        elif rules:
            self._add_text(field, rules)

    def message_check(self) -> Check:
        """Returns the check of a message with these fields."""
        passes, counted, rest = self._together(), tuple(self.counted), tuple(self.rest)

        def check_all(message: Any, found: list[Violation]) -> None:
            if not passes(message):
                for check in counted:
                    check(message, found)
            for check in rest:
                check(message, found)

        def check_rest(message: Any, found: list[Violation]) -> None:
            for check in rest:
                check(message, found)

        if counted:
            return check_all
        return rest[0] if len(rest) == 1 else check_rest

    def _add_integer(self, field: FieldDescriptor, rules: tuple[Rule, ...]) -> None:
        if rules:
            self.rest.append(_single_check(field, (*_NOT_NEGATIVE, *rules)))
        else:
            # An absent number reads as 0, and that is not negative.
            self._numbers.append(field.name)
            self.counted.append(_single_check(field, _NOT_NEGATIVE))

    def _add_text(self, field: FieldDescriptor, rules: tuple[Rule, ...]) -> None:
        """Takes texts and bytes."""
        alone = tuple(rule for rule in rules if not isinstance(rule, LastPart))
        lengths = [rule for rule in alone if isinstance(rule, Length)]
        plain = lengths and not field.has_presence and lengths[0].minimum <= 1
        if plain and set(alone) <= {_REQUIRED, *lengths}:
            self._texts.append((field.name, lengths[0]))
            self.counted.append(_single_check(field, alone))
        else:
            self.rest.append(_single_check(field, alone))
        self.rest.extend(_beside_check(field, rule) for rule in rules if isinstance(rule, LastPart))

    def _together(self) -> Callable[[Any], bool]:
        """Returns a judgement on all counted fields: True means that none breaks a rule."""
        texts = _texts_pass(self._texts) if self._texts else None
        numbers = _numbers_pass(self._numbers) if self._numbers else None
        if texts and numbers:
            return lambda message: texts(message) and numbers(message)
        return texts or numbers or (lambda _message: True)


def _real_oneof(field: FieldDescriptor) -> OneofDescriptor | None:
    """Returns the oneof that a field is a choice of; not the one that stands for `optional`."""
    oneof = field.containing_oneof
    return oneof if oneof is not None and len(oneof.fields) > 1 else None


def _texts_pass(texts: list[tuple[str, Length]]) -> Callable[[Any], bool]:
    """Judges texts by their characters: what is short enough by these is short enough in bytes."""
    ordered = sorted(texts, key=lambda text: text[1].minimum == 0)
    required = sum(rule.minimum > 0 for _, rule in ordered)
    most = tuple(rule.maximum // _LONGEST_CHARACTER for _, rule in ordered)
    get = _all_values([name for name, _ in ordered])
    if len(ordered) == 1:
        get_one, longest = attrgetter(ordered[0][0]), most[0]
        return lambda message: required <= len(get_one(message)) <= longest
    if len(set(most)) == 1 and not required:
        longest = most[0]
        return lambda message: max(map(len, get(message))) <= longest
    return lambda message: (
        all(map(le, map(len, values := get(message)), most)) and "" not in values[:required]
    )


def _numbers_pass(names: list[str]) -> Callable[[Any], bool]:
    get = _all_values(names)
    return lambda message: bool(min(get(message)) >= 0)


def _all_values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Makes a reader of some fields that always gives a tuple."""
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda message: (get(message),)


def _single_check(field: FieldDescriptor, rules: tuple[Rule, ...]) -> Check:
    """Looks at one value; one that is absent and need not be there breaks no rule."""
    name, get, passes = field.name, attrgetter(field.name), _value_passes(rules)

    def check_always(message: Any, found: list[Violation]) -> None:
        if not passes(get(message)):
            explain(message, found)

    def check_present(message: Any, found: list[Violation]) -> None:
        if message.HasField(name) and not passes(get(message)):
            explain(message, found)

    def check_given(message: Any, found: list[Violation]) -> None:
        if (value := get(message)) and not passes(value):
            explain(message, found)

    def explain(message: Any, found: list[Violation]) -> None:
        violation = find_violation(name, rules, get(message))
        if violation:
            found.append(violation)

    if _REQUIRED in rules:
        return check_always
    return check_present if field.has_presence else check_given


def _value_passes(rules: tuple[Rule, ...]) -> Callable[[Any], bool]:
    """Judges a value as fast as its rules allow; a no means that the rules must be asked."""
    match rules:
        case [Json(only_object=False)]:
            return passes_quickly
        case [Json()]:
            return lambda text: text[:1] == "{" and passes_quickly(text)
        case [MetadataEntries() as metadata]:
            return _metadata_passes(metadata)
        case [rule]:
            fault = rule.fault
            return lambda value: fault(value) is None
        case [Required(), Length() as length, Pattern() as pattern]:
            # What a pattern lets pass is never empty, and a character is one byte at least.
            most, fullmatch = length.maximum // _LONGEST_CHARACTER, pattern.fullmatch
            return lambda text: len(text) <= most and fullmatch(text) is not None
    return lambda value: all(rule.fault(value) is None for rule in rules)


def _metadata_passes(rule: MetadataEntries) -> Callable[[Any], bool]:
    entries, key, value = rule.entries, rule.key.maximum, rule.value.maximum
    longest_key, longest_value = key // _LONGEST_CHARACTER, value // _LONGEST_CHARACTER

    def passes(metadata: Any) -> bool:
        if len(metadata) > entries:
            return False
        for name in metadata:
            if not name or len(name) > longest_key or len(metadata[name]) > longest_value:
                return False
        return True

    return passes


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
    values = field.enum_type.values if field.enum_type else []
    known = frozenset(value.number for value in values if value.number)

    def check(message: Any, found: list[Violation]) -> None:
        number = get(message)
        if number not in known:
            got = f"enum number {number}" if number else "not set"
            found.append(Violation(name, _REQUIRED.words, got, is_unknown=bool(number)))

    return check


def _oneof_check(oneof: OneofDescriptor, choices: Mapping[str, Check], *, required: bool) -> Check:
    """Looks at the choice that was made, and demands one where the rules do.

    A choice from a later version of the contract is one too.
    """
    name = oneof.name

    def check(message: Any, found: list[Violation]) -> None:
        chosen = message.WhichOneof(name)
        if chosen is None:
            if required and not len(UnknownFieldSet(message)):
                found.append(Violation(name, _REQUIRED.words, "not set"))
        elif chosen in choices:
            choices[chosen](message, found)

    return check


def _message_check(field: FieldDescriptor, nested: Check, *, required: bool) -> Check:
    name, get = field.name, attrgetter(field.name)

    def check(message: Any, found: list[Violation]) -> None:
        if message.HasField(name):
            before = len(found)
            nested(get(message), found)
            if len(found) > before:
                _put_in_front(name, found, before)
        elif required:
            found.append(Violation(name, _REQUIRED.words, "not set"))

    return check


def _list_checks(field: FieldDescriptor, rules: tuple[Rule, ...]) -> list[Check]:
    each = tuple(rule for rule in rules if isinstance(rule, Each))
    whole = tuple(rule for rule in rules if rule not in each)
    checks = [_single_check(field, whole)] if whole else []
    if each:
        checks.append(_each_check(field, each))
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


def _each_message_check(field: FieldDescriptor, nested: Check) -> Check:
    name, get = field.name, attrgetter(field.name)

    def check(message: Any, found: list[Violation]) -> None:
        entries = get(message)
        if not entries:
            return
        before = len(found)
        for index, entry in enumerate(entries):
            nested(entry, found)
            if len(found) > before:
                _put_in_front(f"{name}[{index}]", found, before)
                before = len(found)
                if before >= MOST_VIOLATIONS:
                    return

    return check


def _put_in_front(name: str, found: list[Violation], start: int) -> None:
    found[start:] = [violation.below(name) for violation in found[start:]]
