"""Tests of `host_service.conformance.options`."""

import re
from pathlib import Path

import pytest

from host_service.conformance import CHECKS, Options

NAMES = [check.name for check in CHECKS]


def test_every_check_is_wanted_unless_something_else_is_said() -> None:
    assert all(Options().wants(name) for name in NAMES)


@pytest.mark.parametrize(
    ("only", "skip", "wanted"),
    [
        (("input.echo",), (), ["input.echo"]),
        (("deadline",), (), ["deadline.call", "deadline.timeout"]),
        (("tokens.*", "input.echo"), (), ["input.echo", "tokens.both", "tokens.own"]),
        (("deadline",), ("*.call",), ["deadline.timeout"]),
        (("deadline",), ("deadline",), []),
    ],
)
def test_checks_are_chosen_by_name_group_and_pattern(
    only: tuple[str, ...], skip: tuple[str, ...], wanted: list[str]
) -> None:
    options = Options(only=only, skip=skip)
    assert [name for name in NAMES if options.wants(name)] == wanted


def test_what_matches_no_check_is_told() -> None:
    options = Options(only=("input", "imput"), skip=("results.*", "x*"))
    assert options.unmatched(NAMES) == ["imput", "x*"]


def test_every_check_is_explained_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "conformance.md").read_text("utf-8")
    explained = set(re.findall(r"^\| `([a-z]+\.[a-z-]+)` \|", text, re.MULTILINE))
    assert explained == set(NAMES)


def test_names_are_unique_and_say_their_group() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all(len(name.split(".")) == 2 for name in NAMES)
