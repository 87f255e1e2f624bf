"""How runs are stopped: by an interrupt, a caller that leaves, the time, or a shutdown."""

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from runmesh.v1 import run_pb2
from runmesh.v1.run_pb2_grpc import RunServiceStub

from runner_sdk import Manifest, Result, RunContext, agent_runner
from runner_sdk._outbox import RESULTS_WAITING
from runner_sdk.testing import ContractBroken, RunCall, RunOutcome, StandInHost
from tests.unit.runner_sdk.loopback import serving


class Witness:
    """Notes what becomes of an author's code."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self.errors: list[type[BaseException]] = []
        self._loop = asyncio.get_running_loop()

    def note(self, error: BaseException) -> None:
        self.errors.append(type(error))

    def start_from_thread(self) -> None:
        self._loop.call_soon_threadsafe(self.started.set)

    def end_from_thread(self) -> None:
        self._loop.call_soon_threadsafe(self.ended.set)

    async def see_end(self) -> None:
        await asyncio.wait_for(self.ended.wait(), 2)


async def _begin(call: RunCall, witness: Witness) -> asyncio.Task[RunOutcome]:
    reader = asyncio.create_task(call.outcome())
    await asyncio.wait_for(witness.started.wait(), 2)
    return reader


async def _leave(call: RunCall, reader: asyncio.Task[RunOutcome]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def test_an_interrupt_cancels_code_that_does_nothing_about_it() -> None:
    witness = Witness()

    @agent_runner
    async def waits(ctx: RunContext) -> AsyncIterator[Result]:
        try:
            yield ctx.delta("so far")
            witness.started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            witness.note(error)
            raise
        finally:
            await asyncio.sleep(0.01)
            witness.ended.set()

    async with serving(waits) as host:
        call = host.start("hi")
        reader = await _begin(call, witness)
        assert await call.interrupt()
        assert witness.ended.is_set(), "the answer comes when the code has ended"
        outcome = await reader

    assert witness.errors == [asyncio.CancelledError]
    assert outcome.streamed_text == "so far"
    assert outcome.failed is not None
    assert outcome.failed.code == "cancelled"


async def test_what_is_yielded_on_the_way_out_of_an_interrupt_is_still_sent() -> None:
    witness = Witness()

    @agent_runner
    async def saves(ctx: RunContext) -> AsyncIterator[Result]:
        try:
            witness.started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert ctx.interrupted
            assert ctx.interrupted.reason == "follow_up"
            yield ctx.set_state("conversation", "saved", 1)
            yield ctx.reply("stopped here")

    async with serving(saves) as host:
        call = host.start("hi")
        reader = await _begin(call, witness)
        await call.interrupt("follow_up")
        outcome = await reader

    assert outcome.of_kind("state_updated")[0].key == "saved"
    assert outcome.text == "stopped here"
    assert outcome.failed is not None
    assert outcome.failed.code == "cancelled"


async def test_a_runner_that_handles_interrupts_ends_by_itself() -> None:
    witness = Witness()

    @agent_runner(handles_interrupt=True)
    async def watches(ctx: RunContext) -> AsyncIterator[Result]:
        witness.started.set()
        reason = await ctx.interrupted.wait()
        yield ctx.reply(f"stopped: {reason}")
        yield ctx.failed("cancelled", "stopped on request")

    async with serving(watches) as host:
        call = host.start("hi")
        reader = await _begin(call, witness)
        assert await call.interrupt("follow_up")
        outcome = await reader

    assert outcome.text == "stopped: follow_up"
    assert outcome.failed is not None
    assert outcome.failed.message == "stopped on request"


async def test_an_interrupted_run_that_ends_without_a_word_was_cancelled() -> None:
    witness = Witness()

    @agent_runner(handles_interrupt=True)
    async def just_ends(ctx: RunContext) -> None:
        witness.started.set()
        await ctx.interrupted.wait()

    async with serving(just_ends) as host:
        call = host.start("hi")
        reader = await _begin(call, witness)
        await call.interrupt()
        outcome = await reader

    assert outcome.failed is not None
    assert outcome.failed.code == "cancelled"


async def test_a_runner_that_handles_interrupts_has_no_more_than_the_grace() -> None:
    witness = Witness()

    @agent_runner(handles_interrupt=True)
    async def forgets(ctx: RunContext) -> None:
        witness.started.set()
        await asyncio.Event().wait()

    async with serving(forgets) as host:
        call = host.start("hi")
        reader = await _begin(call, witness)
        await call.interrupt(grace_seconds=0.05)
        outcome = await reader

    assert outcome.failed is not None
    assert outcome.failed.code == "cancelled"


async def test_interrupting_plain_code_meets_it_at_its_next_yield() -> None:
    witness = Witness()

    @agent_runner
    def works(ctx: RunContext) -> Iterator[Result]:
        try:
            witness.start_from_thread()
            while True:
                yield ctx.delta("x")
                ctx.interrupted.wait_blocking(2)
        except asyncio.CancelledError as error:
            witness.note(error)
            yield ctx.reply("stopped")

    async with serving(works) as host:
        call = host.start("hi")
        reader = await _begin(call, witness)
        assert await call.interrupt()
        outcome = await reader

    assert witness.errors == [asyncio.CancelledError]
    assert outcome.text == "stopped"
    assert outcome.failed is not None
    assert outcome.failed.code == "cancelled"


async def test_interrupting_a_run_that_is_not_under_way_answers_at_once() -> None:
    @agent_runner
    async def answers(ctx: RunContext) -> Result:
        return ctx.reply("hi")

    async with serving(answers) as host:
        call = host.start("hi")
        await call.outcome()
        assert await call.interrupt() is False
        assert await call.interrupt() is False


async def test_interrupt_is_unimplemented_without_the_capability() -> None:
    @agent_runner
    async def answers(ctx: RunContext) -> Result:
        return ctx.reply("hi")

    manifest = Manifest.minimal("acme/test")
    manifest.runners["default"].capabilities.interrupt = False
    async with StandInHost(answers, manifest=manifest) as host:
        with pytest.raises(AioRpcError) as caught:
            await host.start("hi").interrupt()

    assert caught.value.code() is StatusCode.UNIMPLEMENTED


async def test_a_caller_that_leaves_cancels_code_at_its_await() -> None:
    witness = Witness()

    @agent_runner
    async def waits(ctx: RunContext) -> AsyncIterator[Result]:
        try:
            yield ctx.delta("x")
            witness.started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            witness.note(error)
            raise
        finally:
            await asyncio.sleep(0.01)
            witness.ended.set()

    async with serving(waits) as host:
        call = host.start("hi")
        await _leave(call, await _begin(call, witness))
        await witness.see_end()
        await _all_ended(host)

    assert witness.errors == [asyncio.CancelledError]


async def test_a_caller_that_leaves_cancels_code_that_is_held_back() -> None:
    witness = Witness()

    @agent_runner
    async def floods(ctx: RunContext) -> AsyncIterator[Result]:
        try:
            while True:
                yield ctx.delta("x" * 100_000)
                witness.started.set()
        except asyncio.CancelledError as error:
            witness.note(error)
            raise
        finally:
            witness.ended.set()

    async with serving(floods) as host:
        call = host.start("hi")
        results = aiter(call)
        await anext(results)
        await asyncio.sleep(0.05)
        call.cancel()
        await witness.see_end()
        await _all_ended(host)

    assert witness.errors == [asyncio.CancelledError]


@pytest.mark.parametrize("results_first", [0, 1, RESULTS_WAITING * 2])
async def test_a_caller_that_leaves_closes_plain_code_at_its_yield(results_first: int) -> None:
    witness = Witness()

    @agent_runner
    def works(ctx: RunContext) -> Iterator[Result]:
        try:
            for _ in range(results_first):
                yield ctx.delta("x")
            witness.start_from_thread()
            while not ctx.interrupted.wait_blocking(0.001):
                yield ctx.delta("x")
        finally:
            witness.end_from_thread()

    async with serving(works) as host:
        call = host.start("hi")
        await _leave(call, await _begin(call, witness))
        await witness.see_end()
        await _all_ended(host)


async def test_a_run_of_plain_code_is_under_way_until_its_thread_has_ended() -> None:
    witness = Witness()
    release = threading.Event()

    @agent_runner
    def blocks(ctx: RunContext) -> None:
        witness.start_from_thread()
        release.wait(5)

    async with serving(blocks) as host:
        call = host.start("hi")
        await _leave(call, await _begin(call, witness))
        await asyncio.sleep(0.05)
        assert host.server.active_runs == 1
        release.set()
        await _all_ended(host)


async def test_code_that_goes_on_yielding_for_nobody_is_closed() -> None:
    witness = Witness()

    tasks: list[asyncio.Task[Any] | None] = []

    @agent_runner
    async def goes_on(ctx: RunContext) -> AsyncIterator[Result]:
        tasks.append(asyncio.current_task())
        try:
            while True:
                try:
                    witness.started.set()
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    yield ctx.delta("are you there?")
        except GeneratorExit as error:
            witness.note(error)
            raise
        finally:
            tasks.append(asyncio.current_task())
            witness.ended.set()

    async with serving(goes_on) as host:
        call = host.start("hi")
        await _leave(call, await _begin(call, witness))
        await witness.see_end()
        await _all_ended(host)

    assert witness.errors == [GeneratorExit]
    assert tasks[0] is tasks[1], "what was entered in a task is left in the same one"


async def test_plain_code_that_goes_on_yielding_for_nobody_is_closed() -> None:
    witness = Witness()

    @agent_runner
    def goes_on(ctx: RunContext) -> Iterator[Result]:
        try:
            while True:
                try:
                    yield ctx.delta("are you there?")
                    witness.start_from_thread()
                    ctx.interrupted.wait_blocking(0.01)
                except asyncio.CancelledError as error:
                    witness.note(error)
        except GeneratorExit as error:
            witness.note(error)
            raise
        finally:
            time.sleep(0.05)
            witness.end_from_thread()

    async with serving(goes_on) as host:
        call = host.start("hi")
        await _leave(call, await _begin(call, witness))
        await _all_ended(host)
        assert witness.ended.is_set(), "the run is not over while its thread cleans up"

    # A result that was on its way may have brought the end before the cancellation.
    assert witness.errors in ([asyncio.CancelledError, GeneratorExit], [GeneratorExit])


async def test_callers_that_leave_again_and_again_leave_nothing_behind() -> None:
    ended = 0

    @agent_runner
    async def streams(ctx: RunContext) -> AsyncIterator[Result]:
        nonlocal ended
        try:
            while True:
                yield ctx.delta("x" * 1000)
                await asyncio.sleep(0)
        finally:
            ended += 1

    async with serving(streams) as host:

        async def leave_after_one() -> None:
            call = host.start("hi")
            await anext(aiter(call))
            call.cancel()

        for _ in range(5):
            await leave_after_one()
        await _all_ended(host)
        tasks, descriptors = len(asyncio.all_tasks()), _open_descriptors()
        for _ in range(10):
            await asyncio.gather(*(leave_after_one() for _ in range(10)))
        await _all_ended(host)
        await _settled(lambda: len(asyncio.all_tasks()) <= tasks)
        gc.collect()

        assert ended == 105
        assert _open_descriptors() <= descriptors + 1


async def test_a_run_that_takes_too_long_is_cancelled() -> None:
    witness = Witness()

    @agent_runner
    async def dawdles(ctx: RunContext) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            witness.note(error)
            raise
        finally:
            witness.ended.set()

    async with serving(dawdles) as host:
        # The run's time and the call's own deadline race: a caller sees the one or the other.
        with contextlib.suppress(AioRpcError):
            outcome = await host.run("hi", timeout_seconds=0.05)
            assert outcome.failed is not None
            assert outcome.failed.code == "runner.timeout"
        await witness.see_end()
        await _all_ended(host)

    assert witness.errors == [asyncio.CancelledError]


async def test_a_timeout_without_a_grpc_deadline_ends_the_run_as_failed() -> None:
    @agent_runner
    async def dawdles(ctx: RunContext) -> None:
        await asyncio.Event().wait()

    async with serving(dawdles) as host:
        request = run_pb2.RunRequest(runner_id="plugin:acme/test/default")
        request.context.run_id = "run-1"
        request.timeout.FromMilliseconds(50)
        frame = await RunServiceStub(host.channel).Run(request).read()

    assert isinstance(frame, run_pb2.RunResponse)
    assert frame.results[0].run_failed.code == "runner.timeout"


async def test_code_that_ignores_its_cancellation_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("runner_sdk._run._PATIENCE_SECONDS", 0.02)
    witness = Witness()
    release = asyncio.Event()

    @agent_runner
    async def is_deaf(ctx: RunContext) -> None:
        while not release.is_set():
            try:
                witness.started.set()
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with serving(is_deaf) as host:
        call = host.start("hi")
        await _leave(call, await _begin(call, witness))
        await _settled(lambda: "has not stopped" in caplog.text)
        assert host.server.active_runs == 1
        release.set()
        await _all_ended(host)


async def test_a_cancellation_from_within_is_an_error_like_any_other() -> None:
    @agent_runner
    async def cancels_itself(ctx: RunContext) -> None:
        raise asyncio.CancelledError

    async with serving(cancels_itself) as host:
        outcome = await host.run("hi")

    assert outcome.failed is not None
    assert outcome.failed.code == "runner.error"


async def test_draining_lets_runs_end_and_refuses_new_ones() -> None:
    witness = Witness()
    release = asyncio.Event()

    @agent_runner
    async def works(ctx: RunContext) -> AsyncIterator[Result]:
        witness.started.set()
        await release.wait()
        yield ctx.reply("done")

    async with serving(works) as host:
        reader = await _begin(host.start("hi"), witness)
        draining = asyncio.create_task(host.server.drain(5))
        health = health_pb2_grpc.HealthStub(host.channel)
        for service in ("", "runmesh.v1.RunService", "runmesh.v1.DiscoveryService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(AioRpcError) as caught:
            await host.run("late")
        assert caught.value.code() is StatusCode.UNAVAILABLE
        release.set()
        assert (await reader).text == "done"
        assert await draining


async def test_runs_that_outlast_the_grace_are_cancelled_and_clean_up() -> None:
    witness = Witness()

    @agent_runner
    async def outlasts(ctx: RunContext) -> AsyncIterator[Result]:
        try:
            yield ctx.delta("so far")
            witness.started.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            witness.ended.set()

    async with serving(outlasts) as host:
        reader = await _begin(host.start("hi"), witness)
        assert await host.server.drain(0.01)
        assert witness.ended.is_set()
        outcome = await reader

    assert outcome.failed is not None
    assert (outcome.failed.code, outcome.failed.retryable) == ("runner.unavailable", True)


async def test_hurrying_ends_the_grace_of_a_drain() -> None:
    witness = Witness()

    @agent_runner
    async def outlasts(ctx: RunContext) -> None:
        witness.started.set()
        await asyncio.Event().wait()

    async with serving(outlasts) as host:
        reader = await _begin(host.start("hi"), witness)
        draining = asyncio.create_task(host.server.drain(60))
        await asyncio.sleep(0)
        host.server.hurry()
        assert await asyncio.wait_for(draining, 5)
        assert (await reader).failed is not None


async def test_more_runs_than_the_process_takes_are_refused_with_a_hint_to_wait() -> None:
    witness = Witness()
    release = asyncio.Event()

    @agent_runner
    async def works(ctx: RunContext) -> Result:
        witness.started.set()
        await release.wait()
        return ctx.reply("done")

    async with serving(works, max_concurrent_runs=1) as host:
        assert host.handshake.max_concurrent_runs == 1
        reader = await _begin(host.start("hi"), witness)
        with pytest.raises(AioRpcError) as caught:
            await host.run("one too many")
        release.set()
        await reader
        await _all_ended(host)
        assert (await host.run("now")).text == "done"

    assert caught.value.code() is StatusCode.RESOURCE_EXHAUSTED


async def test_a_configuration_that_is_no_object_is_refused_by_name() -> None:
    @agent_runner
    async def answers(ctx: RunContext) -> Result:
        return ctx.reply("hi")

    async with serving(answers) as host:
        for text in ("[]", "{", '{"a": NaN}'):
            request = run_pb2.RunRequest(runner_id="plugin:acme/test/default")
            request.context.run_id = "run-1"
            request.context.config_json = text
            with pytest.raises(AioRpcError) as caught:
                await RunServiceStub(host.channel).Run(request).read()
            assert caught.value.code() is StatusCode.INVALID_ARGUMENT
            assert "context.config_json: must be a JSON object" in (caught.value.details() or "")
        assert host.server.active_runs == 0


async def test_a_broken_contract_is_seen_by_the_stand_in() -> None:
    from runner_sdk.testing import RunResult, Unchecked

    @agent_runner
    async def breaks(ctx: RunContext) -> AsyncIterator[Result | Unchecked]:
        yield ctx.delta("x")
        yield Unchecked((RunResult(run_id=ctx.run_id, sequence=3),))

    async with serving(breaks) as host:
        with pytest.raises(ContractBroken, match="result 2 has the sequence 3"):
            await host.run("hi")


async def _all_ended(host: StandInHost) -> None:
    await _settled(lambda: host.server.active_runs == 0)


async def _settled(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(3):
        while not condition():  # noqa: ASYNC110 - what is waited for belongs to the code under test
            await asyncio.sleep(0.005)


def _open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))
