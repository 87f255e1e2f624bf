"""A plugin is replaced under load: no run fails, none waits, and calls to the host go on."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from runmesh.admin.v1 import plugins_pb2
from runmesh.v1 import discovery_pb2, gateway_pb2

from tests.integration.host.calls import END, Caller, calling, say, scripted
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_scripted_plugin
from tests.integration.host.waiting import eventually

pytestmark = pytest.mark.timeout(120)

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
# Long enough that runs are under way whenever something is replaced.
STEPS = (say("one "), {"sleep": 0.15}, say("two"), END)


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    folder = tmp_path / "plugins"
    folder.mkdir()
    write_scripted_plugin(folder, "acme/desk")
    return folder


@pytest.fixture
def host(tmp_path: Path, plugins: Path) -> Iterator[HostProcess]:
    config = 'agents:\n- {id: desk, runner_id: "plugin:acme/desk/default"}\n'
    with HostProcess(tmp_path / "data", config=config, plugins=plugins) as host:
        yield host


@pytest.fixture
async def caller(host: HostProcess) -> AsyncIterator[Caller]:
    async with calling(host.addresses["grpc"], host.key) as caller:
        yield caller


async def instances(caller: Caller) -> list[discovery_pb2.RunnerInstance]:
    answer = await caller.discovery.ListRunners(
        discovery_pb2.ListRunnersRequest(), metadata=caller.metadata
    )
    return [each for each in answer.instances if each.plugin_id == "acme/desk"]


async def is_only_one(caller: Caller, before: str) -> bool:
    """Whether one instance is listed, it serves, and it is another than before."""
    found = await instances(caller)
    return (
        len(found) == 1
        and found[0].state == discovery_pb2.INSTANCE_STATE_SERVING
        and found[0].instance_id != before
    )


async def test_plugin_that_is_replaced_again_and_again_loses_no_run(
    caller: Caller, plugins: Path
) -> None:
    is_over = asyncio.Event()
    answered = 0

    async def call() -> None:
        nonlocal answered
        while not is_over.is_set():
            answer = await caller.dispatch(scripted(*STEPS), "desk")
            assert answer.ended.status == COMPLETED, answer.ended
            assert answer.text == "one two"
            answered += 1

    async def watch() -> None:
        while not is_over.is_set():
            states = [each.state for each in await instances(caller)]
            assert discovery_pb2.INSTANCE_STATE_SERVING in states
            await asyncio.sleep(0.02)

    await eventually(lambda: is_only_one(caller, ""))
    watching = asyncio.create_task(watch())
    calls = [asyncio.create_task(call()) for _ in range(6)]
    for round_ in range(4):
        (before,) = await instances(caller)
        if round_ % 2:
            manifest = plugins / "desk" / "manifest.yaml"
            changed = manifest.read_text().replace("version: ", f"version: 1{round_}.")
            (plugins / "desk" / "new").write_text(changed)
            (plugins / "desk" / "new").rename(manifest)
        else:
            await caller.admin.RestartPlugin(
                plugins_pb2.RestartPluginRequest(plugin_id="acme/desk"), metadata=caller.metadata
            )
        await eventually(partial(is_only_one, caller, before.instance_id), seconds=40)
    is_over.set()
    await asyncio.gather(*calls, watching)
    assert answered > 20


async def test_version_that_does_not_come_up_costs_no_run(caller: Caller, plugins: Path) -> None:
    await eventually(lambda: is_only_one(caller, ""))
    broken = [sys.executable, "-c", "print('no licence'); raise SystemExit(4)"]
    manifest = plugins / "desk" / "manifest.yaml"
    whole = manifest.read_text()
    (plugins / "desk" / "new").write_text(
        whole.partition("run:")[0] + f"run: {{command: {json.dumps(broken)}}}\n"
    )
    (plugins / "desk" / "new").rename(manifest)

    async def is_told() -> bool:
        reasons = [each.reason for each in await instances(caller)]
        return any("code 4" in each and "no licence" in each for each in reasons)

    await eventually(is_told, seconds=40)
    for _ in range(5):
        answer = await caller.dispatch(scripted(*STEPS), "desk")
        assert answer.ended.status == COMPLETED
