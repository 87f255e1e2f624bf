"""Plugins that operators set up, disable, restart and drain while the host runs."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.commands import CommandLine, running, wait_for
from tests.integration.plugins.mesh import bare, write_plugin

CANARY = "canary-7f3a"


def instances(host: CommandLine, name: str) -> list[dict[str, Any]]:
    """What the host lists of the instances of `acme/NAME`."""
    ran = host("runners", "list", "--only", "instances", "--json")
    assert ran.status == 0, ran.err
    return [each for each in ran.json() if each["plugin_id"] == f"acme/{name}"]


def serving(host: CommandLine, name: str) -> dict[str, Any] | None:
    """The one instance of `acme/NAME`, once it serves."""
    found = instances(host, name)
    if len(found) == 1 and found[0]["state"] == "INSTANCE_STATE_SERVING":
        return found[0]
    return None


def until_serving(host: CommandLine, name: str, *, not_this: str = "") -> dict[str, Any]:
    """Waits for an instance of `acme/NAME`, another than one, to be the only one and serve."""

    def is_there() -> bool:
        found = serving(host, name)
        return found is not None and found["instance_id"] != not_this

    wait_for(is_there)
    found = serving(host, name)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the host, its plugins and what those write are."""
    return tmp_path_factory.mktemp("plugins")


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def elsewhere(folder: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A runner that somebody else runs."""
    environment = {
        **os.environ,
        "RUNMESH_LISTEN": f"127.0.0.1:{port}",
        "RUNMESH_PLUGIN_ID": "acme/static",
    }
    process = subprocess.Popen(bare(f"settings_file={folder / 'static'}"), env=environment)
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def host(folder: Path, port: int, elsewhere: "subprocess.Popen[bytes]") -> Iterator[CommandLine]:
    """A host with a plugin of its own, and a runner that it dials."""
    plugins = folder / "plugins"
    plugins.mkdir()
    write_plugin(plugins, "desk", bare(f"settings_file={folder / 'desk'}"))
    arguments = ["--plugins", str(plugins), "--runner", f"acme/static=127.0.0.1:{port}"]
    with running(folder / "data", *arguments) as command_line:
        yield command_line


def test_settings_reach_a_plugin_and_secret_ones_nobody_else(
    host: CommandLine, folder: Path
) -> None:
    before = until_serving(host, "desk")["instance_id"]
    ran = host(
        *("plugins", "settings", "acme/desk", "--set", "url=https://desk", "--set"),
        *("chat=12345678901234567890.10", "--secret", "token=DESK_TOKEN"),
        environment={"DESK_TOKEN": CANARY},
    )
    assert ran.status == 0, ran.err
    assert CANARY not in ran.out
    assert "12345678901234567890.10" in ran.out
    until_serving(host, "desk", not_this=before)
    handed = (folder / "desk").read_text()
    assert json.loads(handed)["url"] == "https://desk"
    assert json.loads(handed)["token"] == CANARY
    assert "12345678901234567890.10" in handed

    shown = host("plugins", "settings", "acme/desk", "--json")
    assert shown.json()["secrets"] == [{"name": "token"}]
    for file in (folder / "data").rglob("*"):
        if file.is_file():
            assert CANARY.encode() not in file.read_bytes(), file


def test_settings_reach_a_runner_that_somebody_else_runs(host: CommandLine, folder: Path) -> None:
    before = until_serving(host, "static")["instance_id"]
    assert host("plugins", "settings", "acme/static", "--set", "colour=red").status == 0
    wait_for(lambda: "red" in (folder / "static").read_text())
    assert until_serving(host, "static")["instance_id"] == before
    assert host("plugins", "settings", "acme/static", "--remove", "colour").status == 0
    wait_for(lambda: "red" not in (folder / "static").read_text())


def test_runner_that_was_frozen_when_its_settings_changed_is_told_when_it_answers(
    host: CommandLine, folder: Path, elsewhere: "subprocess.Popen[bytes]"
) -> None:
    until_serving(host, "static")
    elsewhere.send_signal(signal.SIGSTOP)
    assert host("plugins", "settings", "acme/static", "--set", "colour=green").status == 0
    wait_for(lambda: serving(host, "static") is None)
    elsewhere.send_signal(signal.SIGCONT)
    wait_for(lambda: "green" in (folder / "static").read_text())
    until_serving(host, "static")
    assert host("plugins", "settings", "acme/static", "--remove", "colour").status == 0


def test_disabled_plugin_has_no_process_and_one_elsewhere_gets_no_runs(host: CommandLine) -> None:
    process = int(until_serving(host, "desk")["process_id"])
    until_serving(host, "static")
    assert host("plugins", "disable", "acme/desk").out == "acme/desk is disabled\n"
    assert host("plugins", "disable", "acme/static").status == 0
    wait_for(lambda: not instances(host, "desk") and not Path(f"/proc/{process}").exists())
    (static,) = instances(host, "static")
    assert (static["state"], static["reason"]) == (
        "INSTANCE_STATE_DRAINING",
        "its plugin is disabled",
    )
    for name in ("desk", "static"):
        assert host("plugins", "enable", f"acme/{name}").status == 0
        until_serving(host, name)


def test_instance_is_drained_and_resumed_by_the_beginning_of_its_id(host: CommandLine) -> None:
    instance = until_serving(host, "static")["instance_id"]
    shown = host("runners", "list", "--only", "instances").out
    assert instance[:12] in shown
    ran = host("runners", "drain", instance[:12])
    assert ran.status == 0, ran.err
    assert ran.out == f"instance {instance} gets no more runs; it works on 0\n"
    (drained,) = instances(host, "static")
    assert drained["reason"] == "an operator drains it"
    assert host("runners", "resume", instance[:12]).status == 0
    assert until_serving(host, "static")["instance_id"] == instance
    assert "no instance has an id that begins with 'zz'" in host("runners", "drain", "zz").err


def test_plugin_is_restarted_by_name(host: CommandLine) -> None:
    before = until_serving(host, "desk")
    assert host("runners", "restart", "acme/desk").status == 0
    assert until_serving(host, "desk", not_this=before["instance_id"])["restarts"] > 0
    told = host("runners", "restart", "acme/static").error_line()
    assert "'acme/static'" in told
    assert "runmesh runners list" in told


def test_settings_that_will_not_do_are_refused(host: CommandLine, folder: Path) -> None:
    file = folder / "mesh.yaml"
    file.write_text(
        "plugins:\n- plugin_id: acme/desk\n  settings: {token: x}\n  secrets: {token: {env: T}}\n"
        "- plugin_id: acme/other\n  secrets: {key: }\n"
    )
    told = host("apply", "-f", str(file), environment={"T": "x"}).err
    assert "mesh.yaml:6" in told
    file.write_text(
        "plugins:\n- plugin_id: acme/desk\n  settings: {token: x}\n  secrets: {token: {env: T}}\n"
    )
    told = host("apply", "-f", str(file), environment={"T": "x"}).err
    assert "a name that no other setting has" in told
    assert host("plugins", "settings", "acme/desk", "--set", "nothing").status == 2
    missing = host("plugins", "settings", "acme/desk", "--secret", "a=NOT_THERE").error_line()
    assert "NOT_THERE" in missing


def test_plugin_that_was_disabled_is_not_started_by_the_next_start(tmp_path: Path) -> None:
    started = tmp_path / "started"
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    write_plugin(plugins, "desk", ["/bin/sh", "-c", f"echo x >> {started}; sleep 60"])
    file = tmp_path / "mesh.yaml"
    file.write_text("plugins:\n- {plugin_id: acme/desk, enabled: false}\n")
    data = tmp_path / "data"
    with running(data, "--config", str(file), "--plugins", str(plugins)) as host:
        assert instances(host, "desk") == []
    with running(data, "--plugins", str(plugins)) as host:
        assert instances(host, "desk") == []
    assert not started.exists()
