"""A host is found by what it says in its data folder, and by whether it answers there."""

import fcntl
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_service.cli.failures import CommandError
from host_service.cli.running_host import (
    find_host,
    host_holds,
    operator_key,
    read_host_file,
)

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the list of locks of Linux")


@pytest.fixture
def unix_listener(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "h.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield f"unix:{path}"


@pytest.fixture
def tcp_listener() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def announce(folder: Path, **told: object) -> None:
    (folder / "host.json").write_text(json.dumps({"pid": 1, "grpc": "", "socket": "", **told}))


def test_the_unix_socket_is_preferred(
    tmp_path: Path, unix_listener: str, tcp_listener: str
) -> None:
    announce(tmp_path, grpc=tcp_listener, socket=unix_listener)
    assert find_host(tmp_path)[1] == unix_listener


def test_tcp_is_taken_when_the_socket_is_out_of_reach(tmp_path: Path, tcp_listener: str) -> None:
    announce(tmp_path, grpc=tcp_listener, socket="unix:/nowhere/h.sock")
    assert find_host(tmp_path)[1] == tcp_listener


def test_a_host_that_left_without_a_word_is_not_running(tmp_path: Path) -> None:
    announce(tmp_path, grpc="127.0.0.1:1", socket="unix:/nowhere/h.sock")
    with pytest.raises(CommandError) as failure:
        find_host(tmp_path)
    assert str(failure.value) == (f"no host is running on {tmp_path}: start one with 'runmesh up'")


@pytest.mark.parametrize("folder", ["missing", "file/below"])
def test_a_folder_that_is_not_there_has_no_host(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="no host is running"):
        find_host(tmp_path / folder)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1, "grpc": 5}', "\x00"]
)
def test_a_damaged_host_file_is_told_and_not_trusted(tmp_path: Path, content: str) -> None:
    (tmp_path / "host.json").write_text(content)
    with pytest.raises(CommandError, match=r"host\.json is not what a host writes"):
        read_host_file(tmp_path)


@needs_linux
def test_a_lock_that_is_held_tells_that_a_host_is_starting(tmp_path: Path) -> None:
    assert not host_holds(tmp_path)
    lock = os.open(tmp_path / "host.lock", os.O_CREAT | os.O_RDWR)
    try:
        assert not host_holds(tmp_path)
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert host_holds(tmp_path)
    finally:
        os.close(lock)
    assert not host_holds(tmp_path)


@needs_linux
def test_a_host_that_is_starting_is_waited_for(tmp_path: Path, unix_listener: str) -> None:
    lock = os.open(tmp_path / "host.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    ready = threading.Timer(0.05, announce, [tmp_path], {"socket": unix_listener})
    ready.start()
    try:
        assert find_host(tmp_path)[1] == unix_listener
    finally:
        ready.join()
        os.close(lock)


@needs_linux
def test_a_start_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "host.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with pytest.raises(CommandError, match="no host is running"):
            find_host(tmp_path, start_seconds=0.05)
    finally:
        os.close(lock)


def test_the_operator_key_is_read_without_its_newline(tmp_path: Path) -> None:
    (tmp_path / "operator.key").write_text("rmk_abc\n")
    assert operator_key(tmp_path) == "rmk_abc"


def test_a_missing_operator_key_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"there is no operator key in .*RUNMESH_API_KEY"):
        operator_key(tmp_path)
