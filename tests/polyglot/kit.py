"""What the conformance kit says of an example."""

from host_service.conformance import Report


def passed(report: Report) -> set[str]:
    """Returns the checks that were made, none of which may have failed."""
    failed = [each for each in report.outcomes if each.verdict.name == "FAILED"]
    assert not failed, failed
    return {each.name for each in report.outcomes if each.verdict.name == "OK"}
