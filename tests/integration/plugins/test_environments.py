"""Plugins in their own environments, behind a real host; built where there is no network."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from runmesh.v1 import discovery_pb2

from tests.integration.host.calls import Caller, agent, calling, message
from tests.integration.host.host_process import HostProcess
from tests.integration.host.waiting import eventually
from tests.integration.plugins.python_plugins import write_python_plugin
from tests.integration.plugins.wheels import write_wheel

FAILED = discovery_pb2.INSTANCE_STATE_FAILED
SERVING = discovery_pb2.INSTANCE_STATE_SERVING


def runmesh(data: Path, *arguments: str, without_network: bool = False) -> str:
    """Runs a command on a data folder, and returns what it wrote to standard output."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    # Where this is not allowed, the command's own --offline has to do.
    unshare = _unshare() if without_network else ()
    ran = subprocess.run(
        [*unshare, sys.executable, "-m", "host_service", *arguments],
        env={**kept, "RUNMESH_DATA": str(data)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _unshare() -> Sequence[str]:
    program = shutil.which("unshare")
    if program is None or subprocess.run([program, "-n", "true"], check=False).returncode != 0:
        return ()
    return (program, "-n")


async def instance_of(caller: Caller, plugin_id: str) -> discovery_pb2.RunnerInstance:
    request = discovery_pb2.ListRunnersRequest()
    listed = await caller.discovery.ListRunners(request, metadata=caller.metadata)
    (found,) = [each for each in listed.instances if each.plugin_id == plugin_id]
    return found


async def is_in(caller: Caller, plugin_id: str, state: int) -> bool:
    return (await instance_of(caller, plugin_id)).state == state


def environments(data: Path) -> list[Any]:
    listed: list[Any] = json.loads(runmesh(data, "plugins", "environments", "--json"))
    return listed


@pytest.mark.timeout(120)
async def test_plugins_get_their_environments_without_a_network_and_keep_them_while_they_run(
    tmp_path: Path,
) -> None:
    """One story, because an environment with gRPC in it takes seconds to build.

    Two plugins with two versions of a library are found before anything is built, wait, start by
    themselves once their environments are there, and hold on to these.
    """
    data, plugins = tmp_path / "data", tmp_path / "data" / "plugins"
    for version in ("1.0", "2.0"):
        plugin = write_python_plugin(plugins / f"desk-{version[0]}", "runmesh-sdk\nshade\n")
        write_wheel(plugin / "wheels", "shade", version)
    host = HostProcess(data)
    host.launch()
    try:
        await eventually(lambda: host.is_announced() or host.has_ended)
        async with calling(host.addresses["grpc"], host.key) as caller:
            for name in ("desk-1", "desk-2"):
                await eventually(partial(is_in, caller, f"acme/{name}", FAILED))
                reason = (await instance_of(caller, f"acme/{name}")).reason
                assert reason == (
                    f"its environment is not built: run 'runmesh plugins build {plugins / name}'"
                )
            assert not (data / "environments").exists()

            built = runmesh(data, "plugins", "build", "--offline", without_network=True)
            assert "acme/desk-1 got environment" in built
            for name in ("desk-1", "desk-2"):
                await eventually(partial(is_in, caller, f"acme/{name}", SERVING))
            await caller.apply(
                *(
                    agent(f"desk-{each}", runner_id=f"plugin:acme/desk-{each}/default")
                    for each in (1, 2)
                )
            )
            kept = {each["needed_by"][0]: each for each in environments(data)}
            for each in (1, 2):
                answer = await caller.dispatch(message("which?"), f"desk-{each}")
                folder = kept[f"acme/desk-{each}"]["folder"]
                assert answer.text == f"{each}.0 in {folder}"

            # A plugin that is taken away needs nothing any more, and still runs for a moment; one
            # whose files are hidden from the command runs on.
            assert all(each["in_use"] for each in kept.values())
            (plugins / "desk-1" / "requirements.txt").write_text("runmesh-sdk\nshade==3\n")
            assert runmesh(data, "plugins", "clean").startswith("0 environments")
            answer = await caller.dispatch(message("still?"), "desk-1")
            assert answer.text.startswith("1.0 in")

            shutil.rmtree(plugins / "desk-1")
            await eventually(lambda: not _in_use(data, kept["acme/desk-1"]["key"]))
            assert runmesh(data, "plugins", "clean").startswith("1 environments")
            assert [each["needed_by"] for each in environments(data)] == [["acme/desk-2"]]
    finally:
        host.close()
    # What nobody runs in is kept all the same, as long as a plugin needs it.
    assert runmesh(data, "plugins", "clean").startswith("0 environments")
    assert [each["in_use"] for each in environments(data)] == [False]


def _in_use(data: Path, key: str) -> bool:
    return any(each["in_use"] for each in environments(data) if each["key"] == key)
