"""What the example in TypeScript has alone: attaching, its own tests, and its lock."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
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

# Whichever comes first waits until the example is built.
pytestmark = pytest.mark.timeout(600)

_SDK = ROOT / "sdk" / "typescript"
# A process that ends at once ends in milliseconds; a machine that builds beside it is slow.
_END_SECONDS = 15.0


@pytest.fixture(scope="module")
def plugin(built: Callable[[str], Path]) -> Path:
    """The example's folder, built."""
    return built("typescript")


async def test_echo_keeps_the_contract_when_it_attaches(plugin: Path) -> None:
    made = passed(await check_attached_plugin(plugin, Options(runner="echo")))
    assert {"attach.hello", "attach.comes-back", "attach.credit", "stop.cancelled-call"} <= made


@contextmanager
def running(plugin: Path, environment: dict[str, str]) -> "Iterator[subprocess.Popen[bytes]]":
    """The example's process, as one starts it by hand; it is gone at the end."""
    process = subprocess.Popen(
        [require_tool("node"), "dist/main.js"],
        cwd=plugin,
        env={"PATH": os.environ["PATH"], **environment},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_it_attaches_to_a_real_host_and_leaves_when_told(plugin: Path) -> None:
    async with RealHost() as host:
        request = attach_tokens_pb2.CreateAttachTokenRequest(plugin_id="examples/typescript")
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
            runner_id = "plugin:examples/typescript/desk"
            await host.apply(admin_pb2.Agent(id="desk", runner_id=runner_id))
            for number in (1, 2):
                outcome = await host.dispatch("count", agent_id="desk")
                assert outcome.text == f"message {number} of this conversation"
            assert "user: count" in (await host.dispatch("recall", agent_id="desk")).text
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, _END_SECONDS) == 0
            assert await attached() == []


async def test_host_that_refuses_it_ends_it_with_the_hosts_words(plugin: Path) -> None:
    async with RealHost() as host:
        way = {"RUNMESH_ATTACH": host.tcp_address, "RUNMESH_ATTACH_TOKEN": "rma_wrong"}
        with running(plugin, way) as process:
            assert await asyncio.to_thread(process.wait, _END_SECONDS) == 1
            assert process.stderr is not None
            told = process.stderr.read().decode()
            assert f"cannot serve: {host.tcp_address} refuses: UNAUTHENTICATED" in told


@pytest.mark.parametrize("folder", [_SDK, EXAMPLES / "typescript"], ids=["sdk", "example"])
def test_own_tests_pass(folder: Path, plugin: Path) -> None:
    # The example's build compiled both, with tsc's strict checks.
    tests = sorted(folder.glob("dist/**/*.test.js"))
    assert tests
    ran = _ran(["node", "--test", "--test-timeout=60000", *map(str, tests)], folder)
    assert re.search(r"^# pass [1-9]", ran, re.MULTILINE), ran


@pytest.mark.parametrize("folder", [_SDK, EXAMPLES / "typescript"], ids=["sdk", "example"])
def test_locked_versions_are_exact_and_name_no_registry(folder: Path) -> None:
    lock = (folder / "package-lock.json").read_text("utf-8")
    assert "://" not in re.sub(r'"(url|funding)": "[^"]*"', "", lock)
    assert '"integrity": "sha512-' in lock
    package = (folder / "package.json").read_text("utf-8")
    assert not re.search(r'": "[~^>*]', package.partition('"dependencies"')[2])


def _ran(command: Sequence[str], folder: Path) -> str:
    ran = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
