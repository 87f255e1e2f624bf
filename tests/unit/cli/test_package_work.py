"""Tests of `host_service.cli.package_work`."""

import json
import logging
from pathlib import Path

import pytest

from host_service.cli.failures import CommandError
from host_service.cli.package_work import HostOnData, failing_plainly
from host_service.packages.errors import NotAPlugin


def test_no_host_is_seen_where_none_runs_or_one_was_killed(tmp_path: Path) -> None:
    assert HostOnData(tmp_path).instances("acme/weather") is None
    (tmp_path / "host.lock").touch()
    left = {"pid": 1, "grpc": "127.0.0.1:9", "socket": f"unix:{tmp_path}/gone.sock"}
    (tmp_path / "host.json").write_text(json.dumps(left))
    assert HostOnData(tmp_path).instances("acme/weather") is None


def test_warnings_are_told_once_and_those_of_instances_with_the_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(CommandError, match="it is none: make one"):
        _warn_and_fail()
    assert capsys.readouterr().err == "runmesh: colour is not known here\n"
    assert logging.getLogger("runmesh").handlers == []


@failing_plainly()
def _warn_and_fail() -> None:
    for _ in range(3):
        logging.getLogger("runmesh.supervisor").warning("%s is not known here", "colour")
        logging.getLogger("runmesh.registry").warning("acme/weather is refused")
    raise NotAPlugin("it is none", "make one")
