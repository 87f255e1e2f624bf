"""The example in Java: its own tests, the kit, the desk behind a host, its client, and its end."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from runmesh.v1 import discovery_pb2, discovery_pb2_grpc, gateway_pb2, run_pb2, run_pb2_grpc

from host_service.supervisor.manifest import Command, read_manifest
from runner_sdk import Manifest
from tests.integration.host.calls import collect, collect_until, message
from tests.integration.host.waiting import eventually, wait_until
from tests.polyglot.mesh import Conversation, Mesh, running_mesh

# Whichever test comes first waits for the build.
pytestmark = pytest.mark.timeout(1200)

# A virtual machine starts slowly on a machine that does much else.
_START_SECONDS = 60.0
_KIT_SECONDS = 400.0
_BUILD_SECONDS = 600.0


@pytest.fixture(scope="module")
def plugin(built: Callable[[str], Path]) -> Path:
    """The example's folder, built."""
    return built("java")


@pytest.fixture(scope="module")
def mesh(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A host with this example alone."""
    assert plugin.is_dir()
    with running_mesh(tmp_path_factory.mktemp("java"), ["java"]) as mesh:
        yield mesh


def test_its_own_tests_pass(plugin: Path) -> None:
    run = read_manifest(plugin).run
    assert isinstance(run, Command)
    ran = _ran("/bin/sh", "-c", run.test, cwd=plugin, seconds=_BUILD_SECONDS)
    assert ran.returncode == 0, ran.stdout
    reports = [path.read_text() for path in (plugin / "target/surefire-reports").glob("*.txt")]
    assert len(reports) == 2, reports
    assert all("Failures: 0, Errors: 0, Skipped: 0" in report for report in reports), reports


@pytest.mark.parametrize("runner", ["echo", "desk"])
def test_it_passes_the_conformance_kit(plugin: Path, runner: str) -> None:
    command = ("host_service", "conformance", "--plugin", str(plugin), "--runner", runner)
    ran = _ran(sys.executable, "-m", *command, cwd=plugin, seconds=_KIT_SECONDS)
    assert ran.returncode == 0, ran.stdout
    assert f"plugin:examples/java/{runner} (java): " in ran.stdout
    assert " 0 failed" in ran.stdout


async def test_desk_does_all_that_it_can_be_asked(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        desk = Conversation(caller, "java-desk", "room")
        assert (await desk.recall()).text == "nothing yet"
        await desk.count()
        await desk.count()
        posted = await desk.post(7, "你好 👩‍💻")
        assert posted.kinds == [
            "tool_call_started", "tool_call_completed", "message_completed", "run_completed"
        ]  # fmt: skip
        await desk.recall()
        await desk.file("notes.txt")
        waited = await desk.say("wait 0.2")
        assert (waited.shown, waited.text) == ("waiting", "waited 0.2 s")
        for nothing in ("wait", "wait for me", "wait -1", "wait NaN", "file", "dance"):
            assert (await desk.say(nothing)).text.startswith("Ask me to: count, recall, ")


async def test_what_the_host_refuses_ends_the_run_with_method_and_reason(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        for text, method, reason in (
            ("tool ledger__nothing {}", "CallTool", "NOT_FOUND"),
            ("tool ledger__post {", "CallTool", "INVALID_ARGUMENT"),
            ("file ../notes", "CreateArtifact", "INVALID_ARGUMENT"),
        ):
            answer = await caller.dispatch(message(text, conversation_id="refused"), "java-desk")
            failure = answer.ended.failure
            assert (failure.code, failure.retryable) == ("desk.refused", False), answer
            assert failure.details == {"method": method, "reason": reason}


async def test_cancelled_run_stops_waiting_at_once(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        call = caller.open(message("wait 600", conversation_id="cancelled"), "java-desk")
        answer = await collect_until(call, lambda answer: answer.shown == "waiting")
        cancelled = await asyncio.wait_for(caller.cancel(answer.run_id), 20)
        assert cancelled.status == gateway_pb2.RUN_STATUS_CANCELLED
        await collect(call, answer)
        # In the runner's own words: it had stopped before the host's patience was over.
        assert answer.failure == "cancelled"
        assert answer.ended.failure.message == "the run was interrupted"

        async def is_idle() -> bool:
            listed = await caller.discovery.ListRunners(
                discovery_pb2.ListRunnersRequest(), metadata=caller.metadata
            )
            return not any(instance.active_runs for instance in listed.instances)

        await eventually(is_idle)


def test_its_client_prints_what_a_run_says(mesh: Mesh, plugin: Path) -> None:
    ran = _ran(
        *("java", "-cp", "target/plugin.jar", "dev.runmesh.examples.Client"),
        *(mesh.host.addresses["grpc"], "java-echo", "hello from Java: 你好"),
        cwd=plugin,
        seconds=_START_SECONDS,
        variables={"RUNMESH_API_KEY": mesh.host.key, "JAVA_TOOL_OPTIONS": "-Dfile.encoding=UTF-8"},
    )
    assert ran.returncode == 0, ran.stdout
    said, ended = ran.stdout.splitlines()[-2:]
    assert said == "hello from Java: 你好"
    assert ended.endswith(" RUN_STATUS_COMPLETED")


async def test_it_says_of_itself_what_its_manifest_says(plugin: Path, tmp_path: Path) -> None:
    async with _process(plugin, tmp_path) as (_, channel):
        discovery = discovery_pb2_grpc.DiscoveryServiceStub(channel)
        listed = await discovery.ListRunners(discovery_pb2.ListRunnersRequest())
        manifest = Manifest.load(plugin)
        assert list(listed.runners) == [runner for _, runner in sorted(manifest.runners.items())]
        greeted = await discovery.Handshake(
            discovery_pb2.HandshakeRequest(
                host_id="host", host_version="9", protocol_versions=["2", "1"]
            )
        )
        assert (greeted.plugin_id, greeted.plugin_version, greeted.protocol_version) == (
            manifest.plugin_id, manifest.version, "1"
        )  # fmt: skip


async def test_told_to_end_it_finishes_its_run_and_takes_no_other(
    plugin: Path, tmp_path: Path
) -> None:
    async with _process(plugin, tmp_path) as (process, channel):
        runs = run_pb2_grpc.RunServiceStub(channel)
        held: Any = runs.Run(_desk("wait 2.5"))
        frame = await held.read()
        assert frame.results[0].message_delta.text == "waiting"
        process.send_signal(signal.SIGTERM)
        health = health_pb2_grpc.HealthStub(channel)

        async def is_draining() -> bool:
            answer = await health.Check(health_pb2.HealthCheckRequest())
            return bool(answer.status == health_pb2.HealthCheckResponse.NOT_SERVING)

        await eventually(is_draining)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await runs.Run(_desk("count")).read()
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        results = []
        while (frame := await held.read()) is not grpc.aio.EOF:
            results += frame.results
        assert [result.WhichOneof("payload") for result in results] == [
            "message_completed", "run_completed"
        ]  # fmt: skip
        assert await asyncio.wait_for(process.wait(), 20) == 0


def test_it_ends_when_whoever_started_it_is_gone(plugin: Path, tmp_path: Path) -> None:
    script = '"$@" & echo $! > "$PID_FILE"; wait'
    number = tmp_path / "pid"
    with subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", *_command(plugin)],
        cwd=plugin,
        env=_environment(tmp_path) | {"PID_FILE": str(number)},
    ) as parent:
        wait_until((tmp_path / "socket").exists, _START_SECONDS)
        process = int(number.read_text())
        assert _is_alive(process)
        parent.kill()
    try:
        wait_until(lambda: not _is_alive(process))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@asynccontextmanager
async def _process(plugin: Path, folder: Path) -> AsyncIterator[tuple[Process, grpc.aio.Channel]]:
    """Starts the plugin as a host does, and connects to it."""
    process = await asyncio.create_subprocess_exec(
        *_command(plugin), cwd=plugin, env=_environment(folder)
    )
    try:
        async with grpc.aio.insecure_channel(f"unix:{folder / 'socket'}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            await health.Check(
                health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=_START_SECONDS
            )
            yield process, channel
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _command(plugin: Path) -> tuple[str, ...]:
    run = read_manifest(plugin).run
    assert isinstance(run, Command)
    return run.words


def _environment(folder: Path) -> dict[str, str]:
    listen = {"RUNMESH_LISTEN": f"unix:{folder / 'socket'}", "RUNMESH_SUPERVISED": "1"}
    return {"PATH": os.environ["PATH"], **listen}


def _desk(text: str) -> run_pb2.RunRequest:
    request = run_pb2.RunRequest(runner_id="plugin:examples/java/desk")
    request.context.run_id = "run"
    request.context.input.text = text
    return request


def _is_alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _ran(
    *command: str, cwd: Path, seconds: float, variables: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
