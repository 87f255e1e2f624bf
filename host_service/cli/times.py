"""Times and spans, as people read them."""

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp


def moment(timestamp: Timestamp) -> datetime:
    """A time of the contract in the local time zone."""
    return timestamp.ToDatetime(tzinfo=UTC).astimezone()


def local_time(timestamp: Timestamp) -> str:
    """Date and time in the local time zone, to the millisecond."""
    return moment(timestamp).isoformat(sep=" ", timespec="milliseconds")


def how_long_ago(timestamp: Timestamp, *, now: datetime) -> str:
    """How long ago a time is; its date when that is more than a day."""
    seconds = (now - moment(timestamp)).total_seconds()
    if seconds < 0 or seconds >= 86_400:
        return moment(timestamp).isoformat(sep=" ", timespec="minutes")[:16]
    if seconds < 60:
        return f"{seconds:.0f} s ago"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    return f"{seconds // 3600:.0f} h ago"


def span(start: Timestamp, end: Timestamp) -> str:
    """The time between two times."""
    return span_of((end.ToNanoseconds() - start.ToNanoseconds()) / 1e9)


def span_of(seconds: float) -> str:
    """A number of seconds in the unit that suits it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
