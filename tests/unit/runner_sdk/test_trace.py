"""The host's trace goes through a runner and comes back with its calls."""

import asyncio
import contextvars
import time
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import run_pb2
from runmesh.v1.run_pb2_grpc import RunServiceStub

from runner_sdk import Result, RunContext, agent_runner
from runner_sdk._standin.active_run import ActiveRun
from runner_sdk.testing import StandInHost
from tests.unit.runner_sdk.loopback import serving

_TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
_NOTHING = api.GetPromptRequest()
_PARENT = f"00-{_TRACE_ID}-b7ad6b7169203331-01"


@agent_runner
async def asks(ctx: RunContext) -> None:
    await ctx.host.prompt.get()


@agent_runner
def asks_from_a_thread(ctx: RunContext) -> Iterator[Result]:
    ctx.block_on(ctx.host.prompt.get())
    yield ctx.completed("silent")


async def _run(host: StandInHost) -> None:
    """Runs with the host's trace context in the call's metadata."""
    host.answer("GetPrompt", api.GetPromptResponse())
    request = run_pb2.RunRequest(runner_id="plugin:acme/test/default")
    request.context.run_id = "run-1"
    request.host_access.address = host._api_address
    request.host_access.run_token = host._api.issue(
        ActiveRun(host.manifests["default"], request.context)
    )
    request.host_access.instance_token = host._api.instance_token
    metadata = (("traceparent", _PARENT), ("tracestate", "acme=1"))
    async for _ in RunServiceStub(host.channel).Run(request, metadata=metadata):
        pass


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """An author's tracer provider, and the spans that it got."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


@pytest.mark.parametrize("runner", [asks, asks_from_a_thread], ids=["async", "plain"])
async def test_without_a_tracer_provider_the_trace_is_passed_on_as_it_is(
    runner: object,
) -> None:
    async with serving(runner) as host:  # type: ignore[arg-type]
        await _run(host)
        [call] = host.calls

    assert call.metadata["traceparent"] == _PARENT
    assert call.metadata["tracestate"] == "acme=1"


async def test_a_call_from_outside_the_runs_own_code_is_in_its_trace_too() -> None:
    @agent_runner
    async def asks_aside(ctx: RunContext) -> None:
        elsewhere = contextvars.Context()
        await asyncio.create_task(ctx.host.call("GetPrompt", _NOTHING), context=elsewhere)

    async with serving(asks_aside) as host:
        await _run(host)
        [call] = host.calls

    assert call.metadata["traceparent"] == _PARENT


async def test_a_run_without_a_trace_calls_without_one() -> None:
    async with serving(asks) as host:
        host.answer("GetPrompt", api.GetPromptResponse())
        await host.run("hi")
        [call] = host.calls

    assert "traceparent" not in call.metadata


@pytest.mark.parametrize("runner", [asks, asks_from_a_thread], ids=["async", "plain"])
async def test_the_authors_spans_join_the_hosts_trace(
    runner: object, spans: InMemorySpanExporter
) -> None:
    async with serving(runner) as host:  # type: ignore[arg-type]
        await _run(host)
        [call] = host.calls

    [span] = spans.get_finished_spans()
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == _TRACE_ID
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert span.attributes is not None
    assert span.attributes["runmesh.run_id"] == "run-1"
    assert call.metadata["traceparent"] == f"00-{_TRACE_ID}-{span.context.span_id:016x}-01"


async def test_callers_that_leave_early_end_each_span_once(
    spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    @agent_runner
    async def streams(ctx: RunContext) -> object:
        while True:
            yield ctx.delta("x" * 1000)

    async with serving(streams) as host:
        for _ in range(20):
            call = host.start("hi")
            await anext(aiter(call))
            call.cancel()

    assert len(spans.get_finished_spans()) == 20
    assert "detach" not in caplog.text


@agent_runner
async def streams_and_uploads(ctx: RunContext) -> None:
    ref = await ctx.host.artifacts.create(b"x" * 300_000)
    async with ctx.host.artifacts.open(ref) as file:
        await file.read()
    async with ctx.host.steering.pull():
        await asyncio.sleep(0.05)


@agent_runner
def streams_and_uploads_from_a_thread(ctx: RunContext) -> Iterator[Result]:
    ref = ctx.block_on(ctx.host.artifacts.create(b"x" * 300_000))
    with ctx.block_with(ctx.host.artifacts.open(ref)) as file:
        yield ctx.log(str(len(ctx.block_on(file.read()))))
    with ctx.block_with(ctx.host.steering.pull()):
        time.sleep(0.05)


@pytest.mark.parametrize(
    "runner", [streams_and_uploads, streams_and_uploads_from_a_thread], ids=["async", "plain"]
)
async def test_streams_and_uploads_are_in_the_trace_as_calls_are(
    runner: object, spans: InMemorySpanExporter
) -> None:
    async with serving(runner) as host:  # type: ignore[arg-type]
        await _run(host)
        calls = host.calls

    [span] = spans.get_finished_spans()
    assert span.context is not None
    parent = f"00-{_TRACE_ID}-{span.context.span_id:016x}-01"
    assert {call.method: call.metadata["traceparent"] for call in calls} == dict.fromkeys(
        ["CreateArtifact", "ReadArtifact", "StreamArtifact", "PullSteering"], parent
    )
