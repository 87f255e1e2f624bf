"""Single values on their way into columns and back.

What goes in is checked here, in the caller, so that a value which one of the engines cannot hold
is refused on both, before it shares a transaction with anybody.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from stores.errors import InvalidRecord

ID_BYTES = 255
KEY_BYTES = 2_048
PAGE_ITEMS = 10_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INTEGER_MAX = 2**63 - 1


def is_storable(value: object) -> bool:
    """Return whether a value may stand in a column: all may but some texts."""
    if not isinstance(value, str):
        return True
    if value.isascii():
        return "\0" not in value
    return "\0" not in value and not _has_lone_surrogate(value)


def _has_lone_surrogate(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def check_text(record: str, field: str, value: str | None) -> None:
    """Check that a text can be stored on both engines.

    Raises:
        InvalidRecord: It holds U+0000 or a lone surrogate, or is no text.
    """
    if value is None:
        return
    if not isinstance(value, str):
        raise InvalidRecord(record, field, f"must be text, not {type(value).__name__}")
    if "\0" in value:
        raise InvalidRecord(record, field, "must not contain U+0000: remove or replace it")
    if not value.isascii() and _has_lone_surrogate(value):
        rule = "must not contain a lone surrogate: replace it by U+FFFD"
        raise InvalidRecord(record, field, rule)


def _check_sized(record: str, field: str, value: str | None, most: int) -> None:
    check_text(record, field, value)
    if value is not None and len(value) * 4 > most:
        size = len(value.encode())
        if size > most:
            raise InvalidRecord(record, field, f"must be at most {most} bytes, is {size}")


def check_ids(record: str, **fields: str | None) -> None:
    """Check identifiers: text of up to 255 bytes, which both engines can index."""
    for field, value in fields.items():
        _check_sized(record, field, value, ID_BYTES)


def check_keys(record: str, **fields: str | None) -> None:
    """Check keys that are made of several identifiers: text of up to 2,048 bytes."""
    for field, value in fields.items():
        _check_sized(record, field, value, KEY_BYTES)


def check_integers(record: str, **fields: int | None) -> None:
    """Check that integers fit 64 bits."""
    for field, value in fields.items():
        if value is not None and not -INTEGER_MAX - 1 <= value <= INTEGER_MAX:
            raise InvalidRecord(record, field, "must fit a signed integer of 64 bits")


def microseconds(record: str, field: str, value: datetime) -> int:
    """Return an aware time as microseconds since 1970 in UTC, exactly."""
    if value.tzinfo is None:
        raise InvalidRecord(record, field, "must have a time zone: times without one are guesses")
    since = value - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def optional_microseconds(record: str, field: str, value: datetime | None) -> int | None:
    """Return what `microseconds` does, or `None` for no time."""
    return None if value is None else microseconds(record, field, value)


def time(value: int) -> datetime:
    """Return the time in UTC that a column holds."""
    return _EPOCH + timedelta(microseconds=value)


def optional_time(value: int | None) -> datetime | None:
    """Return what `time` does, or `None` for no time."""
    return None if value is None else _EPOCH + timedelta(microseconds=value)


def check_limit(limit: int) -> None:
    """Check how many items a page may have.

    Raises:
        InvalidRecord: Not between 1 and 10,000.
    """
    if not 1 <= limit <= PAGE_ITEMS:
        raise InvalidRecord("page", "limit", f"must be 1 to {PAGE_ITEMS}, is {limit}")
