"""The example in TypeScript: the contract's checks, a real host, its end, and its own tests."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from runmesh.v1 import gateway_pb2

from host_service.conformance import Options, Report, check_plugin
from host_service.packages.packing import PluginFolder
from host_service.packages.trial import try_plugin
from host_service.supervisor.interpreter import hosts_interpreter
from tests.integration.host.calls import collect, collect_until, message
from tests.polyglot.examples import EXAMPLES, ROOT
from tests.polyglot.mesh import Conversation, Mesh, running_mesh

# Whichever comes first waits until the example is built.
pytestmark = pytest.mark.timeout(600)

# A process that ends at once ends in milliseconds; a machine that builds beside it is slow.
_END_SECONDS = 15.0
_SDK = ROOT / "sdk" / "typescript"


@pytest.fixture(scope="module")
def plugin(built: Callable[[str], Path]) -> Path:
    """The example's folder, built."""
    return built("typescript")


@pytest.fixture(scope="module")
def mesh(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A host that runs the example."""
    with running_mesh(tmp_path_factory.mktemp("typescript"), ["typescript"]) as mesh:
        yield mesh


def passed(report: Report) -> set[str]:
    """The checks that were made, none of which may have failed."""
    failed = [each for each in report.outcomes if each.verdict.name == "FAILED"]
    assert not failed, failed
    return {each.name for each in report.outcomes if each.verdict.name == "OK"}


async def test_echo_keeps_the_contract(plugin: Path) -> None:
    made = passed(await check_plugin(plugin, Options(runner="echo")))
    assert {"input.echo", "stop.interrupt", "process.drains", "load.slow-reader"} <= made


async def test_desk_keeps_the_contract(plugin: Path) -> None:
    assert "results.terminal" in passed(await check_plugin(plugin, Options(runner="desk")))


async def test_it_serves_what_its_files_describe(plugin: Path) -> None:
    folder = PluginFolder.read(plugin)
    assert set(folder.runners.runners) == {"desk", "echo"}
    await try_plugin(folder, find_interpreter=hosts_interpreter)


async def test_desk_does_what_it_is_asked(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        desk = Conversation(caller, "typescript-desk", "desk")
        await desk.recall()
        await desk.count()
        await desk.count()
        await desk.file("notes of today.txt")
        posted = await desk.post(7, "héllo 天")
        assert [kind for kind in posted.kinds if kind.startswith("tool_")] == [
            "tool_call_started",
            "tool_call_completed",
        ]
        await desk.recall()
        failed = await desk.say('tool ledger__refuse {"reason": "closed"}')
        assert failed.text == "ledger__refuse failed: Error executing tool refuse"
        assert (await desk.say("wait 0.1")).text == "waited 0.1 s"
        assert "recall" in (await desk.say("what can you do?")).text


async def test_counting_at_once_loses_no_message(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        counted = await asyncio.gather(
            *[
                caller.dispatch(
                    message("count", conversation_id="busy"),
                    "typescript-desk",
                    follow_up=gateway_pb2.FOLLOW_UP_PARALLEL,
                )
                for _ in range(8)
            ]
        )
    assert sorted(each.text for each in counted) == [
        f"message {number} of this conversation" for number in range(1, 9)
    ]


async def test_what_the_host_refuses_ends_the_run_with_its_reason(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        refused = await caller.dispatch(message("tool ledger__steal {}"), "typescript-desk")
    assert refused.ended.status == gateway_pb2.RUN_STATUS_FAILED
    failure = refused.ended.failure
    assert (failure.code, failure.retryable) == ("desk.refused", False)
    assert dict(failure.details) == {"method": "CallTool", "reason": "NOT_FOUND"}


async def test_cancelled_run_stops_waiting_at_once(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        call = caller.open(message("wait 600"), "typescript-desk", timeout=120.0)
        answer = await collect_until(call, lambda so_far: so_far.shown == "waiting")
        began_at = time.monotonic()
        await caller.cancel(answer.run_id)
        await collect(call, answer)
    assert answer.ended.status == gateway_pb2.RUN_STATUS_CANCELLED
    # Well under the grace, after which a host cancels the call itself.
    assert time.monotonic() - began_at < 4.0


async def test_echo_says_back_what_it_is_told(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        echo = Conversation(caller, "typescript-echo", "echo")
        await echo.echo("你好 👩‍💻 שלום, and  two spaces\n")
        await echo.echo("x" * 300_000)


@pytest.mark.parametrize(
    ("agent", "text", "printed"),
    [
        (
            "typescript-desk",
            "what can you do?",
            "Ask me to: count, recall, file NAME, tool NAME JSON, or wait SECONDS.",
        ),
        ("typescript-echo", "你好, hi", "你好, hi"),
    ],
)
def test_client_prints_what_a_run_says(
    mesh: Mesh, plugin: Path, agent: str, text: str, printed: str
) -> None:
    told = subprocess.run(
        ["node", "dist/client.js", mesh.host.addresses["grpc"], agent, text],
        cwd=plugin,
        env={"PATH": os.environ["PATH"], "RUNMESH_API_KEY": mesh.host.key},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == printed
    assert lines[1].split()[1:] == ["COMPLETED"]


def test_supervised_process_ends_with_whoever_started_it(plugin: Path, tmp_path: Path) -> None:
    # The shell stands for a host that is killed and has no time to stop anything.
    shell = subprocess.Popen(
        ["/bin/sh", "-c", "node dist/main.js & echo $!; wait"],
        cwd=plugin,
        env={
            "PATH": os.environ["PATH"],
            "RUNMESH_SUPERVISED": "1",
            "RUNMESH_LISTEN": f"unix:{tmp_path}/s",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert shell.stdout is not None
    child = int(shell.stdout.readline())
    try:
        deadline = time.monotonic() + _END_SECONDS
        while not (tmp_path / "s").exists():
            assert time.monotonic() < deadline, "it does not listen"
            time.sleep(0.02)
        shell.kill()
        shell.wait()
        while _runs(child):
            assert time.monotonic() < deadline + _END_SECONDS, "it outlived its host"
            time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        shell.stdout.close()


def _runs(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


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
