"""Tests of `host_service.supervisor.environment`."""

import logging
from pathlib import Path

import pytest

from host_service.supervisor.environment import ChildPolicy, PrivateFolders, child_environment
from host_service.supervisor.manifest import Command, PluginManifest

HOST = {
    "PATH": "/usr/bin",
    "LANG": "de_DE.UTF-8",
    "LC_TIME": "C",
    "TZ": "UTC",
    "HOME": "/home/operator",
    "TMPDIR": "/var/tmp",
    "PYTHONPATH": "/elsewhere",
    "LD_PRELOAD": "evil.so",
    "RUNMESH_DATA": "/data",
    "OPENAI_API_KEY": "secret",
    "DESK_URL": "https://desk",
    "DESK_KEY": "secret too",
}


def environment(tmp_path: Path, *, env: tuple[str, ...], allowed: set[str]) -> dict[str, str]:
    manifest = PluginManifest(tmp_path, "acme", "desk", "1", Command(("x",)), env=env)
    return child_environment(
        manifest,
        listen="unix:/run/1.sock",
        folders=PrivateFolders.within(tmp_path / "private", "acme/desk"),
        policy=ChildPolicy(allowed_env=frozenset(allowed)),
        host=HOST,
    )


def test_plugin_sees_what_is_harmless_and_nothing_else(tmp_path: Path) -> None:
    assert environment(tmp_path, env=(), allowed={"*"}) == {
        "PATH": "/usr/bin",
        "LANG": "de_DE.UTF-8",
        "LC_TIME": "C",
        "TZ": "UTC",
        "HOME": str(tmp_path / "private/acme/desk/home"),
        "TMPDIR": str(tmp_path / "private/acme/desk/tmp"),
        "RUNMESH_LISTEN": "unix:/run/1.sock",
        "RUNMESH_PLUGIN_ID": "acme/desk",
        "RUNMESH_SUPERVISED": "1",
    }


def test_plugin_gets_what_it_asks_for_and_policy_allows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = ("DESK_URL", "DESK_KEY", "OPENAI_API_KEY", "DESK_ABSENT")
    with caplog.at_level(logging.WARNING):
        given = environment(tmp_path, env=asked, allowed={"DESK_*"})
    assert given["DESK_URL"] == "https://desk"
    assert given["DESK_KEY"] == "secret too"
    assert not given.keys() & {"OPENAI_API_KEY", "DESK_ABSENT"}
    assert caplog.messages == ["acme/desk asks for OPENAI_API_KEY, which policy does not give"]


def test_plugins_own_folders_win_over_what_it_asks_for(tmp_path: Path) -> None:
    given = environment(tmp_path, env=("HOME", "TMPDIR"), allowed={"HOME", "TMPDIR"})
    assert given["HOME"].startswith(str(tmp_path))
    assert given["TMPDIR"].startswith(str(tmp_path))


def test_private_folders_are_private(tmp_path: Path) -> None:
    folders = PrivateFolders.within(tmp_path / "private", "acme/desk")
    for folder in (folders.home, folders.temporary, folders.home.parent, tmp_path / "private"):
        assert folder.stat().st_mode & 0o777 == 0o700
