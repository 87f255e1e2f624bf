"""A failure is one line, whatever is in it."""

import pytest

from host_service.cli.failures import CommandError, one_line, visible


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\r\nc", "a b c"),
        ("  padded \n\n twice ", "padded twice"),
        ("next\u2028line\u0085here", "next line here"),
        ("\x1b[2Jgone", "␛[2Jgone"),
        ("nul\x00", "nul␀"),
    ],
)
def test_lines_are_joined_and_controls_made_visible(text: str, line: str) -> None:
    assert one_line(text) == line


def test_visible_text_keeps_lines_tabs_and_every_script() -> None:
    text = "a\tb\n世界 👩‍👩‍👧 עברית\n"
    assert visible(text) == text
    assert visible("a\r\nb") == "a\nb"


def test_advice_follows_the_message() -> None:
    assert str(CommandError("it is closed", "open it")) == "it is closed: open it"
    assert str(CommandError("it is closed")) == "it is closed"
