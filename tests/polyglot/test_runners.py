"""What the examples of all languages do alike: contract, desk, client, and their end."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from runmesh.v1 import discovery_pb2, discovery_pb2_grpc, gateway_pb2, run_pb2, run_pb2_grpc

from host_service.conformance import Options, check_plugin
from host_service.supervisor.manifest import Command, read_manifest
from runner_sdk import Manifest
from tests.integration.host.calls import collect, collect_until, message
from tests.integration.host.waiting import eventually, wait_until
from tests.polyglot.examples import TOOLS
from tests.polyglot.kit import passed
from tests.polyglot.mesh import Conversation, Mesh, running_mesh

# Whichever test comes first waits for the build.
pytestmark = pytest.mark.timeout(1200)

# A virtual machine starts slowly on a machine that does much else.
_START_SECONDS = 60.0
_CLIENTS = {
    "go": ("bin/client",),
    "java": ("java", "-cp", "target/plugin.jar", "dev.runmesh.examples.Client"),
    "python": (sys.executable, "client.py"),
    "rust": ("bin/client",),
    "typescript": ("node", "dist/client.js"),
}


@pytest.fixture(scope="module", params=TOOLS)
def language(request: pytest.FixtureRequest) -> str:
    """A language."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def plugin(built: Callable[[str], Path], language: str) -> Path:
    """The language's example, built."""
    return built(language)


@pytest.fixture(scope="module")
def mesh(plugin: Path, language: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A host that runs this example alone."""
    assert plugin.is_dir()
    with running_mesh(tmp_path_factory.mktemp(language), [language]) as mesh:
        yield mesh


async def test_echo_keeps_the_contract(plugin: Path) -> None:
    made = passed(await check_plugin(plugin, Options(runner="echo")))
    assert {"input.echo", "stop.interrupt", "process.drains", "load.slow-reader"} <= made


async def test_desk_keeps_the_contract(plugin: Path) -> None:
    assert "results.terminal" in passed(await check_plugin(plugin, Options(runner="desk")))


async def test_desk_does_what_it_is_asked(mesh: Mesh, language: str) -> None:
    async with mesh.caller() as caller:
        desk = Conversation(caller, f"{language}-desk", "desk")
        await desk.recall()
        await desk.count()
        await desk.count()
        await desk.file("notes of today.txt")
        posted = await desk.post(7, "héllo 天 👩‍💻")
        assert posted.kinds == [
            "tool_call_started", "tool_call_completed", "message_completed", "run_completed"
        ]  # fmt: skip
        await desk.recall()
        failed = await desk.say('tool ledger__refuse {"reason": "closed"}')
        assert failed.text == "ledger__refuse failed: Error executing tool refuse"
        waited = await desk.say("wait 0.1")
        assert (waited.shown, waited.text) == ("waiting", "waited 0.1 s")
        for nothing in ("what can you do?", "wait", "wait for me", "wait -1", "wait NaN", "file"):
            assert "recall" in (await desk.say(nothing)).text


async def test_conversation_of_many_pages_is_filed_whole(mesh: Mesh, language: str) -> None:
    async with mesh.caller() as caller:
        desk = Conversation(caller, f"{language}-desk", "long")
        for _ in range(30):
            await desk.count()
        await desk.file("all of it.txt")


async def test_counting_at_once_loses_no_message(mesh: Mesh, language: str) -> None:
    async with mesh.caller() as caller:
        counted = await asyncio.gather(
            *[
                caller.dispatch(
                    message("count", conversation_id="busy"),
                    f"{language}-desk",
                    follow_up=gateway_pb2.FOLLOW_UP_PARALLEL,
                )
                for _ in range(8)
            ]
        )
    assert sorted(each.text for each in counted) == [
        f"message {number} of this conversation" for number in range(1, 9)
    ]


@pytest.mark.parametrize(
    ("text", "method", "reason"),
    [
        ("tool ledger__nothing {}", "CallTool", "NOT_FOUND"),
        ("tool ledger__post {", "CallTool", "INVALID_ARGUMENT"),
        ("file ../notes", "CreateArtifact", "INVALID_ARGUMENT"),
    ],
)
async def test_what_the_host_refuses_ends_the_run_with_method_and_reason(
    mesh: Mesh, language: str, text: str, method: str, reason: str
) -> None:
    async with mesh.caller() as caller:
        said = message(text, conversation_id="refused")
        answer = await caller.dispatch(said, f"{language}-desk")
    assert answer.ended.status == gateway_pb2.RUN_STATUS_FAILED
    failure = answer.ended.failure
    assert (failure.code, failure.retryable) == ("desk.refused", False), answer
    assert dict(failure.details) == {"method": method, "reason": reason}


async def test_cancelled_run_stops_waiting_at_once(mesh: Mesh, language: str) -> None:
    async with mesh.caller() as caller:
        said = message("wait 600", conversation_id="cancelled")
        call = caller.open(said, f"{language}-desk", timeout=180.0)
        answer = await collect_until(call, lambda so_far: so_far.shown == "waiting")
        cancelled = await caller.cancel(answer.run_id)
        assert cancelled.status == gateway_pb2.RUN_STATUS_CANCELLED
        await collect(call, answer)
        # In the runner's own words: it had stopped before the host's patience was over.
        assert answer.failure == "cancelled"

        async def is_idle() -> bool:
            listed = await caller.discovery.ListRunners(
                discovery_pb2.ListRunnersRequest(), metadata=caller.metadata
            )
            return not any(instance.active_runs for instance in listed.instances)

        await eventually(is_idle)


async def test_echo_says_back_what_it_is_told(mesh: Mesh, language: str) -> None:
    async with mesh.caller() as caller:
        echo = Conversation(caller, f"{language}-echo", "echo")
        await echo.echo("你好 👩‍💻 שלום, and  two spaces\n")
        await echo.echo("x" * 300_000)


@pytest.mark.parametrize(
    ("runner", "text", "printed"),
    [
        ("echo", "你好 👩‍💻 שלום", "你好 👩‍💻 שלום"),
        ("desk", "recall", "nothing yet"),
        ("desk", "wait 0", "waiting"),
    ],
)
def test_client_prints_what_a_run_says(
    mesh: Mesh, plugin: Path, language: str, runner: str, text: str, printed: str
) -> None:
    told = subprocess.run(
        [*_CLIENTS[language], mesh.host.addresses["grpc"], f"{language}-{runner}", text],
        cwd=plugin,
        env={**os.environ, "RUNMESH_API_KEY": mesh.host.key, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == printed
    assert lines[-1].split()[1].endswith("COMPLETED")


async def test_it_says_of_itself_what_its_files_say(plugin: Path, tmp_path: Path) -> None:
    async with _process(plugin, tmp_path) as (_, channel):
        discovery = discovery_pb2_grpc.DiscoveryServiceStub(channel)
        listed = await discovery.ListRunners(discovery_pb2.ListRunnersRequest())
        greeted = await discovery.Handshake(
            discovery_pb2.HandshakeRequest(
                host_id="host", host_version="9", protocol_versions=["2", "1"]
            )
        )
    manifest = Manifest.load(plugin)
    assert list(listed.runners) == [runner for _, runner in sorted(manifest.runners.items())]
    assert (greeted.plugin_id, greeted.plugin_version, greeted.protocol_version) == (
        manifest.plugin_id, manifest.version, "1"
    )  # fmt: skip


async def test_told_to_end_it_finishes_its_run_and_takes_no_other(
    plugin: Path, language: str, tmp_path: Path
) -> None:
    async with _process(plugin, tmp_path) as (process, channel):
        runs = run_pb2_grpc.RunServiceStub(channel)
        held: Any = runs.Run(_desk(language, "wait 2.5"))
        frame = await held.read()
        assert frame.results[0].message_delta.text == "waiting"
        process.send_signal(signal.SIGTERM)
        health = health_pb2_grpc.HealthStub(channel)

        async def is_draining() -> bool:
            answer = await health.Check(health_pb2.HealthCheckRequest())
            return bool(answer.status == health_pb2.HealthCheckResponse.NOT_SERVING)

        await eventually(is_draining)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await runs.Run(_desk(language, "count")).read()
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        results = []
        while (frame := await held.read()) is not grpc.aio.EOF:
            results += frame.results
        assert [result.WhichOneof("payload") for result in results] == [
            "message_completed", "run_completed"
        ]  # fmt: skip
        assert await asyncio.wait_for(process.wait(), 30) == 0


def test_it_ends_when_whoever_started_it_is_gone(plugin: Path, tmp_path: Path) -> None:
    # The shell stands for a host that is killed and has no time to stop anything.
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
        async with grpc.aio.insecure_channel(
            f"unix:{folder / 'socket'}", options=(("grpc.default_authority", "localhost"),)
        ) as channel:
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
    return run.words if isinstance(run, Command) else (sys.executable, "-m", run.module)


def _environment(folder: Path) -> dict[str, str]:
    listen = {"RUNMESH_LISTEN": f"unix:{folder / 'socket'}", "RUNMESH_SUPERVISED": "1"}
    return {"PATH": os.environ["PATH"], **listen}


def _desk(language: str, text: str) -> run_pb2.RunRequest:
    request = run_pb2.RunRequest(runner_id=f"plugin:examples/{language}/desk")
    request.context.run_id = "run"
    request.context.config_json = "{}"
    request.context.input.text = text
    # It asks nothing of this host, which nobody is.
    request.host_access.host_id = "host"
    request.host_access.address = "unix:/nobody"
    request.host_access.run_token = request.host_access.instance_token = "none"
    return request


def _is_alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
