"""Tests of `host_service.logs`: an entry is one line, whatever is in it."""

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_service.logs import LineFormatter, one_line, set_up_logging
from host_service.telemetry import Telemetry


def line(message: object, *args: object, exc_info: Any = None) -> str:
    record = logging.LogRecord(
        "runmesh.runs", logging.WARNING, __file__, 1, message, args, exc_info
    )
    record.created = 1_772_366_400.1234
    return LineFormatter().format(record)


def test_line_has_time_level_logger_and_message() -> None:
    assert line("run %s ended", "run-1") == (
        "2026-03-01T12:00:00.123Z warning runmesh.runs run run-1 ended"
    )


# Every kind of break, and what moves a terminal's cursor or hides text from its reader.
BREAKS = [
    "\n",
    "\r",
    "\r\n",
    "\v",
    "\f",
    "\x1b[2J",
    "\x85",
    "\u2028",
    "\u2029",
    "\0",
    "\u202e",
    "\ud800",
]


@pytest.mark.parametrize("text", BREAKS)
def test_break_or_control_character_is_written_out(text: str) -> None:
    told = line("said %s", f"a{text}b")
    assert len(told.splitlines()) == 1
    assert told.isprintable()
    assert told.startswith("2026-03-01T12:00:00.123Z warning runmesh.runs said a\\")


def test_text_of_any_language_stays_readable() -> None:
    assert one_line("你好 😀 naïve") == "你好 😀 naïve"


@given(st.text(st.characters(), max_size=30))
@settings(max_examples=100, deadline=None)
def test_no_text_makes_a_second_line_or_cannot_be_written(text: str) -> None:
    told = line("%s", text)
    assert len(told.splitlines()) == 1
    told.encode()


def test_traceback_is_on_the_same_line() -> None:
    with pytest.raises(ValueError, match="first") as raised:
        int("first\nsecond")
    told = line("it failed", exc_info=(raised.type, raised.value, raised.tb))
    assert len(told.splitlines()) == 1
    assert "ValueError" in told
    assert "second" in told
    assert told.index("it failed") < told.index("Traceback")


def test_trace_is_told_where_there_is_one() -> None:
    telemetry = Telemetry(service_version="0", host_id="host")
    assert "trace=" not in line("x")
    with telemetry.call_span("S", "M", {}):
        assert f"trace={telemetry.trace_id()}" in line("x")
    telemetry.close()


@pytest.fixture
def _root_logger() -> Any:
    root, ours = logging.getLogger(), logging.getLogger("runmesh")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:], level, own = before
    root.setLevel(level)
    ours.setLevel(own)


@pytest.mark.usefixtures("_root_logger")
def test_log_goes_to_standard_error_from_the_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info")
    set_up_logging("info")
    logging.getLogger("runmesh.runs").debug("too fine")
    logging.getLogger("runmesh.runs").info("said once")
    logging.getLogger("grpc").info("somebody else's")
    logging.getLogger("grpc").warning("somebody else's trouble")
    out, err = capsys.readouterr()
    assert out == ""
    assert [each.partition(" runmesh.runs ")[2] for each in err.splitlines()[:1]] == ["said once"]
    assert len(err.splitlines()) == 2
    assert "trouble" in err
