"""Tests of `host_service.runs.advice`: every known failure has something to do next."""

import re
from pathlib import Path

import pytest

from host_service.runs.advice import advice_for
from stores.records import Failure, RunStatus
from tests.unit.runs.active import a_run_record
from tests.unit.runs.samples import an_event

ROOT = Path(__file__).parents[3]
# As the host gives them: the text of a code in the code of the host.
CODES = sorted(
    {
        code
        for room in ("runs", "registry")
        for path in (ROOT / "host_service" / room).glob("*.py")
        if path.name != "advice.py"
        for code in re.findall(r'"((?:runner|host)\.[a-z_]+|cancelled)"', path.read_text("utf-8"))
    }
)


def told(failure: Failure | None, status: RunStatus = RunStatus.FAILED) -> str:
    return advice_for(a_run_record(an_event(), status=status, failure=failure))


def test_the_codes_are_found() -> None:
    assert {"runner.crashed", "runner.timeout", "host.restarted", "host.configuration"} <= set(
        CODES
    )


@pytest.mark.parametrize("code", CODES)
def test_every_failure_of_the_host_has_advice_of_its_own(code: str) -> None:
    own, other = told(Failure(code, "{x}")), told(Failure("acme.other", "{x}"))
    assert own != other.replace("acme.other", code)
    assert not re.search(r"[{}]", own)


def test_code_of_a_runner_is_for_the_runner_to_explain() -> None:
    assert "'acme.{odd}'" in told(Failure("acme.{odd}", ""))


def test_only_what_may_succeed_later_is_to_be_sent_again() -> None:
    assert "send it again" in told(Failure("runner.crashed", "", retryable=True))
    assert "send it again" not in told(Failure("runner.crashed", ""))


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.RUNNING, RunStatus.QUEUED])
def test_nothing_is_to_be_done_for_what_did_not_fail(status: RunStatus) -> None:
    assert told(None, status) == ""
