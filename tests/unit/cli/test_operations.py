"""What the commands on a database say, and what they look at."""

import io
import socket
import sys
from pathlib import Path

import pytest

from host_service.cli import content_checks, machine_checks
from host_service.cli.database import blobs_of, url_of
from host_service.cli.findings import Level
from host_service.cli.transfer import _Progress
from host_service.supervisor.cgroups import look
from host_service.supervisor.errors import CgroupUnusable
from stores.inspected import BlobsReport, DatabaseReport
from stores.secret_keys import new_secret_key


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_report(**changes: object) -> DatabaseReport:
    values: dict[str, object] = {
        "engine": "SQLite 3",
        "faults": (),
        "clock_ahead_seconds": None,
        "newest_ahead_seconds": 0.0,
        "wal_bytes": 0,
        "living_hosts": (),
        "lost_hosts": (),
        "secret_key_ids": (),
    }
    return DatabaseReport(**{**values, **changes})  # type: ignore[arg-type]


def test_progress_is_one_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    times = iter([1.0, 1.0, 1.05, 2.0, 2.0])
    with _Progress(lambda: next(times)) as progress:
        for done in (1, 2, 3):
            progress.tell("table runs", done)
    assert terminal.getvalue() == ("\r\x1b[Ktable runs: 1" + "\r\x1b[Ktable runs: 3" + "\r\x1b[K")


def test_progress_is_silent_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with _Progress() as progress:
        progress.tell("table runs", 1)
    assert pipe.getvalue() == ""


def test_blobs_are_beside_sqlite_and_else_in_the_data_folder() -> None:
    folder = Path("/data")
    assert url_of(None, folder) == "sqlite:////data/runmesh.db"
    assert blobs_of(None, None, folder) is None
    assert blobs_of(None, "sqlite:////elsewhere/x.db", folder) is None
    assert blobs_of(None, "postgresql://h/d", folder) == "file:///data/blobs"
    assert blobs_of("s3://b/p", None, folder) == "s3://b/p"


@pytest.mark.parametrize(
    ("ahead", "level"),
    [(0.2, Level.OK), (-0.9, Level.OK), (2.0, Level.WARNING), (-60.0, Level.PROBLEM)],
)
def test_clocks_that_differ_are_told(ahead: float, level: Level) -> None:
    (found,) = content_checks._check_clocks(a_report(clock_ahead_seconds=ahead))
    assert found.level is level
    assert bool(found.advice) is (level is not Level.OK)


def test_runs_from_the_future_are_told() -> None:
    (found,) = content_checks._check_clocks(a_report(newest_ahead_seconds=3600.0))
    assert (found.level, "3600 s from now" in found.told) == (Level.WARNING, True)


def test_large_log_damage_and_lost_hosts_are_told() -> None:
    report = a_report(faults=("page 7 is odd",), wal_bytes=2**30, lost_hosts=("host-1",))
    told = [*content_checks._check_files(report), *content_checks._check_hosts(report)]
    assert [found.level for found in told] == [Level.PROBLEM, Level.WARNING, Level.WARNING]
    assert "page 7 is odd" in told[0].told
    assert "1024 MiB" in told[1].told


def test_actions_that_wait_for_somebody_are_told() -> None:
    assert [*content_checks._check_actions(a_report())] == []
    waiting = a_report(awaiting_actions=3, oldest_awaiting_seconds=2.5 * 86_400)
    (found,) = content_checks._check_actions(waiting)
    assert found.level is Level.WARNING
    assert found.told == "3 wait for somebody's approval, the oldest for 2 days"


def test_missing_key_of_a_secret_is_named_and_no_key_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNMESH_SECRET_KEY", raising=False)
    file = tmp_path / "secret.key"
    (found,) = content_checks._check_secrets(a_report(secret_key_ids=("abc",)), file)
    assert (found.level, "abc" in found.told) == (Level.PROBLEM, True)
    (found,) = content_checks._check_secrets(a_report(), file)
    assert found.level is Level.WARNING
    assert not file.exists()
    monkeypatch.setenv("RUNMESH_SECRET_KEY", new_secret_key())
    (found,) = content_checks._check_secrets(a_report(), file)
    assert found.level is Level.OK


def test_lost_blobs_are_named() -> None:
    names = tuple(f"blob-{number}" for number in range(9))
    report = BlobsReport(artifacts=20, looked_at=20, lost=names, size_bytes=5)
    found = content_checks._told_blobs(report)
    assert found.told == "9 of 20 are not there, such as blob-0, blob-1, blob-2"


def test_taken_port_is_told_with_the_option_to_change(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        (found,) = machine_checks.check_port(address, "--http", tmp_path)
    assert found.level is Level.PROBLEM
    assert "--http" in found.advice
    assert list(machine_checks.check_port("unix:/x", "--grpc", tmp_path)) == []
    (found,) = machine_checks.check_port("0.0.0.0:0", "--grpc", tmp_path)
    assert found.level is Level.WARNING


def test_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    for free, level in ((10**12, Level.OK), (10**9, Level.WARNING), (10**7, Level.PROBLEM)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: _Usage(free))
        assert [f.level for f in machine_checks.check_data_folder(tmp_path)] == [Level.OK, level]


class _Usage:
    def __init__(self, free: int) -> None:
        self.free = free


def test_host_file_without_a_host_is_told(tmp_path: Path) -> None:
    (found,) = machine_checks.check_host(tmp_path)
    assert found.level is Level.OK
    (tmp_path / "host.json").write_text('{"pid": 7, "grpc": "", "socket": ""}')
    (found,) = machine_checks.check_host(tmp_path)
    assert (found.level, "process 7" in found.told) == (Level.WARNING, True)
    (tmp_path / "host.json").write_text("{")
    (found,) = machine_checks.check_host(tmp_path)
    assert found.level is Level.PROBLEM


def test_folder_that_is_too_long_for_sockets_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    monkeypatch.delenv("TMPDIR", raising=False)
    (found,) = machine_checks.check_sockets()
    assert found.level is Level.OK
    assert str(long) not in found.told
    assert list(long.iterdir()) == []


def test_limits_are_told_with_who_holds_them() -> None:
    (found,) = machine_checks.check_limits(None)
    assert (found.area, found.level, found.advice) == ("limits", Level.OK, "")
    try:
        expected = f"the kernel would hold those of plugins in {look()}: "
    except CgroupUnusable as reason:
        expected = f"a host started here would look after the memory of plugins itself: {reason}"
    assert found.told.startswith(expected)


def test_doctor_advises_an_extension_only_where_there_are_very_many_passages() -> None:
    told = [
        content_checks._vectors(a_report(without_vectors="install it", most_passages=passages))
        for passages in (0, 300_000, 300_001)
    ]
    assert [finding.level for finding in told] == [Level.OK, Level.OK, Level.WARNING]
    assert told[2].advice == "install it"
    has_it = content_checks._vectors(a_report(vectors="pgvector 0.8", most_passages=300_001))
    assert (has_it.level, has_it.advice) == (Level.OK, "")
    assert "pgvector 0.8" in has_it.told
