"""Metadata of calls, and text of any kind, on the way through runners of each language."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import grpc.aio
import pytest
from runmesh.v1 import discovery_pb2, discovery_pb2_grpc

from host_service.supervisor.manifest import PythonModule, read_manifest
from tests.integration.host.calls import message
from tests.integration.host.raw_http2 import Headers, call
from tests.polyglot.examples import TOOLS, built_example
from tests.polyglot.mesh import Conversation, Mesh, buildable, running_mesh

pytestmark = pytest.mark.timeout(1800)

LIST_RUNNERS = "/runmesh.v1.DiscoveryService/ListRunners"
LABELS = {"标签": "测试", "X-Run": "Ünïcode 👋", "raw-bin": "no base64 {}", "line": "a\nb\tc"}
_START_SECONDS = 60.0

FIT: list[Headers] = [
    ((b"x-label", b"plain ASCII ~"),),
    ((b"x-raw-bin", b"AAEC/w"),),
    ((b"x-raw-bin", b"AAEC/w=="),),
    ((b"traceparent", b"no trace at all"), (b"tracestate", b"a=b,,;;;")),
]
UNFIT: list[Headers] = [
    ((b"X-Run", b"1"),),
    ((b"x-label", "测试".encode()),),
    ((b"x-label", b"\xff\xfe\x80"),),
    ((b"x-raw-bin", b"***"),),
    ((b"traceparent", "00-测试".encode()),),
]


@pytest.fixture(scope="module", params=TOOLS)
def runner(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a language's example, a process of its own without a host."""
    folder = built_example(request.param)
    run = read_manifest(folder).run
    words = (sys.executable, "-m", run.module) if isinstance(run, PythonModule) else run.words
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    process = subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, "RUNMESH_LISTEN": address},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        asyncio.run(answers(address))
        yield address
    finally:
        process.kill()
        process.communicate()


async def answers(address: str) -> None:
    """Returns when a runner answers a call that nothing is wrong with."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = discovery_pb2_grpc.DiscoveryServiceStub(channel)
        request = discovery_pb2.ListRunnersRequest()
        told = await stub.ListRunners(request, timeout=_START_SECONDS, wait_for_ready=True)
    assert len(told.runners) == 2


@pytest.mark.parametrize("headers", FIT, ids=str)
async def test_metadata_that_means_nothing_to_a_runner_is_let_pass(
    runner: str, headers: Headers
) -> None:
    answered = await call(runner, LIST_RUNNERS, discovery_pb2.ListRunnersRequest(), headers)
    assert not answered.was_reset
    assert b"/desk" in answered.messages


@pytest.mark.parametrize("headers", UNFIT, ids=str)
async def test_metadata_that_cannot_be_costs_a_runner_that_call_at_most(
    runner: str, headers: Headers
) -> None:
    # What becomes of the call itself is the library's to say: answered, refused or broken off.
    with contextlib.suppress(TimeoutError, ConnectionError):
        await call(runner, LIST_RUNNERS, discovery_pb2.ListRunnersRequest(), headers)
    await answers(runner)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A host with all languages."""
    with running_mesh(tmp_path_factory.mktemp("labels"), buildable()) as mesh:
        yield mesh


@pytest.mark.parametrize("language", TOOLS)
async def test_names_and_labels_of_any_kind_come_through(language: str, mesh: Mesh) -> None:
    built_example(language)
    async with mesh.caller() as caller:
        talk = Conversation(caller, f"{language}-desk", f"测试 👋 {language}")
        await talk.count()
        await talk.file("图 👩‍💻.txt")
        labelled = message("recall", conversation_id=talk.id, metadata=LABELS)
        answer = await caller.dispatch(labelled, talk.agent_id)
    assert answer.text == "\n".join(talk.lines[-5:])
