"""How a run went: when what happened to it, and what it was granted.

Noted as it happens and kept as one text that goes to the ledger with other facts of the run: with
its end, or, for a run that takes longer, once on its way, so that what a host knew of a run is not
lost with the host. No run waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from host_service.authorization.grants import Grant

# What the notes of one run take of the database at most.
_GRANTS_BYTES = 64 * 1024
_MOST_TEXTS = 256
_MICROSECONDS = 1_000_000


@dataclass(slots=True)
class Course:
    """What is noted of one run.

    Attributes:
        turn_at: When it had its turn, and looked for an instance; None: not yet, or at once.
        instance_at: When it had an instance.
        first_result_at: When its runner first said anything.
        last_word_at: When its runner had its last word, or the host stopped listening to it.
        stored_at: When its end was durable; None where that took no time worth telling.
        grants: What each layer said of every permission and resource; None before the rights were
            frozen.
        left_out: How many more grants there were.
    """

    turn_at: datetime | None = None
    instance_at: datetime | None = None
    first_result_at: datetime | None = None
    last_word_at: datetime | None = None
    stored_at: datetime | None = None
    grants: tuple[Grant, ...] | None = None
    left_out: int = 0


_TIMES = ("turn_at", "instance_at", "first_result_at", "last_word_at", "stored_at")


class GrantTexts:
    """The texts of grants, made once for all runs whose rights came to the same.

    Those share one tuple of grants, by which they are found: to compare two costs as much as to
    write one.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[tuple[Grant, ...], str]] = {}

    def of(self, grants: tuple[Grant, ...]) -> str:
        """Return a JSON array: the grants that are kept, and how many are not."""
        made = self._made.get(id(grants))
        if made is None or made[0] is not grants:
            if len(self._made) >= _MOST_TEXTS:
                self._made.clear()
            rows = _fitting(grants)
            text = json.dumps([rows, len(grants) - len(rows)], ensure_ascii=False)
            made = self._made[id(grants)] = (grants, text)
        return made[1]


def course_text(course: Course, grant_texts: GrantTexts) -> str:
    """Return the notes as the ledger keeps them."""
    times = {name: _microseconds(at) for name in _TIMES if (at := getattr(course, name))}
    fields = [json.dumps(times)[1:-1]] if times else []
    if course.left_out:
        fields.append(f'"left_out": {course.left_out}')
    if course.grants is not None:
        fields.append(f'"grants": {grant_texts.of(course.grants)}')
    return f"{{{', '.join(fields)}}}"


def read_course(text: str | None) -> Course | None:
    """Return the notes that were kept; None where there are none."""
    if not text:
        return None
    document: Mapping[str, Any] = json.loads(text)
    course = Course(left_out=document.get("left_out", 0))
    for name in _TIMES:
        if name in document:
            setattr(course, name, _time(document[name]))
    if "grants" in document:
        rows, left_out = document["grants"]
        course.grants = tuple(_grant(*row) for row in rows)
        course.left_out += left_out
    return course


_Row = tuple[str, str, bool, bool, str, str]


def _fitting(grants: Iterable[Grant]) -> list[_Row]:
    rows: list[_Row] = []
    size = 0
    for each in grants:
        texts = (each.kind, each.name, each.granted_by, each.limited_by)
        size += 32 + sum(map(len, texts))
        if size > _GRANTS_BYTES:
            break
        rows.append(
            (each.kind, each.name, each.granted, each.asked, each.granted_by, each.limited_by)
        )
    return rows


def _grant(
    kind: str, name: str, granted: bool, asked: bool, granted_by: str, limited_by: str
) -> Grant:
    return Grant(
        kind=kind,
        name=name,
        granted=granted,
        asked=asked,
        granted_by=granted_by,
        limited_by=limited_by,
    )


def _microseconds(at: datetime) -> int:
    return round(at.timestamp() * _MICROSECONDS)


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / _MICROSECONDS, UTC)
