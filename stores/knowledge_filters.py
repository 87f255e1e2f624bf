"""Metadata of documents, and filters on it: what is the same, and what is not.

Name and value become a digest, so that an index holds values of any size, and neither database
compares anything by rules of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from hashlib import blake2b
from typing import Any

from stores.errors import InvalidRecord, ValueTooLarge
from stores.json_text import check_json

METADATA_BYTES = 64 * 1024
FILTER_NAMES = 64
FILTER_VALUES = 256

Filters = tuple[tuple[bytes, ...], ...]

# Large enough that no two different values are ever met that share one.
_DIGEST_BYTES = 16


def metadata_digests(metadata_json: str) -> frozenset[bytes]:
    """Return digests of all that filters find a document's metadata by.

    Raises:
        InvalidRecord: It is no JSON object of texts, numbers, true, false, null and lists of these.
        ValueTooLarge: It has over 64 KiB.
    """
    content = _read("document", "metadata_json", metadata_json)
    return frozenset(
        digest
        for name, value in content.items()
        for digest in _digests("document", "metadata_json", name, value)
    )


def parse_filters(filters_json: str | None) -> Filters:
    """Return, for each name of a filter, digests of which a document must have one.

    Raises:
        InvalidRecord: As `metadata_digests`; or it has too many names or values.
        ValueTooLarge: It has over 64 KiB.
    """
    if filters_json is None:
        return ()
    content = _read("search", "filters_json", filters_json)
    if len(content) > FILTER_NAMES:
        rule = f"must have at most {FILTER_NAMES} names, has {len(content)}"
        raise InvalidRecord("search", "filters_json", rule)
    return tuple(_alternatives(name, value) for name, value in content.items())


def _alternatives(name: str, value: Any) -> tuple[bytes, ...]:
    found = tuple(dict.fromkeys(_digests("search", "filters_json", name, value)))
    if len(found) > FILTER_VALUES:
        rule = f"must have at most {FILTER_VALUES} values under {name!r}, has {len(found)}"
        raise InvalidRecord("search", "filters_json", rule)
    return found


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def _read(record: str, field: str, text: str) -> dict[str, Any]:
    check_json(record, field, text)
    size = len(text.encode())
    if size > METADATA_BYTES:
        raise ValueTooLarge(record, field, size, METADATA_BYTES)
    # Never as a double, which cannot tell large integers apart.
    content = json.loads(text, parse_int=_Number, parse_float=_Number)
    if not isinstance(content, dict):
        raise InvalidRecord(record, field, "must be a JSON object")
    return content


def _digests(record: str, field: str, name: str, value: Any) -> Iterator[bytes]:
    for one in value if isinstance(value, list) else (value,):
        if isinstance(one, dict | list):
            rule = f"must have a text, number, true, false, null or list of these under {name!r}"
            raise InvalidRecord(record, field, rule)
        yield _digest(name, _written(record, field, one))


def _written(record: str, field: str, value: Any) -> str:
    """Return a value as all that are the same are written, and no other."""
    if isinstance(value, _Number):
        return "number " + _exact(record, field, value)
    if isinstance(value, str):
        return "text " + value
    return "null" if value is None else str(value)


def _exact(record: str, field: str, number: str) -> str:
    try:
        sign, digits, exponent = Decimal(number).as_tuple()
    except InvalidOperation as error:
        raise InvalidRecord(record, field, "must have no number with such an exponent") from error
    assert isinstance(exponent, int)  # noqa: S101 - a JSON number is finite
    written = "".join(map(str, digits)).lstrip("0")
    significant = written.rstrip("0")
    if not significant:
        return "0"
    return f"{'-' * sign}{significant}e{exponent + len(written) - len(significant)}"


def _digest(name: str, value: str) -> bytes:
    # The length keeps a name from reaching into the value.
    text = f"{len(name)} {name} {value}"
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
