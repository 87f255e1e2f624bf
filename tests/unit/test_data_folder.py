"""Tests of `host_service.data_folder`: private, one host's at a time, and honest about it."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from host_service.cli.running_host import host_holds, read_host_file
from host_service.data_folder import DataFolder, HostAddresses
from host_service.errors import StartupError

ADDRESSES = HostAddresses(
    pid=4711,
    host_id="host",
    version="0.1.0",
    grpc="127.0.0.1:50051",
    socket="unix:/run/h.sock",
    http="127.0.0.1:8080",
    started_at="2026-03-01T12:00:00Z",
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077])
def _umask(request: pytest.FixtureRequest) -> object:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
def test_folder_and_everything_in_it_are_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    folder = DataFolder.open(path)
    folder.host_id()
    folder.operator_key(lambda: "rmk_secret")
    folder.announce(ADDRESSES)
    assert mode(path) == 0o700
    assert {mode(each) for each in path.iterdir()} == {0o600}
    folder.close()


def test_folder_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0o755)
    DataFolder.open(path).close()
    assert mode(path) == 0o700


def test_second_host_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    with pytest.raises(StartupError, match=f"another host uses the data folder {tmp_path}.*--data"):
        DataFolder.open(tmp_path)
    folder.announce(ADDRESSES)
    with pytest.raises(StartupError, match=r"another host \(process 4711\)"):
        DataFolder.open(tmp_path)
    # Being refused, the second one took nothing down.
    assert read_host_file(tmp_path) is not None
    folder.close()
    DataFolder.open(tmp_path).close()


def test_host_that_died_leaves_the_folder_to_the_next(tmp_path: Path) -> None:
    died = DataFolder.open(tmp_path)
    died.announce(ADDRESSES)
    # All that is left of a process that was killed: its files, and no lock.
    os.close(died._lock)
    folder = DataFolder.open(tmp_path)
    # What it left says where nobody listens.
    assert not (tmp_path / "host.json").exists()
    folder.close()


def test_host_file_says_where_the_host_listens_and_only_while_it_does(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    assert not (tmp_path / "host.json").exists()
    folder.announce(ADDRESSES)
    told = json.loads((tmp_path / "host.json").read_text())
    assert HostAddresses(**told) == ADDRESSES
    folder.announce(replace(ADDRESSES, http=""))
    assert json.loads((tmp_path / "host.json").read_text())["http"] == ""
    folder.close()
    assert not (tmp_path / "host.json").exists()


def test_command_line_reads_what_the_host_writes(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    assert host_holds(tmp_path)
    folder.announce(ADDRESSES)
    host = read_host_file(tmp_path)
    assert host is not None
    assert (host.process_id, host.grpc, host.socket) == (4711, ADDRESSES.grpc, ADDRESSES.socket)
    folder.close()
    assert read_host_file(tmp_path) is None
    assert not host_holds(tmp_path)


def test_id_of_the_host_is_the_same_for_every_start(tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        folder = DataFolder.open(tmp_path)
        ids.append(folder.host_id())
        folder.close()
    assert len(set(ids)) == 1
    other = DataFolder.open(tmp_path / "other")
    assert other.host_id() not in ids
    other.close()


def test_operators_key_is_made_once_and_kept(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    assert not folder.has_operator_key()
    made = iter(["rmk_first", "rmk_second"])
    assert folder.operator_key(lambda: next(made)) == "rmk_first"
    assert folder.operator_key(lambda: next(made)) == "rmk_first"
    assert folder.has_operator_key()
    folder.close()


def test_folder_that_cannot_be_made_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError) as raised:
        DataFolder.open(tmp_path / "file" / "data")
    assert str(tmp_path / "file" / "data") in raised.value.message
    assert "Not a directory" in raised.value.message
    assert "--data" in raised.value.advice


def test_lock_is_not_handed_to_child_processes(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    assert not os.get_inheritable(folder._lock)
    folder.close()


def test_places_are_inside_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = DataFolder.open(Path("data"))
    assert folder.path == tmp_path / "data"
    assert folder.plugins == tmp_path / "data" / "plugins"
    assert folder.database_url == f"sqlite:///{tmp_path}/data/runmesh.db"
    folder.close()


def test_bytes_are_beside_a_sqlite_file_and_else_in_the_folder(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path / "data")
    try:
        assert folder.blobs_url(None) is None
        assert folder.blobs_url("sqlite:////elsewhere/x.db") is None
        blobs = folder.blobs_url("postgresql+psycopg://h/d")
        assert blobs == (tmp_path / "data" / "blobs").resolve().as_uri()
    finally:
        folder.close()
