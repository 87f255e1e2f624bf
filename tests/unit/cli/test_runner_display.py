"""Why an instance does not serve is one line that can be read."""

from host_service.cli.runner_display import brief_reason

TRACEBACK = """its process exited with code 1; the last it wrote:
Traceback (most recent call last):
  File "main.py", line 3, in <module>
    import desk
ModuleNotFoundError: No module named 'desk'

"""


def test_reason_ends_with_the_last_line_that_was_printed() -> None:
    line = "its process exited with code 1: ModuleNotFoundError: No module named 'desk'"
    assert brief_reason(TRACEBACK) == line


def test_reason_without_output_stays_as_it_is() -> None:
    assert brief_reason("its process ended; it wrote nothing") == (
        "its process ended; it wrote nothing"
    )
    assert brief_reason("") == ""


def test_long_lines_are_cut_and_control_characters_shown() -> None:
    shown = brief_reason(f"{'p' * 500}; the last it wrote:\n\x1b[31m{'x' * 5000}")
    assert len(shown) <= 330
    assert shown.startswith("ppp")
    assert shown.count("...") == 2
    assert "\x1b" not in shown
