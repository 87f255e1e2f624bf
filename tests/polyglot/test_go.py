"""The example in Go: the contract's checks, a real host, attaching, its end, and its own tools."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from runmesh.admin.v1 import admin_pb2, attach_tokens_pb2
from runmesh.v1 import discovery_pb2, gateway_pb2

from host_service.conformance import Options, Report, check_attached_plugin, check_plugin
from host_service.testing import RealHost
from tests.integration.host.calls import collect, collect_until, message
from tests.integration.host.waiting import eventually
from tests.polyglot.examples import EXAMPLES, ROOT
from tests.polyglot.mesh import Conversation, Mesh, running_mesh
from tests.toolchains import require_tool

# A process that ends at once ends in milliseconds; a machine that builds beside it is slow.
_END_SECONDS = 15.0


@pytest.fixture(scope="module")
def plugin(built: Callable[[str], Path]) -> Path:
    """The example's folder, built."""
    return built("go")


@pytest.fixture(scope="module")
def mesh(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A host that runs the example."""
    with running_mesh(tmp_path_factory.mktemp("go"), ["go"]) as mesh:
        yield mesh


def passed(report: Report) -> set[str]:
    """The checks that were made, none of which may have failed."""
    failed = [each for each in report.outcomes if each.verdict.name == "FAILED"]
    assert not failed, failed
    return {each.name for each in report.outcomes if each.verdict.name == "OK"}


@pytest.mark.timeout(300)
async def test_echo_keeps_the_contract(plugin: Path) -> None:
    made = passed(await check_plugin(plugin, Options(runner="echo")))
    assert {"input.echo", "stop.interrupt", "process.drains", "load.slow-reader"} <= made


@pytest.mark.timeout(300)
async def test_echo_keeps_the_contract_when_it_attaches(plugin: Path) -> None:
    made = passed(await check_attached_plugin(plugin, Options(runner="echo")))
    assert {"attach.hello", "attach.comes-back", "attach.credit", "stop.cancelled-call"} <= made


@pytest.mark.timeout(300)
async def test_desk_keeps_the_contract(plugin: Path) -> None:
    assert "results.terminal" in passed(await check_plugin(plugin, Options(runner="desk")))


@pytest.mark.timeout(180)
async def test_desk_does_what_it_is_asked(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        desk = Conversation(caller, "go-desk", "desk")
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


@pytest.mark.timeout(180)
async def test_what_the_host_refuses_ends_the_run_with_its_reason(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        refused = await caller.dispatch(message("tool ledger__steal {}"), "go-desk")
    assert refused.ended.status == gateway_pb2.RUN_STATUS_FAILED
    failure = refused.ended.failure
    assert (failure.code, failure.retryable) == ("desk.refused", False)
    assert dict(failure.details) == {"method": "CallTool", "reason": "NOT_FOUND"}


@pytest.mark.timeout(180)
async def test_cancelled_run_stops_waiting_at_once(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        call = caller.open(message("wait 600"), "go-desk", timeout=120.0)
        answer = await collect_until(call, lambda so_far: so_far.shown == "waiting")
        began_at = time.monotonic()
        await caller.cancel(answer.run_id)
        await collect(call, answer)
    assert answer.ended.status == gateway_pb2.RUN_STATUS_CANCELLED
    # Well under the grace, after which a host cancels the call itself.
    assert time.monotonic() - began_at < 4.0


@pytest.mark.timeout(180)
async def test_echo_says_back_what_it_is_told(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        echo = Conversation(caller, "go-echo", "echo")
        await echo.echo("你好 👩‍💻 שלום, and  two spaces\n")
        await echo.echo("x" * 300_000)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("agent", "text", "printed"),
    [("go-desk", "count", "message 1 of this conversation"), ("go-echo", "你好, hi", "你好, hi")],
)
def test_client_prints_what_a_run_says(
    mesh: Mesh, plugin: Path, agent: str, text: str, printed: str
) -> None:
    told = subprocess.run(
        [plugin / "bin" / "client", mesh.host.addresses["grpc"], agent, text],
        env={"RUNMESH_API_KEY": mesh.host.key},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == printed
    assert lines[1].split()[1:] == ["RUN_STATUS_COMPLETED"]


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


def test_supervised_process_ends_with_whoever_started_it(plugin: Path, tmp_path: Path) -> None:
    # The shell stands for a host that is killed and has no time to stop anything.
    shell = subprocess.Popen(
        ["/bin/sh", "-c", "./bin/plugin & echo $!; wait"],
        cwd=plugin,
        env={"RUNMESH_SUPERVISED": "1", "RUNMESH_LISTEN": f"unix:{tmp_path}/s"},
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
