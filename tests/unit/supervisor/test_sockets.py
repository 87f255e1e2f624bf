"""Tests of `host_service.supervisor.sockets`."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from host_service.supervisor.errors import SocketPathTooLong
from host_service.supervisor.sockets import SocketFolder


def long_folder(base: Path) -> Path:
    folder = base / ("d" * 120)
    folder.mkdir()
    return folder


def test_folder_is_private_and_removed_at_the_end(tmp_path: Path) -> None:
    with SocketFolder.create(environment={"TMPDIR": str(tmp_path)}) as sockets:
        assert sockets.path.parent == tmp_path
        assert sockets.path.stat().st_mode & 0o777 == 0o700
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(sockets.new_path()))
    assert not sockets.path.exists()


def test_every_start_gets_a_path_of_its_own(tmp_path: Path) -> None:
    with SocketFolder.create(tmp_path) as sockets:
        assert sockets.new_path() != sockets.new_path()


def test_runtime_folder_of_the_user_comes_first(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    environment = {"XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(tmp_path)}
    with SocketFolder.create(environment=environment) as sockets:
        assert sockets.path.parent == runtime


def test_folder_for_temporary_files_that_is_too_long_is_passed_over(tmp_path: Path) -> None:
    environment = {"TMPDIR": str(long_folder(tmp_path)), "XDG_RUNTIME_DIR": "/nowhere"}
    with SocketFolder.create(environment=environment) as sockets:
        assert sockets.path.parent == Path("/tmp")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(sockets.new_path()))


def test_folder_whose_name_grpc_would_misread_is_passed_over(tmp_path: Path) -> None:
    odd = tmp_path / "a b%20"
    odd.mkdir()
    with SocketFolder.create(environment={"TMPDIR": str(odd)}) as sockets:
        assert sockets.path.parent == Path("/tmp")


def test_no_short_folder_is_an_error_with_path_length_and_limit(tmp_path: Path) -> None:
    folder = long_folder(tmp_path)
    with pytest.raises(SocketPathTooLong) as raised:
        SocketFolder.create(folder)
    error = raised.value
    assert error.limit_bytes == 107
    assert error.size_bytes == len(os.fsencode(error.path)) > 107
    for part in (str(folder), str(error.size_bytes), "107"):
        assert part in str(error)


def test_folder_of_a_host_that_was_killed_is_removed_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from host_service.supervisor.sockets import SocketFolder\n"
        "sockets = SocketFolder.create(Path(sys.argv[1])); print(sockets.path, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, check=False, text=True
    )
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    with SocketFolder.create(tmp_path) as alive, SocketFolder.create(tmp_path):
        assert not left.exists()
        assert alive.path.is_dir()
