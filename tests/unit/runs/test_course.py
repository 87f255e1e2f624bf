"""Tests of `host_service.runs.course`: notes of a run, kept and read again."""

from dataclasses import replace
from datetime import timedelta

import pytest

from host_service.authorization.grants import Grant
from host_service.runs.course import Course, GrantTexts, course_text, read_course
from tests.unit.runs.samples import NOON

GRANT = Grant(
    kind="model", name="世界", granted=False, asked=True, granted_by="config.model",
    limited_by="policy of workspace acme",
)  # fmt: skip


@pytest.mark.parametrize(
    "course",
    [
        Course(),
        Course(grants=()),
        Course(instance_at=NOON, last_word_at=NOON + timedelta(microseconds=1), grants=(GRANT,)),
        Course(turn_at=NOON, instance_at=NOON, first_result_at=NOON, grants=(GRANT,) * 3),
    ],
)
def test_course_comes_back_as_it_was_kept(course: Course) -> None:
    assert read_course(course_text(course, GrantTexts())) == course


def test_no_course_is_none() -> None:
    assert read_course(None) is None
    assert read_course("") is None


def test_grants_beyond_what_is_kept_are_counted() -> None:
    many = tuple(replace(GRANT, name=f"{n:0255}") for n in range(1_000))
    text = course_text(Course(grants=many), GrantTexts())
    assert len(text) < 100_000
    kept = read_course(text)
    assert kept is not None
    assert kept.grants == many[: len(kept.grants or ())]
    assert len(kept.grants or ()) + kept.left_out == 1_000
    # Kept again, as by a host that only knows what was kept.
    assert read_course(course_text(kept, GrantTexts())) == kept


def test_grants_that_runs_share_are_written_once() -> None:
    texts = GrantTexts()
    shared, others = (GRANT,) * 2, [(replace(GRANT, name=str(n)),) for n in range(600)]
    first = texts.of(shared)
    assert texts.of(shared) is first
    assert texts.of((GRANT, GRANT)) == first
    told = [texts.of(grants) for grants in others]
    assert len(set(told)) == len(others)
    assert texts.of(shared) == first
