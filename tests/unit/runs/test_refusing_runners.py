"""Runners that do not begin a run, and those that stop in the middle of one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from runmesh.v1 import result_pb2, run_pb2

from host_service.agents.directory import AgentDirectory
from host_service.limits import Limits
from host_service.registry import Instance
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.services import RunServices
from runner_sdk._status import refusal
from stores.records import RunStatus
from tests.unit.runs.active import save
from tests.unit.runs.runner import END, Runner, ServeScript, introduce, serve
from tests.unit.runs.samples import a_delta, an_agent, an_event
from tests.unit.runs.test_run import Payloads, failure, hello, ran


@pytest.fixture
def limits() -> Limits:
    return replace(Limits(), instance_wait_seconds=0.05)


@pytest.fixture(autouse=True)
async def _agents(directory: AgentDirectory) -> None:
    await save(directory, an_agent())


class _Refuses(Runner):
    """Ends its first calls with a status, before or after its first result."""

    def __init__(self, *refusals: Callable[[Any], Awaitable[None]], speaks: bool = False) -> None:
        super().__init__(hello)
        self._refusals = list(refusals)
        self._speaks = speaks

    async def Run(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        if self._refusals:
            self.requests.append(request)
            if self._speaks:
                yield a_frame_of(request, message_delta=a_delta("Hel"))
            await self._refusals.pop(0)(context)
        async for response in super().Run(request, context):
            yield response


def a_frame_of(request: run_pb2.RunRequest, **payload: Any) -> run_pb2.RunResponse:
    result = result_pb2.RunResult(run_id=request.context.run_id, sequence=1, **payload)
    return run_pb2.RunResponse(results=[result])


def aborts(code: grpc.StatusCode, text: str) -> Callable[[Any], Awaitable[None]]:
    return lambda context: context.abort(code, text)


async def drains(context: Any) -> None:
    """Refuses as the SDK does while its process ends."""
    await context.abort_with_status(
        refusal(grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE", "the process is shutting down")
    )


NO_MODEL = aborts(grpc.StatusCode.UNAVAILABLE, "failed to connect to a model")
BUSY = aborts(grpc.StatusCode.RESOURCE_EXHAUSTED, "as many runs as it takes")


@pytest.fixture
async def refusing(services: RunServices, tmp_path: Path) -> AsyncIterator[Any]:
    """Serves a runner that refuses."""
    async with AsyncExitStack() as stack:

        async def start(runner: Runner) -> Instance:
            address = f"unix:{tmp_path}/refusing"
            server = await serve(runner, address)
            stack.push_async_callback(server.stop, None)
            return introduce(services.registry, address)

        yield start


async def test_process_that_still_cleans_up_is_tried_again_a_little_later(
    orchestrator: Orchestrator, refusing: Any, services: RunServices
) -> None:
    orchestrator._entry._services = replace(
        services, limits=replace(services.limits, instance_wait_seconds=10)
    )
    runner = _Refuses(BUSY, BUSY, BUSY)
    instance = await refusing(runner)
    _, record = await ran(orchestrator)
    assert record.status is RunStatus.COMPLETED
    assert len(runner.requests) == 4
    assert (instance.active_runs, len(services.tokens)) == (0, 0)


async def test_process_that_takes_no_runs_for_too_long_fails_the_run(
    orchestrator: Orchestrator, refusing: Any
) -> None:
    await refusing(_Refuses(*[BUSY] * 100))
    _, record = await ran(orchestrator)
    assert failure(record) == "runner.unavailable"
    assert record.failure is not None
    assert record.failure.retryable


async def test_process_that_drains_is_passed_over_for_the_next(
    orchestrator: Orchestrator, refusing: Any, serving: ServeScript
) -> None:
    draining = _Refuses(*[drains] * 10)
    await refusing(draining)
    runner, _ = await serving(hello)
    for number in range(2):
        _, record = await ran(orchestrator, event=an_event(event_id=f"e{number}"))
        assert record.status is RunStatus.COMPLETED
    assert len(draining.requests) >= 1
    assert len(runner.requests) == 2


@pytest.mark.parametrize(
    ("refuse", "speaks", "code"),
    [
        (BUSY, True, "runner.error"),
        (drains, True, "runner.unavailable"),
        (
            aborts(grpc.StatusCode.UNAVAILABLE, "failed to connect to a model"),
            False,
            "runner.unavailable",
        ),
        (aborts(grpc.StatusCode.UNAVAILABLE, "Connection refused"), True, "runner.unavailable"),
        (aborts(grpc.StatusCode.CANCELLED, "CANCELLED"), False, "runner.unavailable"),
        (aborts(grpc.StatusCode.CANCELLED, "CANCELLED"), True, "runner.unavailable"),
        (aborts(grpc.StatusCode.INTERNAL, "oh"), False, "runner.error"),
    ],
)
async def test_run_that_may_have_begun_is_never_tried_again(
    orchestrator: Orchestrator, refusing: Any, refuse: Any, speaks: bool, code: str
) -> None:
    runner = _Refuses(refuse, speaks=speaks)
    await refusing(runner)
    _, record = await ran(orchestrator)
    assert (record.status, failure(record)) == (RunStatus.FAILED, code)
    assert record.failure is not None
    assert record.failure.retryable is (code == "runner.unavailable")
    assert len(runner.requests) == 1


async def test_deadline_counts_from_the_start_across_refusals(
    orchestrator: Orchestrator, refusing: Any, directory: AgentDirectory, services: RunServices
) -> None:
    orchestrator._entry._services = replace(
        services, limits=replace(services.limits, instance_wait_seconds=10)
    )
    await save(directory, an_agent(id="hasty", timeout_seconds=0.4))
    await refusing(_Refuses(*[BUSY] * 100))
    _, record = await ran(orchestrator, agent_id="hasty")
    assert (record.status, failure(record)) == (RunStatus.TIMED_OUT, "runner.timeout")
    assert record.ended_at is not None
    assert record.started_at is not None
    assert record.deadline == record.started_at + timedelta(seconds=0.4)
    assert record.ended_at - record.started_at < timedelta(seconds=2)


async def test_run_whose_runner_had_its_last_word_in_time_has_not_timed_out(
    orchestrator: Orchestrator, serving: ServeScript, directory: AgentDirectory
) -> None:
    async def script(_request: run_pb2.RunRequest) -> Payloads:
        yield {"message_delta": a_delta("x")}
        await asyncio.sleep(0.25)
        yield END
        # It does not end its stream: the host listens on for a moment, past the deadline.
        await asyncio.sleep(5)

    await save(directory, an_agent(id="hasty", timeout_seconds=0.3))
    await serving(script)
    _, record = await ran(orchestrator, agent_id="hasty")
    assert record.status is RunStatus.COMPLETED
