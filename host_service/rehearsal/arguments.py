"""The arguments of a tool call, found in a message: numbers, quoted texts, words that a schema has.

A schema is JSON Schema as tools have it. What comes out is valid against it, or it is None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jsonschema_rs

from stores.search_text import fold

_QUOTES = (
    ("`", "`"), ('"', '"'), ("\u201c", "\u201d"), ("\u300c", "\u300d"), ("\u300e", "\u300f"),
    ("\u300a", "\u300b"), ("\u00ab", "\u00bb"), ("\u2018", "\u2019"),
)  # fmt: skip
_QUOTED = re.compile(
    "|".join(f"{re.escape(a)}([^{re.escape(a + b)}]+){re.escape(b)}" for a, b in _QUOTES)
    # An apostrophe is within a word, a quote around one.
    + r"|(?<!\w)'([^']+)'(?!\w)"
)
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\d])")
_CJK_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_URL = re.compile(r"https?://[^\s<>\"'\u3000-\u303f\uff00-\uffef]+")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:T[\d:.]+(?:Z|[+-]\d{2}:\d{2})?)?")
_PATH = re.compile(r"(?:~|\.{1,2})?/?[\w.-]+(?:/[\w.-]+)+|[\w-]+\.[A-Za-z]\w{0,7}\b")
_SUM = re.compile(r"[\d(][\d\s.+\-*/%^()]*[\d)]")
_NAMES = re.compile(r"(?<=[\w,] )[A-Z][\w'-]*(?: [A-Z][\w'-]*)*")
# What a property is called, and what of a message that is.
_BY_NAME: Mapping[str, re.Pattern[str]] = {
    "url": _URL, "uri": _URL, "link": _URL, "email": _EMAIL, "mail": _EMAIL, "date": _DATE,
    "day": _DATE, "path": _PATH, "file": _PATH, "filename": _PATH, "expression": _SUM,
    "formula": _SUM, "city": _NAMES, "location": _NAMES, "place": _NAMES, "country": _NAMES,
    "person": _NAMES,
}  # fmt: skip
_BY_FORMAT: Mapping[str, re.Pattern[str]] = {
    "uri": _URL, "email": _EMAIL, "date": _DATE, "date-time": _DATE,
}  # fmt: skip
_DEEPEST = 8


def fill_arguments(schema: Mapping[str, Any], text: str) -> str | None:
    """Return a JSON object of arguments out of a message, or None where that cannot be done.

    Required properties are filled whatever the message has; others where it says something for
    them. Whole numbers keep their digits.

    Args:
        schema: The JSON schema of the arguments.
        text: The message.
    """
    filled = _Filling(schema, text).value(schema, "", _DEEPEST) if schema else {}
    try:
        is_valid = jsonschema_rs.is_valid(dict(schema), filled, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError):
        # A schema that is none says nothing against an empty object.
        is_valid = filled == {}
    if not isinstance(filled, dict) or not is_valid:
        return None
    return json.dumps(filled, ensure_ascii=False)


class _Filling:
    """One message that gives away what it has, each number and each quoted text once."""

    def __init__(self, root: Mapping[str, Any], text: str) -> None:
        self._root = root
        self._text = text
        self._folded = fold(text)
        self._quoted = [next(filter(None, each.groups())) for each in _QUOTED.finditer(text)]
        unquoted = _QUOTED.sub(" ", text)
        pattern = _NUMBER if unquoted.isascii() else _CJK_NUMBER
        self._numbers = [_number(each) for each in pattern.findall(_DATE.sub(" ", unquoted))]

    def value(self, schema: object, name: str, depth: int) -> Any:
        """Return a value for a schema, of a property with this name."""
        schema = self._resolved(schema, depth)
        if not isinstance(schema, dict) or depth <= 0:
            return self._string({}, name)
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._chosen(schema["enum"], schema)
        alternatives = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(alternatives, list) and "properties" not in schema:
            return self._alternative(alternatives, name, depth)
        return self._typed(_type_of(schema), schema, name, depth)

    def _typed(self, kind: str, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, name, depth)
        if kind in {"integer", "number"}:
            return self._numeric(schema, whole=kind == "integer")
        if kind == "boolean":
            return schema.get("default", fold(name) in self._folded)
        if kind == "null":
            return None
        return self._string(schema, name)

    def _resolved(self, schema: object, depth: int) -> object:
        for _ in range(depth):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str) or not reference.startswith("#/"):
                break
            found: object = self._root
            for step in reference.removeprefix("#/").split("/"):
                found = found.get(_unescaped(step)) if isinstance(found, dict) else None
            schema = found
        return schema

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = [each for each in schema.get("required") or () if isinstance(each, str)]
        filled = {}
        for name in sorted(properties, key=lambda each: each not in required):
            if name in required or self._says_something(properties[name], depth):
                filled[name] = self.value(properties[name], name, depth - 1)
        for name in required:
            if name not in filled:
                filled[name] = self.value(schema.get("additionalProperties"), name, depth - 1)
        # In the schema's order, as its author would read them.
        return {name: filled[name] for name in [*properties, *required] if name in filled}

    def _says_something(self, schema: object, depth: int) -> bool:
        """Whether the message has a value for a property that may be left out."""
        schema = self._resolved(schema, depth)
        if not isinstance(schema, dict):
            return False
        if isinstance(schema.get("enum"), list):
            return any(self._has(each) for each in schema["enum"])
        kinds = {_type_of(each) for each in _alternatives(schema)}
        return bool(
            (kinds & {"integer", "number"} and self._numbers)
            or ("string" in kinds and self._quoted)
        )

    def _has(self, word: object) -> bool:
        if not isinstance(word, str) or not word.strip():
            return False
        spoken = fold(word.replace("_", " ").replace("-", " "))
        pattern = rf"(?<!\w){re.escape(spoken)}(?!\w)" if spoken.isascii() else re.escape(spoken)
        return re.search(pattern, self._folded.replace("_", " ").replace("-", " ")) is not None

    def _chosen(self, words: Sequence[Any], schema: Mapping[str, Any]) -> Any:
        named = next((each for each in words if self._has(each)), None)
        if named is not None:
            return named
        return schema.get("default", words[0])

    def _alternative(self, schemas: Sequence[Any], name: str, depth: int) -> Any:
        for each in schemas:
            resolved = self._resolved(each, depth)
            if isinstance(resolved, dict) and _type_of(resolved) != "null":
                return self.value(resolved, name, depth - 1)
        return None

    def _array(self, schema: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        items = self._resolved(schema.get("items"), depth)
        items = items if isinstance(items, dict) else {}
        kind = _type_of(items)
        count = 1
        if kind in {"integer", "number"}:
            count = len(self._numbers)
        elif kind == "string" and "enum" not in items:
            count = max(1, len(self._quoted))
        least, most = _bound(schema, "minItems", 0), _bound(schema, "maxItems", count)
        return [self.value(items, name, depth - 1) for _ in range(max(least, min(count, most)))]

    def _numeric(self, schema: Mapping[str, Any], *, whole: bool) -> int | float:
        fitting = (each for each in self._numbers if not whole or float(each).is_integer())
        found = next(fitting, None)
        if found is None:
            default = schema.get("default")
            found = default if isinstance(default, int | float) else 0
        else:
            self._numbers.remove(found)
        found = int(found) if whole else found
        return _within(found, schema, whole=whole)

    def _string(self, schema: Mapping[str, Any], name: str) -> str:
        fitting = next((each for each in self._candidates(schema, name) if _fits(each, schema)), "")
        if fitting in self._quoted:
            self._quoted.remove(fitting)
        if fitting:
            return fitting
        default = schema.get("default")
        return default if isinstance(default, str) else self._cut(schema)

    def _candidates(self, schema: Mapping[str, Any], name: str) -> Iterator[str]:
        yield from self._quoted
        patterns = [_BY_FORMAT.get(str(schema.get("format")))]
        patterns += [_BY_NAME.get(part) for part in reversed(fold(name).split("_"))]
        for pattern in filter(None, patterns):
            yield from (each.strip() for each in pattern.findall(self._text))
        yield self._text.strip()
        if "pattern" in schema:
            yield from re.findall(r"\w+", self._text)

    def _cut(self, schema: Mapping[str, Any]) -> str:
        least, most = _bound(schema, "minLength", 0), _bound(schema, "maxLength", len(self._text))
        return self._text.strip()[:most].ljust(least, ".")


def _alternatives(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for each in [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())]:
        if isinstance(each, dict):
            yield each


def _type_of(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else ""


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _within(number: float, schema: Mapping[str, Any], *, whole: bool) -> int | float:
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(schema.get("exclusiveMinimum"), int | float):
        least = schema["exclusiveMinimum"] + 1
    if isinstance(schema.get("exclusiveMaximum"), int | float):
        most = schema["exclusiveMaximum"] - 1
    if isinstance(least, int | float):
        number = max(number, least)
    if isinstance(most, int | float):
        number = min(number, most)
    return int(number) if whole else number


def _fits(text: str, schema: Mapping[str, Any]) -> bool:
    try:
        return bool(text) and jsonschema_rs.is_valid(
            {**schema, "type": "string"}, text, offline=True
        )
    except (ValueError, jsonschema_rs.ReferencingError):
        return bool(text)


def _bound(schema: Mapping[str, Any], name: str, default: int) -> int:
    value = schema.get(name)
    return value if isinstance(value, int) else default


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
