"""Environments are addressed by what they hold, and none is removed that is used."""

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from host_service.environments import Environment, EnvironmentShelf, Lease, Requirements
from host_service.environments.sdk import Sdk
from host_service.environments.shelf import HOSTS_OWN


@pytest.fixture
def sdk(tmp_path: Path) -> Sdk:
    """An SDK that is a carried wheel."""
    carried = tmp_path / "carried"
    carried.mkdir()
    (carried / "runmesh_sdk-0.1.0-py3-none-any.whl").write_bytes(b"a wheel")
    return Sdk(carried=carried, sources=tmp_path / "nowhere")


@pytest.fixture
def shelf(tmp_path: Path, sdk: Sdk) -> EnvironmentShelf:
    """The environments of an empty data folder."""
    return EnvironmentShelf(tmp_path / "data", sdk=sdk)


def put(shelf: EnvironmentShelf, *lines: str) -> Environment:
    """Puts an environment in its place, as a builder does."""
    environment = shelf.find(Requirements(lines=lines))
    with shelf.workshop() as workshop:
        shelf.put(make_in(workshop), environment)
    return environment


def make_in(workshop: Path) -> Path:
    made = workshop / "made"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").write_text("#!/bin/sh\n")
    (made / "bin" / "python").chmod(0o755)
    (made / "environment.json").write_text('{"requirements": ["lamp"]}')
    return made


def names(shelf: EnvironmentShelf) -> set[str]:
    return {each.name for each in shelf.folder.iterdir()} - {"lock", "wheels"}


def test_plugin_that_asks_for_nothing_has_the_hosts_python(shelf: EnvironmentShelf) -> None:
    environment = shelf.find(Requirements())
    assert environment is HOSTS_OWN
    assert environment.is_ready
    lease = shelf.take(environment)
    assert lease is not None
    lease.release()


def test_key_depends_on_all_that_an_environment_holds(
    shelf: EnvironmentShelf, sdk: Sdk, tmp_path: Path
) -> None:
    asked = [
        Requirements(lines=("lamp",)),
        Requirements(lines=("lamp", "shade")),
        Requirements(lines=("lamp",), constraints=("shade",)),
        Requirements(lines=("lamp",), digests=(("lamp-1.whl", "00"),)),
        Requirements(lines=("lamp",), digests=(("lamp-1.whl", "11"),)),
    ]
    keys = [shelf.find(each).key for each in asked]
    assert len(set(keys)) == len(keys)
    assert shelf.find(Requirements(lines=("lamp",), wheels=(tmp_path / "x",))).key == keys[0]
    (sdk.carried / "runmesh_sdk-0.1.0-py3-none-any.whl").write_bytes(b"another wheel")
    assert shelf.find(asked[0]).key != keys[0]


def test_environment_is_there_once_it_is_put_and_not_before(shelf: EnvironmentShelf) -> None:
    environment = shelf.find(Requirements(lines=("lamp",)))
    assert not environment.is_ready
    assert shelf.take(environment) is None
    assert put(shelf, "lamp").is_ready
    assert names(shelf) == {environment.key}


def test_environment_whose_python_is_gone_is_replaced(shelf: EnvironmentShelf) -> None:
    environment = put(shelf, "lamp")
    environment.python.unlink()
    environment.python.symlink_to("/no/such/python")
    assert not environment.is_ready
    assert shelf.take(environment) is None
    assert put(shelf, "lamp").is_ready


def test_second_builder_leaves_the_first_ones_environment(shelf: EnvironmentShelf) -> None:
    environment = put(shelf, "lamp")
    assert environment.folder is not None
    before = environment.folder.stat().st_ino
    put(shelf, "lamp")
    assert environment.folder.stat().st_ino == before
    assert names(shelf) == {environment.key}


def test_only_what_nobody_needs_and_nobody_uses_is_collected(shelf: EnvironmentShelf) -> None:
    needed, used, left = (put(shelf, each) for each in ("needed", "used", "left"))
    lease = shelf.take(used)
    assert lease is not None
    with lease:
        assert [each.environment for each in shelf.collect({needed.key})] == [left]
        assert names(shelf) == {needed.key, used.key}
        assert {each.environment.key: each.in_use for each in shelf.kept()} == {
            needed.key: False,
            used.key: True,
        }
    lease.release()
    assert [each.environment for each in shelf.collect({needed.key})] == [used]


def test_two_who_use_an_environment_must_both_let_it_go(shelf: EnvironmentShelf) -> None:
    environment = put(shelf, "lamp")
    first, second = shelf.take(environment), shelf.take(environment)
    assert first is not None
    assert second is not None
    first.release()
    assert shelf.collect() == []
    second.release()
    assert len(shelf.collect()) == 1


def test_what_was_used_lately_may_be_kept(shelf: EnvironmentShelf) -> None:
    old, young = put(shelf, "old"), put(shelf, "young")
    for environment in (old, young):
        assert environment.folder is not None
        long_ago = time.time() - 7200
        os.utime(environment.folder / "lock", (long_ago, long_ago))
    lease = shelf.take(young)
    assert lease is not None
    lease.release()
    removed = shelf.collect(unused_seconds=3600)
    assert [each.environment for each in removed] == [old]


@pytest.mark.parametrize("is_built_again", [False, True])
def test_who_comes_while_an_environment_is_removed_does_not_get_that_one(
    shelf: EnvironmentShelf, is_built_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = put(shelf, "lamp")
    assert environment.folder is not None
    collector = os.open(environment.folder / "lock", os.O_RDONLY)
    fcntl.flock(collector, fcntl.LOCK_EX)
    got: list[Lease | None] = []
    asks = threading.Event()
    lock = fcntl.flock

    def tell_and_lock(descriptor: int, kind: int) -> None:
        asks.set()
        lock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", tell_and_lock)
    taking = threading.Thread(target=lambda: got.append(shelf.take(environment)))
    taking.start()
    assert asks.wait(5)
    environment.folder.rename(shelf.folder / ".removing-it")
    if is_built_again:
        put(shelf, "lamp")
    os.close(collector)
    taking.join(5)
    if not is_built_again:
        assert got == [None]
        return
    (lease,) = got
    assert lease is not None
    assert shelf.collect() == []
    lease.release()


def test_left_workshops_go_unless_somebody_builds(shelf: EnvironmentShelf) -> None:
    with shelf.workshop() as workshop:
        left = shelf.folder / ".build-left"
        left.mkdir()
        # Another builder cannot tell whose it is.
        with shelf.workshop():
            assert left.is_dir()
            assert workshop.is_dir()
        assert shelf.collect() == []
        assert left.is_dir()
    assert not workshop.exists()
    shelf.collect()
    assert not left.exists()


def test_wheels_stay_while_somebody_builds(shelf: EnvironmentShelf) -> None:
    with shelf.workshop():
        (shelf.wheels / "lamp.whl").write_bytes(b"12345")
        assert shelf.remove_wheels() == 0
    assert shelf.remove_wheels() == 5
    assert not shelf.wheels.exists()


def test_looking_at_an_empty_data_folder_makes_nothing(
    shelf: EnvironmentShelf, tmp_path: Path
) -> None:
    assert shelf.kept() == []
    assert shelf.collect() == []
    assert shelf.remove_wheels() == 0
    assert not (tmp_path / "data").exists()
