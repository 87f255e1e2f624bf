"""Tables in a pipe are plain, never cut, and fit a terminal where they can."""

import pytest
from runmesh.v1 import gateway_pb2

from host_service.cli.display import print_facts, print_table, words

RUN = "01938a2b-0000-7000-8000-000000000001"


def test_a_table_in_a_pipe_has_no_lines_and_no_trailing_blanks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["RUN", "STATUS"], [[RUN, "completed"], [RUN, "failed"]])
    assert capsys.readouterr().out == f"RUN{' ' * 35}STATUS\n{RUN}  completed\n{RUN}  failed\n"


def test_a_long_value_stays_whole_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 5000
    print_table(["NAME", "REASON"], [["a", long]])
    assert long in capsys.readouterr().out.splitlines()[1]


def test_wide_characters_keep_columns_in_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "STATE"], [["世界", "on"], ["abcd", "off"]])
    assert capsys.readouterr().out == "NAME  STATE\n世界  on\nabcd  off\n"


def test_an_empty_table_says_so_apart_from_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME"], [], empty="no runs")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "no runs\n")


def test_a_name_from_elsewhere_cannot_drive_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["NAME"], [["\x1b[2J[red]x[/]"]])
    assert capsys.readouterr().out == "NAME\n␛[2J[red]x[/]\n"


def test_facts_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts([("run", RUN), ("binding", ""), ("status", "failed")])
    assert capsys.readouterr().out == f"run     {RUN}\nstatus  failed\n"


def test_enum_values_become_words_and_unknown_ones_stay_numbers() -> None:
    assert words(gateway_pb2.RunStatus, gateway_pb2.RUN_STATUS_TIMED_OUT) == "timed out"
    assert words(gateway_pb2.RunStatus, 99) == "99"
