"""Plugins that crash, change, come and go while the host runs."""

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest
from runmesh.v1 import context_pb2, run_pb2

from host_service.registry import InstanceState
from host_service.supervisor import RestartPolicy
from tests.integration.plugins.mesh import Mesh, bare, shell, write_plugin
from tests.integration.plugins.processes import eventually, is_alive

MakeMesh = Callable[..., Mesh]

REQUEST = run_pb2.RunRequest(context=context_pb2.RunContext(run_id="r"))
HASTY = RestartPolicy(first_delay_seconds=0.02, longest_delay_seconds=0.1)


async def test_plugin_lost_with_calls_pending_fails_them_at_once_and_is_back_soon(
    base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "desk", bare())
    mesh = make_mesh()
    await mesh.supervisor.start()
    first = await mesh.until("desk", InstanceState.SERVING)
    calls = [first.run_stub.Run(REQUEST) for _ in range(10)]
    for call in calls:
        first.acquire()
        await call.read()
    assert first.process_id is not None
    os.kill(first.process_id, signal.SIGKILL)
    killed_at = time.monotonic()
    await asyncio.wait_for(first.lost.wait(), 1)
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(call.read(), 1)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        first.release()
    waiting = asyncio.create_task(mesh.registry.wait_for("plugin:acme/desk/default"))
    second = await waiting
    assert second is not None
    # Half a second of waiting at first, and the time that the plugin itself takes.
    assert time.monotonic() - killed_at < 5.0
    assert second.instance_token != first.instance_token
    assert second.instance_id != first.instance_id
    assert second.restarts == 1
    assert [each.instance_id for each in mesh.registry.instances()] == [second.instance_id]
    call = second.run_stub.Run(REQUEST)
    assert await call.read()
    call.cancel()


async def test_plugin_that_keeps_crashing_is_held_until_one_of_its_files_changes(
    base: Path, make_mesh: MakeMesh
) -> None:
    folder = write_plugin(base, "desk", shell("echo x >> $HOME/starts; . ./main.sh"))
    (folder / "main.sh").write_text("echo broken; exit 1")
    mesh = make_mesh(restart=HASTY)
    await mesh.supervisor.start()
    held = await mesh.until("desk", InstanceState.FAILED)
    assert held.reason == "its process exited with code 1; the last it wrote:\nbroken"
    assert held.restarts == 4
    await asyncio.sleep(0.2)
    assert (mesh.home("desk") / "starts").read_text().split() == ["x"] * 5
    assert await mesh.registry.wait_for("plugin:acme/desk/default") is None

    (folder / "main.sh").write_text('exec "$@"'.replace('"$@"', " ".join(bare())))
    serving = await mesh.until("desk", InstanceState.SERVING)
    assert serving.restarts == 5


async def test_plugin_that_is_held_starts_again_when_somebody_asks(
    base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "desk", shell('[ -e $HOME/go ] && exec "$@"', *bare()))
    mesh = make_mesh(restart=HASTY)
    await mesh.supervisor.start()
    await mesh.until("desk", InstanceState.FAILED)
    (mesh.home("desk") / "go").write_text("")
    assert mesh.supervisor.restart("acme/desk")
    first = await mesh.until("desk", InstanceState.SERVING)
    process = first.process_id
    assert process is not None
    assert mesh.supervisor.restart("acme/desk")
    second = await mesh.until(
        "desk", lambda each: each.restarts > first.restarts and each.takes_runs
    )
    assert second.process_id != process
    await eventually(lambda: not is_alive(process))
    assert not mesh.supervisor.restart("acme/unknown")


async def test_folders_that_come_change_and_go_are_noticed(base: Path, make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    await mesh.supervisor.start()
    assert await mesh.supervisor.settled(1)
    folder = write_plugin(base, "desk", bare())
    first = await mesh.until("desk", InstanceState.SERVING)

    # A manifest that is broken for a while costs nothing that runs.
    (folder / "manifest.yaml").write_text("kind: [")
    await asyncio.wait_for(mesh.registry.changed(), 3)
    assert [fault.field for fault in mesh.registry.faults()] == ["desk/manifest.yaml"]
    await asyncio.sleep(0.2)
    assert first.takes_runs

    write_plugin(base, "desk", bare("max_runs=7"), version="2.0.0")
    changed = await mesh.until("desk", lambda each: each.takes_runs and each is not first)
    assert changed.max_concurrent_runs == 7
    assert mesh.registry.faults() == ()
    await asyncio.wait_for(first.lost.wait(), 5)

    process = changed.process_id
    assert process is not None
    shutil.rmtree(folder)
    async with asyncio.timeout(5):
        while mesh.registry.instances():
            await mesh.registry.changed()
    assert mesh.registry.runners() == ()
    assert not is_alive(process)


async def test_plugin_that_changes_is_replaced_without_a_gap_and_without_a_lost_run(
    base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "desk", bare("run_seconds=4"))
    mesh = make_mesh()
    await mesh.supervisor.start()
    old = await mesh.until("desk", InstanceState.SERVING)
    process = old.process_id
    old.acquire()
    call = old.run_stub.Run(REQUEST)
    assert await call.read()

    gaps = 0

    async def look() -> None:
        nonlocal gaps
        while True:
            gaps += mesh.registry.pick("plugin:acme/desk/default") is None
            await mesh.registry.changed()

    looking = asyncio.create_task(look())
    write_plugin(base, "desk", bare("max_runs=7"), version="2.0.0")
    new = await mesh.until("desk", lambda each: each.takes_runs and each.max_concurrent_runs == 7)
    await eventually(lambda: old.state is InstanceState.DRAINING)
    assert old.problem == "another process of the plugin took its place"
    assert mesh.registry.pick("plugin:acme/desk/default") is new
    # The run under way ends as it would have, and then its process.
    assert await call.read() is grpc.aio.EOF
    assert process is not None
    assert is_alive(process)
    old.release()
    await eventually(lambda: not is_alive(process))
    await eventually(lambda: mesh.registry.instances() == (new,))
    looking.cancel()
    assert gaps == 0


async def test_process_that_was_replaced_and_does_not_finish_is_ended_in_the_end(
    base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "desk", bare())
    mesh = make_mesh(restart=RestartPolicy(drain_seconds=0.3))
    await mesh.supervisor.start()
    old = await mesh.until("desk", InstanceState.SERVING)
    old.acquire()
    mesh.supervisor.restart("acme/desk")
    await mesh.until("desk", lambda each: each.takes_runs and each is not old)
    await asyncio.wait_for(old.lost.wait(), 5)


@pytest.mark.parametrize(
    ("broken", "state", "reason"),
    [
        (shell("echo broken; exit 3"), InstanceState.FAILED, "exited with code 3"),
        (bare("plugin_id=acme/other"), InstanceState.REFUSED, "'acme/other'"),
        (bare("version=9"), InstanceState.INCOMPATIBLE, "no protocol version in common"),
        (["./missing"], InstanceState.FAILED, "its command ./missing is not there"),
    ],
)
async def test_replacement_that_does_not_come_up_leaves_the_one_before_serving(
    base: Path, make_mesh: MakeMesh, broken: list[str], state: InstanceState, reason: str
) -> None:
    write_plugin(base, "desk", bare())
    mesh = make_mesh(restart=HASTY)
    await mesh.supervisor.start()
    old = await mesh.until("desk", InstanceState.SERVING)
    write_plugin(base, "desk", broken, version="2.0.0")
    failed = await mesh.until("desk", state)
    assert failed.reason.startswith("it could not take the place of the one that serves on: ")
    assert reason in failed.reason
    assert mesh.registry.pick("plugin:acme/desk/default") is old
    # It is not tried again and again.
    await asyncio.sleep(0.3)
    assert mesh.registry.instances() == (old, failed)

    write_plugin(base, "desk", bare("max_runs=3"), version="2.0.1")
    new = await mesh.until("desk", lambda each: each.takes_runs and each is not old)
    assert new.max_concurrent_runs == 3
    await eventually(lambda: mesh.registry.instances() == (new,))


async def test_plugin_whose_last_good_process_crashes_is_started_as_it_is_now(
    base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "desk", bare())
    mesh = make_mesh(restart=HASTY)
    await mesh.supervisor.start()
    old = await mesh.until("desk", InstanceState.SERVING)
    command = shell('[ -e $HOME/go ] && exec "$@"', *bare("max_runs=3"))
    write_plugin(base, "desk", command, version="2.0.0")
    await mesh.until("desk", InstanceState.FAILED)
    (mesh.home("desk") / "go").write_text("")
    assert old.process_id is not None
    os.kill(old.process_id, signal.SIGKILL)
    await asyncio.wait_for(old.lost.wait(), 2)
    new = await mesh.until("desk", InstanceState.SERVING)
    assert new.max_concurrent_runs == 3
    assert mesh.registry.instances() == (new,)


async def test_runner_that_a_new_version_lacks_is_not_listed_any_more(
    base: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base, "desk", bare("also=extra"))
    mesh = make_mesh()
    await mesh.supervisor.start()
    await mesh.until("desk", InstanceState.SERVING)
    assert mesh.registry.manifest("plugin:acme/desk/extra") is not None
    write_plugin(base, "desk", bare(), version="2.0.0")
    await eventually(lambda: mesh.registry.manifest("plugin:acme/desk/extra") is None)
    assert mesh.registry.manifest("plugin:acme/desk/default") is not None


async def test_plugin_can_be_disabled_and_enabled(base: Path, make_mesh: MakeMesh) -> None:
    write_plugin(base, "desk", bare())
    mesh = make_mesh()
    await mesh.supervisor.start()
    await mesh.until("desk", InstanceState.SERVING)
    await mesh.supervisor.set_disabled({"acme/desk"})
    async with asyncio.timeout(5):
        while mesh.registry.instances():
            await mesh.registry.changed()
    await mesh.supervisor.set_disabled(())
    await mesh.until("desk", InstanceState.SERVING)


async def test_plugin_that_takes_its_time_to_end_holds_up_no_other(
    base: Path, make_mesh: MakeMesh
) -> None:
    stubborn = "trap '' TERM; until [ -e $HOME/end ]; do sleep 0.05; done"
    slow = write_plugin(base, "slow", shell(stubborn))
    mesh = make_mesh(restart=RestartPolicy(stop_grace_seconds=30))
    await mesh.supervisor.start()
    await mesh.until("slow", lambda each: each.process_id is not None)
    shutil.rmtree(slow)
    write_plugin(base, "desk", bare())
    await mesh.until("desk", InstanceState.SERVING)
    assert mesh.instance("slow").state is InstanceState.DRAINING
    (mesh.home("slow") / "end").write_text("")


async def test_of_two_plugins_with_one_id_the_later_folder_wins(
    base: Path, tmp_path: Path, make_mesh: MakeMesh
) -> None:
    write_plugin(base / "a", "desk", bare("max_runs=1"))
    (base / "a" / "desk").rename(base / "old")
    write_plugin(base, "desk", bare("max_runs=2"))
    (base / "desk").rename(base / "young")
    mesh = make_mesh()
    await mesh.supervisor.start()
    assert (await mesh.until("desk", InstanceState.SERVING)).max_concurrent_runs == 2


async def test_restart_runs_the_code_that_is_there_though_python_would_not_notice(
    base: Path, make_mesh: MakeMesh
) -> None:
    folder = write_plugin(base, "desk", [])
    manifest = json.loads((folder / "manifest.yaml").read_text())
    manifest["run"] = {"python": {"module": "desk.main"}}
    (folder / "desk").mkdir()
    (folder / "desk" / "main.py").write_text("import sys\nfrom desk.word import W\nsys.exit(W)\n")
    word = folder / "desk" / "word.py"
    word.write_text("W = 'one'\n")
    second = 1_700_000_000
    os.utime(word, (second, second))
    (folder / "manifest.yaml").write_text(json.dumps(manifest))
    mesh = make_mesh(restart=RestartPolicy(first_delay_seconds=60, longest_delay_seconds=60))
    await mesh.supervisor.start()
    await mesh.until("desk", lambda each: each.reason.endswith("\none"))
    (compiled,) = (folder / "desk" / "__pycache__").glob("word.*.pyc")
    os.utime(compiled, (second + 0.1, second + 0.1))
    # Two edits in one second, and the same size: Python takes the first one's code for this.
    word.write_text("W = 'two'\n")
    os.utime(word, (second + 0.5, second + 0.5))
    assert mesh.supervisor.restart("acme/desk")
    await mesh.until("desk", lambda each: each.reason.endswith("\ntwo"))
