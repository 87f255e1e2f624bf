"""Tests of `host_service.conformance.report` and `junit`."""

from xml.etree import ElementTree as ET

from host_service.conformance import Outcome, Report, Verdict, to_junit


def outcome(name: str, verdict: Verdict, **told: str) -> Outcome:
    return Outcome(name, "It holds.", "run.proto", verdict, 0.25, **told)


def report(*outcomes: Outcome, output: str = "") -> Report:
    return Report(
        target="unix:/run/x.sock",
        runner_id="plugin:acme/desk/default",
        sdk="python",
        outcomes=outcomes,
        seconds=1.5,
        output=output,
    )


def test_a_report_passes_when_something_was_checked_and_nothing_failed() -> None:
    ok, skipped = outcome("a.b", Verdict.OK), outcome("a.c", Verdict.SKIPPED)
    assert report(ok, skipped).passed
    assert not report(ok, outcome("a.d", Verdict.FAILED)).passed
    assert not report(skipped).passed
    assert not report().passed


def test_outcomes_are_counted_by_verdict() -> None:
    told = report(
        outcome("a.b", Verdict.OK), outcome("a.c", Verdict.FAILED), outcome("d.e", Verdict.FAILED)
    )
    assert [told.count(verdict) for verdict in Verdict] == [1, 2, 0]
    assert told.failed == ("a.c", "d.e")


def test_junit_has_a_case_for_each_check_with_what_failed_and_why_it_was_skipped() -> None:
    document = ET.fromstring(
        to_junit(
            report(
                outcome("input.text", Verdict.OK),
                outcome("input.echo", Verdict.SKIPPED, remark="no echo"),
                outcome("results.size", Verdict.FAILED, expected="1", got="2 < 3", advice="mend"),
            )
        )
    )
    (suite,) = document
    assert suite.attrib == {
        "name": "runmesh conformance plugin:acme/desk/default",
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "time": "1.500",
    }
    assert [(case.get("classname"), case.get("name")) for case in suite] == [
        ("conformance.input", "text"),
        ("conformance.input", "echo"),
        ("conformance.results", "size"),
    ]
    assert [[child.tag for child in case] for case in suite] == [[], ["skipped"], ["failure"]]
    failure = suite[2][0]
    assert failure.get("message") == "2 < 3"
    for part in ("It holds.", "expected: 1", "got: 2 < 3", "do: mend", "rule: run.proto"):
        assert part in str(failure.text)


def test_junit_stays_xml_whatever_a_runner_has_said() -> None:
    text = "\x00\x1b[31m \ud800 \ufffe \U0001f600 ]]> & <x>"
    document = ET.fromstring(
        to_junit(report(outcome("a.b", Verdict.FAILED, got=text), output=text))
    )
    message = document[0][0][0].get("message")
    assert message == "\ufffd\ufffd[31m \ufffd \ufffd \U0001f600 ]]> & <x>"
    assert document[0][1].tag == "system-err"
