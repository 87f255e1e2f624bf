"""The report as JUnit XML, which build servers read."""

import re
from xml.etree import ElementTree as ET

from host_service.conformance.report import Outcome, Report, Verdict

# What XML 1.0 has no way to write, not even escaped.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> bytes:
    """Returns the report as an XML document in UTF-8."""
    suites = ET.Element("testsuites")
    suite = ET.SubElement(
        suites,
        "testsuite",
        name=_plain(f"runmesh conformance {report.runner_id or report.target}"),
        tests=str(len(report.outcomes)),
        failures=str(report.count(Verdict.FAILED)),
        errors="0",
        skipped=str(report.count(Verdict.SKIPPED)),
        time=f"{report.seconds:.3f}",
    )
    for outcome in report.outcomes:
        _add(suite, outcome)
    if report.output:
        ET.SubElement(suite, "system-err").text = _plain(report.output)
    document: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document


def _add(suite: ET.Element, outcome: Outcome) -> None:
    group, _, rule = outcome.name.partition(".")
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"conformance.{group}",
        name=rule,
        time=f"{outcome.seconds:.3f}",
    )
    if outcome.verdict is Verdict.SKIPPED:
        ET.SubElement(case, "skipped", message=_plain(outcome.remark))
    elif outcome.verdict is Verdict.FAILED:
        failure = ET.SubElement(case, "failure", message=_plain(outcome.got), type="contract")
        failure.text = _plain(
            f"{outcome.asks}\nexpected: {outcome.expected}\ngot: {outcome.got}\n"
            f"do: {outcome.advice}\nrule: {outcome.source}"
        )


def _plain(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
