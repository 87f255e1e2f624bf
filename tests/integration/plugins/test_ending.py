"""Plugins end whole, whoever ends them."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from runmesh.v1 import context_pb2, run_pb2

from host_service.registry import InstanceState
from host_service.supervisor import guardian
from host_service.supervisor.child import Child, Launch
from host_service.supervisor.errors import PluginFailed
from host_service.supervisor.manifest import Limits
from tests.integration.plugins.mesh import Mesh, bare, shell, write_plugin
from tests.integration.plugins.processes import (
    descriptors,
    eventually,
    is_alive,
    parent,
    read_numbers,
)

ROOT = Path(__file__).parents[3]

MakeMesh = Callable[..., Mesh]
RunHost = Callable[[Path, Path], Awaitable[Process]]

# Ignores SIGTERM, and has two grandchildren that do so too, one of them in a session of its own.
STUBBORN = """
trap '' TERM
sh -c 'echo $$ >> $HOME/pids; while :; do sleep 0.1; done' &
setsid sh -c 'echo $$ >> $HOME/pids; while :; do sleep 0.1; done' &
echo $$ >> $HOME/pids
exec "$@"
"""


def launch(tmp_path: Path, *command: str) -> Launch:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    environment["RUNMESH_LISTEN"] = f"unix:{tmp_path}/1.sock"
    return Launch("acme/desk", command, tmp_path, environment, Limits())


@pytest.fixture
def slow_guardian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes guardians that take their time to start anything."""
    run = f"runpy.run_path({guardian.__file__!r}, run_name='__main__')"
    code = f"import runpy, time; time.sleep(0.3); {run}"
    (tmp_path / "slow.py").write_text(code)
    monkeypatch.setattr(
        "host_service.supervisor.child.guardian",
        SimpleNamespace(__file__=str(tmp_path / "slow.py")),
    )


@pytest.fixture
async def bystander() -> AsyncIterator[int]:
    """A process in a group of its own that nobody may touch."""
    process = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    yield process.pid
    assert is_alive(process.pid)
    process.kill()
    await process.wait()


@pytest.fixture
async def run_host() -> AsyncIterator[RunHost]:
    """Runs a process with a registry and a supervisor in it."""
    started: list[Process] = []

    async def run(plugins: Path, runtime: Path) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.plugins.doomed_host", plugins, runtime),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def plugins_of(host: Process) -> list[int]:
    """Waits until a host's plugins have settled, and gives their processes."""
    assert host.stdout is not None
    return [int(each) for each in (await host.stdout.readline()).split()]


async def test_plugin_that_ignores_being_asked_is_killed_with_all_it_started(
    tmp_path: Path, bystander: int
) -> None:
    child = await Child.start(launch(tmp_path, *shell(STUBBORN, "sleep", "60")))
    processes = await read_numbers(tmp_path / "pids", 3)
    guardian = parent(child.process_id)
    started = time.monotonic()
    await child.stop(0.3)
    assert 0.3 <= time.monotonic() - started < 1.5
    assert not [each for each in [*processes, guardian] if is_alive(each)]
    assert (await child.ended).signal == signal.SIGKILL


async def test_plugin_behind_a_shell_gets_its_time_to_end(tmp_path: Path) -> None:
    slow_to_end = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), print('bye'), sys.exit()))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    child = await Child.start(
        launch(tmp_path, *shell('"$@"; exit 1', *bare()[:1], "-c", slow_to_end))
    )
    await eventually(lambda: "ready" in child.tail())
    await child.stop(5.0)
    assert child.tail().endswith("bye")


# A guardian ends everything below its own process, so it gets one of its own here as well.
_ASKING_ONCE = """
import json, os, signal, subprocess, sys, time
from host_service.supervisor.guardian import Guard

inside = "sh -c 'echo $$ >> pids; exec sleep 60'"
plugin = subprocess.Popen(
    ["sh", "-c", f"{inside} & setsid {inside} & wait"], start_new_session=True
)
while not os.path.exists("pids") or len(open("pids").read().split()) < 2:
    time.sleep(0.01)
asked, kill, killpg = [], os.kill, os.killpg
os.kill = lambda process, number: asked.append(process)
os.killpg = lambda group, number: asked.append(-group)
guard = Guard(plugin.pid, memory_bytes=0, tell=lambda line: None)
guard._signal_all(signal.SIGTERM)
os.kill, os.killpg = kill, killpg
guard._signal_all(signal.SIGKILL)
plugin.wait()
print(json.dumps({"plugin": plugin.pid, "asked": asked}))
"""


async def test_each_process_is_asked_once(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _ASKING_ONCE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    told = json.loads(output)
    processes = await read_numbers(tmp_path / "pids", 2)
    assert told["asked"][0] == -told["plugin"]
    assert len(told["asked"]) == 2
    assert told["asked"][1] in processes


async def test_frozen_plugin_is_asked_too(tmp_path: Path) -> None:
    child = await Child.start(launch(tmp_path, "sleep", "60"))
    os.kill(child.process_id, signal.SIGSTOP)
    started = time.monotonic()
    await child.stop(5.0)
    assert time.monotonic() - started < 1.0
    assert (await child.ended).signal == signal.SIGTERM


async def test_what_a_crashed_plugin_leaves_behind_is_ended(tmp_path: Path) -> None:
    leave = "(sleep 60 & echo $! >> $HOME/pids); setsid sleep 60 & echo $! >> $HOME/pids; exit 4"
    child = await Child.start(launch(tmp_path, *shell(leave)))
    assert (await child.ended).code == 4
    processes = await read_numbers(tmp_path / "pids", 2)
    await child.gone()
    assert not [each for each in processes if is_alive(each)]


async def test_processes_of_a_guardian_that_was_killed_are_ended_by_the_host(
    tmp_path: Path, bystander: int
) -> None:
    child = await Child.start(launch(tmp_path, *shell(STUBBORN, "sleep", "60")))
    processes = await read_numbers(tmp_path / "pids", 3)
    os.kill(parent(child.process_id), signal.SIGKILL)
    assert "its guardian was killed" in str(await child.ended)
    await child.gone()
    await eventually(lambda: not [each for each in processes if is_alive(each)])


async def test_guardian_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host_service.supervisor.child._GUARDIAN_GRACE_SECONDS", 0.2)
    child = await Child.start(launch(tmp_path, *shell(STUBBORN, "sleep", "60")))
    processes = await read_numbers(tmp_path / "pids", 3)
    os.kill(parent(child.process_id), signal.SIGSTOP)
    await child.stop(0.1)
    await eventually(lambda: not [each for each in processes if is_alive(each)])


async def test_start_that_is_called_off_leaves_nothing(tmp_path: Path) -> None:
    for delay_seconds in (0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08):
        starting = asyncio.create_task(
            Child.start(launch(tmp_path, *shell("echo $$ >> $HOME/pids; exec sleep 60")))
        )
        await asyncio.sleep(delay_seconds)
        starting.cancel()
        (outcome,) = await asyncio.gather(starting, return_exceptions=True)
        if isinstance(outcome, Child):
            await outcome.stop(1.0)

    def left() -> list[int]:
        pids = tmp_path / "pids"
        numbers = [int(line) for line in pids.read_text().split()] if pids.exists() else []
        return [each for each in numbers if is_alive(each)]

    await asyncio.sleep(0.1)
    await eventually(lambda: not left())


@pytest.mark.usefixtures("slow_guardian")
async def test_start_that_is_called_off_halfway_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    starting = asyncio.create_task(
        Child.start(launch(tmp_path, *shell("echo $$ >> $HOME/pids; exec sleep 60")))
    )
    await asyncio.sleep(0.2)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    numbers = (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []
    assert not [each for each in numbers if is_alive(int(each))]
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_nothing_survives_a_host_that_is_killed_and_nobody_else_is_touched(
    base: Path, tmp_path: Path, make_mesh: MakeMesh, run_host: RunHost
) -> None:
    write_plugin(base, "plain", bare())
    write_plugin(base, "wrapped", shell(STUBBORN, *bare()))
    others = tmp_path / "others"
    write_plugin(others, "other", bare())
    doomed = await run_host(base, tmp_path / "one")
    other = await run_host(others, tmp_path / "two")
    processes = await plugins_of(doomed)
    processes += await read_numbers(tmp_path / "one/acme/wrapped/home/pids", 3)
    processes += [parent(each) for each in processes[:2]]
    (bystander,) = await plugins_of(other)
    assert len(processes) == 7
    assert all(is_alive(each) for each in processes)

    doomed.kill()
    await doomed.wait()
    await eventually(lambda: not [each for each in processes if is_alive(each)])
    assert is_alive(bystander)
    other.terminate()
    await other.wait()
    await eventually(lambda: not is_alive(bystander))

    # The next host starts them again, beside nothing that was left.
    mesh = make_mesh()
    await mesh.supervisor.start()
    await mesh.until("wrapped", InstanceState.SERVING)


async def test_children_inherit_no_descriptor_and_start_while_streams_are_live(
    base: Path, tmp_path: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "desk", bare())
    mesh = make_mesh()
    await mesh.supervisor.start()
    instance = await mesh.until("desk", InstanceState.SERVING)
    leaked = os.open(tmp_path / "database", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(leaked, True)  # noqa: FBT003 - its signature
    request = run_pb2.RunRequest(context=context_pb2.RunContext(run_id="r"))
    streams = [instance.run_stub.Run(request) for _ in range(50)]
    for stream in streams:
        await stream.read()
    async with asyncio.timeout(30):
        children = await asyncio.gather(
            *(Child.start(launch(tmp_path, "sleep", "60")) for _ in range(100))
        )
    open_there = descriptors(children[-1].process_id)
    assert open_there.keys() == {0, 1, 2}
    assert open_there[0] == "/dev/null"
    assert all(target.startswith("pipe:") for number, target in open_there.items() if number)
    of_guardian = descriptors(parent(children[-1].process_id))
    assert not [
        target for target in of_guardian.values() if "socket" in target or "database" in target
    ]
    async with asyncio.timeout(30):
        await asyncio.gather(*(child.stop(1.0) for child in children))
    assert all(not stream.done() for stream in streams)
    for stream in streams:
        stream.cancel()
    os.close(leaked)
    with pytest.raises(PluginFailed):
        await Child.start(launch(tmp_path, "no-such-command"))
