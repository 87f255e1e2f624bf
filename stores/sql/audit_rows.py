"""Between the records of the audit, and rows."""

from __future__ import annotations

import re

from stores.audit import AuditOutcome, AuditRecord
from stores.errors import InvalidRecord
from stores.sql.connection import Row
from stores.sql.rows import Encoded
from stores.sql.values import microseconds, time

# At four bytes each it still fits an index.
TEXT_CHARACTERS = 255

_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")

_MICROSECONDS = 1_000_000


def audit_row(record: AuditRecord) -> Encoded:
    """Encode a row of the audit, mending its texts."""
    if record.count < 1:
        raise InvalidRecord("audit", "count", f"must be at least 1, is {record.count}")
    return {
        "at": microseconds("audit", "at", record.at),
        "run_id": _optional(record.run_id),
        "runner_id": _optional(record.runner_id),
        "caller": _optional(record.caller),
        "rpc": mended(record.rpc),
        "resource": mended(record.resource),
        "scope": mended(record.scope),
        "outcome": int(record.outcome),
        "reason": mended(record.reason),
        "duration": round(record.duration_seconds * _MICROSECONDS),
        "count": record.count,
    }


def audit_record(row: Row) -> AuditRecord:
    """Decode a row of `audit`."""
    return AuditRecord(
        position=row[0],
        at=time(row[1]),
        run_id=row[2],
        runner_id=row[3],
        caller=row[4],
        rpc=row[5],
        resource=row[6],
        scope=row[7],
        outcome=AuditOutcome(row[8]),
        reason=row[9],
        duration_seconds=row[10] / _MICROSECONDS,
        count=row[11],
    )


def mended(text: str) -> str:
    """Return a text that can be stored: what cannot is replaced, and what is long is cut."""
    if len(text) > TEXT_CHARACTERS:
        text = text[: TEXT_CHARACTERS - 1] + "…"
    if text.isascii() and "\0" not in text:
        return text
    return _NOT_STORABLE.sub("\ufffd", text)


def _optional(text: str | None) -> str | None:
    return None if text is None else mended(text)
