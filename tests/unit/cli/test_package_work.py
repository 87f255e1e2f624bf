"""Tests of `host_service.cli.package_work`."""

import json
from pathlib import Path

from host_service.cli.package_work import HostOnData


def test_no_host_is_seen_where_none_runs_or_one_was_killed(tmp_path: Path) -> None:
    assert HostOnData(tmp_path).instances("acme/weather") is None
    (tmp_path / "host.lock").touch()
    left = {"pid": 1, "grpc": "127.0.0.1:9", "socket": f"unix:{tmp_path}/gone.sock"}
    (tmp_path / "host.json").write_text(json.dumps(left))
    assert HostOnData(tmp_path).instances("acme/weather") is None
