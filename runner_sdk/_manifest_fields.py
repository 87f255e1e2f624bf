"""Fills contract messages from YAML, driven by the contract's own descriptors.

A YAML manifest has the fields of the message under the same names, with four conveniences: enum
values go by their short lower-case names, a LocalizedText may be one plain text, a field `x_json`
is written as `x` with any YAML value, and whole numbers do for floating-point ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from runmesh.v1 import types_pb2

from runner_sdk._json import to_json
from runner_sdk.errors import ManifestError

_SCALARS: Mapping[int, tuple[tuple[type, ...], str]] = {
    FieldDescriptor.CPPTYPE_STRING: ((str,), "a text"),
    FieldDescriptor.CPPTYPE_BOOL: ((bool,), "true or false"),
    FieldDescriptor.CPPTYPE_INT32: ((int,), "a whole number"),
    FieldDescriptor.CPPTYPE_INT64: ((int,), "a whole number"),
    FieldDescriptor.CPPTYPE_DOUBLE: ((int, float), "a number"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a manifest something stands: what an error names."""

    file: str
    field: str = ""

    def at(self, name: str) -> "Place":
        """Returns the place of a field inside this one."""
        return Place(self.file, f"{self.field}.{name}" if self.field else name)

    def item(self, index: int) -> "Place":
        """Returns the place of an entry of this list."""
        return Place(self.file, f"{self.field}[{index}]")

    def error(self, rule: str) -> ManifestError:
        """Makes the error of a rule that is broken here."""
        return ManifestError(file=self.file, field=self.field, rule=rule)


def fill(message: Message, values: object, place: Place) -> None:
    """Sets the fields of a message from a YAML mapping.

    Raises:
        ManifestError: A name is unknown, or a value is not of its field's kind.
    """
    if isinstance(message, types_pb2.LocalizedText):
        _fill_text(message, values, place)
        return
    fields = {_yaml_name(field.name): field for field in message.DESCRIPTOR.fields}
    for name, value in mapping(values, place).items():
        field = fields.get(name)
        if field is None:
            raise place.at(name).error(f"there is no such field{_nearest(name, list(fields))}")
        if value is None and not field.name.endswith("_json"):
            continue
        _set(message, field, value, place.at(name))


def mapping(values: object, place: Place) -> dict[str, Any]:
    """Returns a YAML mapping with text keys.

    Raises:
        ManifestError: It is something else.
    """
    if not isinstance(values, dict):
        raise place.error(f"must be a mapping, is {_shown(values)}")
    for name in values:
        if not isinstance(name, str):
            raise place.error(f"has the key {_shown(name)}: write it in quotes")
    return values


def text(values: Mapping[str, Any], name: str, place: Place, *, default: str | None = None) -> str:
    """Returns a text of a mapping.

    Raises:
        ManifestError: It is missing, empty, or something else.
    """
    value = values.get(name, default)
    if value is None:
        raise place.at(name).error("is missing")
    if not isinstance(value, str) or not value:
        raise place.at(name).error(f"must be a text, is {_shown(value)}: quote it")
    return value


def _yaml_name(name: str) -> str:
    return name.removesuffix("_json")


def _set(message: Message, field: Any, value: Any, place: Place) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        target = getattr(message, field.name)
        for key, entry in mapping(value, place).items():
            target[key] = _scalar(field.message_type.fields_by_name["value"], entry, place.at(key))
    elif field.is_repeated:
        _fill_list(getattr(message, field.name), field, value, place)
    elif field.message_type is not None:
        part = getattr(message, field.name)
        part.SetInParent()
        fill(part, value, place)
    elif field.name.endswith("_json"):
        setattr(message, field.name, _json(value, place))
    else:
        setattr(message, field.name, _scalar(field, value, place))


def _fill_list(target: Any, field: Any, value: object, place: Place) -> None:
    if not isinstance(value, list):
        raise place.error(f"must be a list, is {_shown(value)}")
    for index, entry in enumerate(value):
        if field.message_type is not None:
            fill(target.add(), entry, place.item(index))
        else:
            target.append(_scalar(field, entry, place.item(index)))


def _fill_text(message: types_pb2.LocalizedText, values: object, place: Place) -> None:
    entries = {"en_US": values} if isinstance(values, str) else mapping(values, place)
    for locale, entry in entries.items():
        if not isinstance(entry, str):
            raise place.at(locale).error(f"must be a text, is {_shown(entry)}: quote it")
        message.text[locale] = entry


def _scalar(field: Any, value: Any, place: Place) -> Any:
    if field.enum_type is not None:
        return _enum(field.enum_type, value, place)
    kinds, name = _SCALARS[field.cpp_type]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise place.error(f"must be {name}, is {_shown(value)}")
    return value


def _enum(enum: Any, value: object, place: Place) -> int:
    unset = next(entry.name for entry in enum.values if entry.number == 0)
    prefix = unset.removesuffix("UNSPECIFIED")
    names = {
        entry.name.removeprefix(prefix).lower(): entry.number
        for entry in enum.values
        if entry.number != 0
    }
    if value not in names:
        raise place.error(f"must be one of {', '.join(names)}; is {_shown(value)}")
    number: int = names[value]
    return number


def _json(value: object, place: Place) -> str:
    try:
        return to_json(value, field="value")
    except ValueError as error:
        raise place.error(f"{error}: quote dates and other special values") from error


def _nearest(name: str, known: list[str]) -> str:
    import difflib  # only for errors

    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _shown(value: object) -> str:
    match value:
        case None:
            return "empty"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            shown = repr(value)
            return shown if len(shown) <= 60 else f"{shown[:60]}..."
