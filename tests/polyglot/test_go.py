"""What the example in Go has alone: attaching, and its own tools."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from runmesh.admin.v1 import admin_pb2, attach_tokens_pb2
from runmesh.v1 import discovery_pb2

from host_service.conformance import Options, check_attached_plugin
from host_service.testing import RealHost
from tests.integration.host.waiting import eventually
from tests.polyglot.examples import EXAMPLES, ROOT
from tests.polyglot.kit import passed
from tests.toolchains import require_tool

# A process that ends at once ends in milliseconds; a machine that builds beside it is slow.
_END_SECONDS = 15.0


@pytest.fixture(scope="module")
def plugin(built: Callable[[str], Path]) -> Path:
    """The example's folder, built."""
    return built("go")


@pytest.mark.timeout(300)
async def test_echo_keeps_the_contract_when_it_attaches(plugin: Path) -> None:
    made = passed(await check_attached_plugin(plugin, Options(runner="echo")))
    assert {"attach.hello", "attach.comes-back", "attach.credit", "stop.cancelled-call"} <= made


@contextmanager
def running(plugin: Path, environment: dict[str, str]) -> "Iterator[subprocess.Popen[bytes]]":
    """The example's process, as one starts it by hand; it is gone at the end."""
    process = subprocess.Popen(
        [plugin / "bin" / "plugin"],
        env={"PATH": os.environ["PATH"], **environment},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.timeout(180)
async def test_it_attaches_to_a_real_host_and_leaves_when_told(plugin: Path) -> None:
    async with RealHost() as host:
        request = attach_tokens_pb2.CreateAttachTokenRequest(plugin_id="examples/go")
        made = await host.admin.CreateAttachToken(request, metadata=host.metadata)
        way = {"RUNMESH_ATTACH": host.tcp_address, "RUNMESH_ATTACH_TOKEN": made.secret}
        with running(plugin, way) as process:

            async def attached() -> list[str]:
                listed = await host.discovery.ListRunners(
                    discovery_pb2.ListRunnersRequest(), metadata=host.metadata
                )
                serving = discovery_pb2.INSTANCE_STATE_SERVING
                return [each.found_by for each in listed.instances if each.state == serving]

            await eventually(attached, seconds=60.0)
            assert await attached() == ["attached"]
            await host.apply(admin_pb2.Agent(id="desk", runner_id="plugin:examples/go/desk"))
            for number in (1, 2):
                outcome = await host.dispatch("count", agent_id="desk")
                assert outcome.text == f"message {number} of this conversation"
            assert "user: count" in (await host.dispatch("recall", agent_id="desk")).text
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, _END_SECONDS) == 0
            assert await attached() == []


@pytest.mark.timeout(180)
async def test_host_that_refuses_it_ends_it_with_the_hosts_words(plugin: Path) -> None:
    async with RealHost() as host:
        way = {"RUNMESH_ATTACH": host.tcp_address, "RUNMESH_ATTACH_TOKEN": "rma_wrong"}
        with running(plugin, way) as process:
            assert await asyncio.to_thread(process.wait, _END_SECONDS) == 1
            assert process.stderr is not None
            assert b"UNAUTHENTICATED" in process.stderr.read()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("folder", ["sdk/go", "examples/go"])
def test_own_tests_and_checks_of_go_pass(folder: str) -> None:
    require_tool("go")
    race = " -race" if folder == "sdk/go" else ""
    command = f'test -z "$(gofmt -l . | tee /dev/stderr)" && go vet ./... && go test{race} ./...'
    ran = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=ROOT / folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_module_files_are_tidy() -> None:
    go = require_tool("go")
    for folder in (ROOT / "sdk" / "go", EXAMPLES / "go"):
        ran = subprocess.run(
            [go, "mod", "tidy", "-diff"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=55,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
