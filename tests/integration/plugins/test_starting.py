"""Plugins that start, and plugins that do not."""

import asyncio
import logging
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from host_service.registry import InstanceState
from host_service.supervisor import ChildPolicy, RestartPolicy
from host_service.supervisor.child import Child, Launch
from host_service.supervisor.errors import CommandMissing, CommandUnusable, FolderMissing
from host_service.supervisor.manifest import Limits
from tests.integration.plugins.mesh import Mesh, bare, shell, write_plugin
from tests.integration.plugins.processes import mode_of

MakeMesh = Callable[..., Mesh]

SHIPPED = Path(__file__).parents[3] / "plugins"

# So that what a first start came to stays to be seen.
ONCE = RestartPolicy(first_delay_seconds=30)


async def test_plugin_that_ends_at_its_start_fails_within_a_second_and_says_how(
    base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "exit3", shell("echo no licence >&2; exit 3"))
    write_plugin(base, "killed", shell("echo about to die >&2; kill -9 $$"))
    write_plugin(base, "wrapped", shell("sh -c 'kill -9 $$'; exit $?"))
    write_plugin(base, "quiet", ["true"])
    mesh = make_mesh(restart=ONCE)
    started = time.monotonic()
    await mesh.supervisor.start()
    assert await mesh.supervisor.settled(5)
    assert time.monotonic() - started < 1.0
    reasons = {name: mesh.instance(name).reason for name in ("exit3", "killed", "wrapped", "quiet")}
    assert reasons == {
        "exit3": "its process exited with code 3; the last it wrote:\nno licence",
        "killed": "its process was killed by signal 9, SIGKILL; the last it wrote:\nabout to die",
        "wrapped": "its process exited with code 137 (128 + signal 9, SIGKILL); "
        "the last it wrote:\nKilled",
        "quiet": "its process exited with code 0; it wrote nothing",
    }
    assert {each.state for each in mesh.registry.instances()} == {InstanceState.UNHEALTHY}


async def test_command_that_cannot_be_run_is_told_apart_from_one_that_is_not_there(
    base: Path, make_mesh: MakeMesh
) -> None:
    folder = write_plugin(base, "not-executable", ["./bin"])
    (folder / "bin").write_text("#!/bin/sh\n")
    folder = write_plugin(base, "no-interpreter", ["./bin"])
    (folder / "bin").write_text("#!/no/such/interpreter\n")
    (folder / "bin").chmod(0o755)
    folder = write_plugin(base, "no-program", ["./bin"])
    (folder / "bin").write_text("hello\n")
    (folder / "bin").chmod(0o755)
    write_plugin(base, "absent", ["./bin"])
    write_plugin(base, "absent-from-path", ["no-such-command"])
    mesh = make_mesh(restart=ONCE)
    await mesh.supervisor.start()
    assert await mesh.supervisor.settled(5)
    assert {
        each.plugin_id.removeprefix("acme/"): each.reason for each in mesh.registry.instances()
    } == {
        "not-executable": "its command ./bin is not executable: Permission denied",
        "no-interpreter": "the interpreter that ./bin names in its first line is not there",
        "no-program": "its command ./bin is no program, and no script with a #! line",
        "absent": "its command ./bin is not there",
        "absent-from-path": "its command no-such-command is not there",
    }


async def test_absent_folder_is_told_apart_from_an_absent_command(tmp_path: Path) -> None:
    def launch(folder: Path, command: str) -> Launch:
        environment = {"RUNMESH_LISTEN": "unix:/x", "PATH": "/bin"}
        return Launch("acme/desk", (command,), folder, environment, Limits())

    (tmp_path / "file").write_text("")
    for folder, command, expected in [
        (tmp_path / "gone", "sh", FolderMissing),
        (tmp_path / "file", "sh", FolderMissing),
        (tmp_path, "no-such-command", CommandMissing),
        (tmp_path, "./file", CommandUnusable),
    ]:
        with pytest.raises(expected):
            await Child.start(launch(folder, command))


async def test_what_a_plugin_prints_first_does_not_disturb_it(
    base: Path, make_mesh: MakeMesh, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="runmesh.plugin")
    write_plugin(base, "loud", bare("first=banner,megabyte"))
    mesh = make_mesh()
    await mesh.supervisor.start()
    await mesh.until("loud", InstanceState.SERVING)
    lines = [record.getMessage() for record in caplog.records if record.name == "runmesh.plugin"]
    assert lines[0] == "acme/loud: Welcome to \ufffd\ufffd\ufffd"
    assert len(lines) < 300


async def test_plugin_that_writes_without_end_serves_and_hurts_nobody(
    base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(
        base, "flood", shell('yes "$(head -c 99 /dev/zero | tr "\\0" x)" & exec "$@"', *bare())
    )
    mesh = make_mesh()
    await mesh.supervisor.start()
    await mesh.until("flood", InstanceState.SERVING)
    loop = asyncio.get_running_loop()
    late = []
    for _ in range(200):
        before = loop.time()
        await asyncio.sleep(0.002)
        late.append(loop.time() - before - 0.002)
    assert sorted(late)[150] < 0.02
    assert mesh.instance("flood").state is InstanceState.SERVING


async def test_plugin_that_does_not_become_ready_fails_in_time_and_delays_nobody(
    base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "mute", shell("echo thinking; sleep 60"))
    write_plugin(base, "hangs", bare("hang"))
    write_plugin(base, "good", bare())
    mesh = make_mesh(restart=RestartPolicy(ready_timeout_seconds=2.5, first_delay_seconds=30))
    started = time.monotonic()
    await mesh.supervisor.start()
    assert time.monotonic() - started < 0.5
    good = await mesh.until("good", InstanceState.SERVING)
    assert mesh.instance("hangs").state is InstanceState.STARTING
    assert good.instance_id
    assert await mesh.supervisor.settled(10)
    reason = "it did not listen on RUNMESH_LISTEN in 2.5 s; the last it wrote:\nthinking"
    assert mesh.instance("mute").reason == reason
    assert "did not answer its handshake within" in mesh.instance("hangs").reason


async def test_what_must_not_be_called_is_listed_with_the_reason_and_disturbs_nobody(
    base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "impostor", bare("plugin_id=acme/other"))
    write_plugin(base, "future", bare("version="))
    write_plugin(base, "odd", bare("bad_manifest"))
    write_plugin(base, "newer", bare("unknown_enum"))
    mesh = make_mesh()
    await mesh.supervisor.start()
    assert await mesh.supervisor.settled(10)
    impostor, future = mesh.instance("impostor"), mesh.instance("future")
    assert impostor.state is InstanceState.REFUSED
    assert impostor.reason == (
        "it was found as 'acme/impostor', and its handshake names 'acme/other'"
    )
    assert future.state is InstanceState.INCOMPATIBLE
    assert "this host speaks 1, it picked none" in future.reason
    assert [each.id for each in mesh.registry.runners()] == [
        "plugin:acme/newer/default",
        "plugin:acme/odd/default",
    ]
    (fault,) = mesh.registry.faults()
    assert (fault.plugin_id, fault.runner_id, fault.field) == (
        "acme/odd",
        "plugin:acme/odd/bad",
        "name",
    )


async def test_plugins_settings_come_with_the_handshake(
    base: Path, tmp_path: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "desk", bare(f"settings_file={tmp_path / 'settings'}"))
    mesh = make_mesh(settings_of={"acme/desk": '{"url": "https://desk"}'}.get)
    await mesh.supervisor.start()
    await mesh.until("desk", InstanceState.SERVING)
    assert (tmp_path / "settings").read_text() == '{"url": "https://desk"}'


async def test_plugin_sees_only_the_environment_that_was_made_for_it(
    base: Path, make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATABASE_URL", "OPENAI_API_KEY", "DESK_TOKEN", "PYTHONPATH", "RUNMESH_DATA"):
        monkeypatch.setenv(name, "canary")
    write_plugin(base, "dump", shell("env > $HOME/env; pwd >> $HOME/env"), env=["DESK_TOKEN"])
    mesh = make_mesh(restart=ONCE, policy=ChildPolicy(allowed_env=frozenset({"DESK_*"})))
    await mesh.supervisor.start()
    assert await mesh.supervisor.settled(5)
    lines = (mesh.home("dump") / "env").read_text().splitlines()
    assert lines[-1] == str(base / "dump")
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert [name for name, value in seen.items() if "canary" in value] == ["DESK_TOKEN"]
    assert seen["RUNMESH_PLUGIN_ID"] == "acme/dump"
    assert seen["RUNMESH_LISTEN"] == mesh.instance("dump").address
    # PWD, SHLVL and the like are a shell's own.
    given = {"HOME", "LANG", "PATH", "RUNMESH_LISTEN", "RUNMESH_PLUGIN_ID", "RUNMESH_SUPERVISED"}
    own = {"PWD", "OLDPWD", "SHLVL", "_", "TMPDIR", "TZ", "DESK_TOKEN"}
    assert {name for name in seen if not name.startswith("LC_")} <= given | own


async def test_plugin_that_is_a_python_module_runs_in_its_folder(
    tmp_path: Path, make_mesh: MakeMesh
) -> None:
    mesh = make_mesh(folders=[SHIPPED])
    await mesh.supervisor.start()
    assert await mesh.supervisor.settled(20)
    (echo,) = [each for each in mesh.registry.instances() if each.plugin_id == "runmesh/echo"]
    assert echo.state is InstanceState.SERVING
    assert echo.sdk.startswith("runmesh-sdk python ")
    assert mesh.registry.manifest("plugin:runmesh/echo/default") is not None
    assert mesh.registry.faults() == ()
    assert await mesh.registry.wait_for("plugin:runmesh/echo/default") is echo


async def test_socket_of_a_plugin_is_private(base: Path, make_mesh: MakeMesh) -> None:
    write_plugin(base, "desk", bare())
    mesh = make_mesh()
    await mesh.supervisor.start()
    instance = await mesh.until("desk", InstanceState.SERVING)
    socket = Path(instance.address.removeprefix("unix:"))
    assert stat.S_ISSOCK(mode_of(socket) or 0)
    assert stat.filemode(mode_of(socket.parent) or 0) == "drwx------"
    await mesh.supervisor.stop()
    assert mode_of(socket.parent) is None


async def test_plugin_starts_even_where_the_folder_for_temporary_files_has_a_long_path(
    base: Path, tmp_path: Path, make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    write_plugin(base, "desk", bare())
    mesh = make_mesh()
    await mesh.supervisor.start()
    await mesh.until("desk", InstanceState.SERVING)


async def test_limits_of_a_manifest_hold(base: Path, make_mesh: MakeMesh) -> None:
    hungry = "import time; kept = bytearray(80 << 20); print('ate', flush=True); time.sleep(30)"
    write_plugin(base, "files", shell("ulimit -n >&2; exit 1"), limits={"open_files": 77})
    counting = "import os; raise SystemExit(str(len(os.sched_getaffinity(0))))"
    write_plugin(base, "half", [sys.executable, "-c", counting], limits={"cpu": 0.5})
    write_plugin(base, "many", [sys.executable, "-c", counting], limits={"cpu": 1000})
    write_plugin(base, "hungry", [sys.executable, "-c", hungry], limits={"memory": "40MiB"})
    mesh = make_mesh(restart=ONCE)
    await mesh.supervisor.start()
    assert await mesh.supervisor.settled(10)
    assert mesh.instance("files").reason.endswith("\n77")
    assert mesh.instance("half").reason.endswith("\n1")
    assert mesh.instance("many").reason.endswith(f"\n{len(os.sched_getaffinity(0))}")
    assert "was killed: over its memory limit of 40 MiB (it used " in mesh.instance("hungry").reason


async def test_problem_told_to_callers_is_short_whatever_was_printed(
    base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "desk", [f"./{'x' * 200}/{'y' * 200}"])
    write_plugin(base, "loud", shell("seq 1000 >&2; exit 3"))
    mesh = make_mesh(restart=ONCE)
    await mesh.supervisor.start()
    assert await mesh.supervisor.settled(10)
    assert len(mesh.instance("desk").problem) <= 303 < len(mesh.instance("desk").reason)
    assert mesh.instance("loud").problem == "its process exited with code 3"
    assert mesh.instance("loud").reason.endswith("\n999\n1000")
