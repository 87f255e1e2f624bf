"""Runs over a real loopback connection: what an author writes, and what a host receives."""

import asyncio
import contextvars
import functools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from runmesh.v1 import context_pb2, run_pb2
from runmesh.v1.result_pb2 import RunResult

from runner_sdk import AgentRunner, Result, RunContext, RunFailure, agent_runner
from runner_sdk._wire import FRAME_BYTES
from runner_sdk.runner import FunctionRunner
from tests.unit.runner_sdk.loopback import serving


class Greeter(AgentRunner):
    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("Hello, ")
        yield ctx.delta(ctx.text)


@agent_runner
async def answers_once(ctx: RunContext) -> Result:
    return ctx.reply(f"Hello, {ctx.text}")


@agent_runner
def yields_from_a_thread(ctx: RunContext) -> Iterator[Result]:
    assert threading.current_thread() is not threading.main_thread()
    yield ctx.delta("Hello, ")
    yield ctx.delta(ctx.text)


@agent_runner
def answers_once_from_a_thread(ctx: RunContext) -> Result:
    assert threading.current_thread() is not threading.main_thread()
    return ctx.reply(f"Hello, {ctx.text}")


def _decorated(run: Callable[[RunContext], Any]) -> Callable[[RunContext], Any]:
    @functools.wraps(run)
    def wrapper(ctx: RunContext) -> Any:
        return run(ctx)

    return wrapper


@agent_runner
@_decorated
async def yields_behind_a_decorator(ctx: RunContext) -> AsyncIterator[Result]:
    yield ctx.delta("Hello, ")
    yield ctx.delta(ctx.text)


@agent_runner
def returns_a_list(ctx: RunContext) -> list[Result]:
    return [ctx.delta("Hello, "), ctx.delta(ctx.text)]


@pytest.mark.parametrize(
    "runner",
    [
        Greeter(),
        answers_once,
        yields_from_a_thread,
        answers_once_from_a_thread,
        returns_a_list,
        yields_behind_a_decorator,
    ],
    ids=["generator", "coroutine", "plain generator", "plain function", "list", "decorated"],
)
async def test_run_may_have_any_form(runner: AgentRunner) -> None:
    async with serving(runner) as host:
        outcome = await host.run("Ada")

    assert outcome.text == "Hello, Ada"
    assert outcome.completed is not None
    assert outcome.completed.finish_reason == "stop"


async def test_the_context_is_what_the_host_handed_over() -> None:
    seen: list[RunContext] = []

    @agent_runner
    async def looks(ctx: RunContext) -> None:
        seen.append(ctx)

    extra = context_pb2.RunContext(session_key="s1", agent_id="a1")
    extra.resources.models.add().model_id = "m1"
    async with serving(looks) as host:
        outcome = await host.run(
            "hi",
            config={"chat": 9007199254740993, "on": True},
            event_type="schedule.triggered",
            state={"conversation": {"count": 3}},
            context=extra,
            timeout_seconds=20,
        )

    [ctx] = seen
    assert (ctx.run_id, ctx.text, ctx.input.text) == (outcome.run_id, "hi", "hi")
    assert (ctx.event.type, ctx.agent_id) == ("schedule.triggered", "a1")
    assert ctx.config == {"chat": 9007199254740993, "on": True}
    assert ctx.conversation is not None
    assert ctx.conversation.conversation_id == "conversation"
    assert ctx.actor is not None
    assert ctx.actor.id == "user"
    assert ctx.subject is None
    assert ctx.state.get("conversation", "count") == 3
    assert ctx.state.get("actor", "count", "none") == "none"
    assert ctx.state.all("conversation") == {"count": 3}
    assert not ctx.state.truncated
    assert ctx.resources.models[0].model_id == "m1"
    assert 0 < (ctx.remaining_seconds() or 0) <= 20
    with pytest.raises(AttributeError):
        ctx.deadline = None  # type: ignore[misc]


async def test_a_run_without_a_deadline_says_so() -> None:
    seen: list[RunContext] = []

    @agent_runner
    async def looks(ctx: RunContext) -> None:
        seen.append(ctx)

    async with serving(looks) as host:
        await host.run("hi", timeout_seconds=None)

    assert (seen[0].deadline, seen[0].remaining_seconds()) == (None, None)


async def test_a_result_is_sent_before_the_next_one_is_made() -> None:
    goes_on = asyncio.Event()

    @agent_runner
    async def waits(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("first")
        await goes_on.wait()
        yield ctx.delta("second")

    async with serving(waits) as host:
        call = host.start("hi")
        texts = []
        async for result in call:
            texts.append(result.message_delta.text)
            goes_on.set()

    assert texts == ["first", "second", ""]


async def test_code_that_is_slow_and_never_awaits_still_has_each_result_sent_at_once() -> None:
    left: list[bool] = []

    @agent_runner
    async def hogs(ctx: RunContext) -> AsyncIterator[Result]:
        for number in range(5):
            yield ctx.delta(str(number))
            [run] = host.server._runs._runs
            left.append(not run.outbox._pieces)
            time.sleep(0.02)  # noqa: ASYNC251 - the mistake that must not delay what was said

    async with serving(hogs) as host:
        outcome = await host.run("hi")

    assert outcome.text == "01234"
    assert left == [True] * 5, "each result has left when the code goes on"


async def test_results_that_wait_share_a_frame() -> None:
    @agent_runner
    async def counts(ctx: RunContext) -> AsyncIterator[Result]:
        for number in range(20_000):
            yield ctx.delta(f"{number} ")

    async with serving(counts) as host:
        outcome = await host.run("hi")

    assert outcome.text == "".join(f"{number} " for number in range(20_000))
    assert outcome.frames < 2_000


async def test_large_results_leave_in_frames_of_the_contracts_size() -> None:
    @agent_runner
    async def is_wordy(ctx: RunContext) -> AsyncIterator[Result]:
        for _ in range(40):
            yield ctx.delta("x" * 500_000)

    async with serving(is_wordy) as host:
        outcome = await host.run("hi")  # which checks the size of each frame

    assert len(outcome.text) == 20_000_000
    assert outcome.frames >= 20_000_000 // FRAME_BYTES


async def test_code_that_never_awaits_lets_health_checks_and_other_runs_through() -> None:
    stop = threading.Event()

    @agent_runner
    async def floods(ctx: RunContext) -> AsyncIterator[Result]:
        while not stop.is_set():
            yield ctx.delta("x")

    async with serving(floods) as host:
        health = health_pb2_grpc.HealthStub(host.channel)
        reader = asyncio.create_task(host.run("hi"))
        for _ in range(5):
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=2)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        stop.set()
        await reader


async def test_code_that_yields_nothing_for_ever_can_still_be_cancelled() -> None:
    @agent_runner
    async def says_nothing(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("x")
        while True:
            yield ctx.delta("")

    async with serving(says_nothing) as host:
        call = host.start("hi")
        await anext(call)
        assert await asyncio.wait_for(call.interrupt(), 2)


async def test_blocking_code_in_a_plain_run_does_not_block_health_checks() -> None:
    release = threading.Event()

    @agent_runner
    def blocks(ctx: RunContext) -> Iterator[Result]:
        yield ctx.delta("x")
        release.wait(10)

    async with serving(blocks) as host:
        reader = asyncio.create_task(host.run("hi"))
        health = health_pb2_grpc.HealthStub(host.channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=2)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        release.set()
        assert (await reader).text == "x"


async def test_an_input_of_megabytes_comes_through() -> None:
    @agent_runner
    async def measures(ctx: RunContext) -> Result:
        return ctx.reply(str(len(ctx.text)))

    async with serving(measures) as host:
        outcome = await host.run("x" * 6_000_000)

    assert outcome.text == "6000000"


async def test_a_reader_that_is_slow_holds_the_author_back() -> None:
    made = 0

    @agent_runner
    async def floods(ctx: RunContext) -> AsyncIterator[Result]:
        nonlocal made
        for _ in range(400):
            made += 1
            yield ctx.delta("x" * 100_000)

    async with serving(floods) as host:
        results = aiter(host.start("hi"))
        await anext(results)
        for _ in range(200):
            before = made
            await asyncio.sleep(0.005)
            if made == before and made > 1:
                break
        assert made < 300
        async for _ in results:
            pass

    assert made == 400


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_an_exception_ends_the_run_with_its_text_and_logs_its_traceback(
    plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("so far")
        raise LookupError("no such ticket")

    def breaks_plainly(ctx: RunContext) -> Iterator[Result]:
        yield ctx.delta("so far")
        raise LookupError("no such ticket")

    async with serving(agent_runner(breaks_plainly if plain else breaks)) as host:
        outcome = await host.run("hi")

    assert outcome.streamed_text == "so far"
    assert outcome.failed is not None
    assert outcome.failed.code == "runner.error"
    assert outcome.failed.message == "LookupError: no such ticket"
    assert "Traceback" in caplog.text
    assert "test_run.py" in caplog.text
    assert outcome.run_id in caplog.text


async def test_a_run_failure_ends_the_run_with_its_own_code() -> None:
    @agent_runner
    async def gives_up(ctx: RunContext) -> None:
        raise RunFailure("acme.busy", "try later", retryable=True, details={"queue": "7"})

    async with serving(gives_up) as host:
        outcome = await host.run("hi")

    assert outcome.failed is not None
    assert (outcome.failed.code, outcome.failed.message) == ("acme.busy", "try later")
    assert outcome.failed.retryable
    assert dict(outcome.failed.details) == {"queue": "7"}


async def test_a_terminal_result_of_the_authors_is_the_last_one() -> None:
    @agent_runner
    async def ends(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.completed("length")

    async with serving(ends) as host:
        outcome = await host.run("hi")

    assert outcome.completed is not None
    assert outcome.completed.finish_reason == "length"
    assert len(outcome.results) == 1


async def test_what_follows_a_terminal_result_is_dropped_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = asyncio.Event()

    @agent_runner
    async def goes_on(ctx: RunContext) -> AsyncIterator[Result]:
        try:
            yield ctx.completed()
            yield ctx.failed("acme.late", "too late")
            raise AssertionError("is closed before this")
        finally:
            closed.set()

    async with serving(goes_on) as host:
        outcome = await host.run("hi")
        await asyncio.wait_for(closed.wait(), 2)

    assert outcome.completed is not None
    assert "after the run's terminal result" in caplog.text


async def test_code_after_the_terminal_result_still_runs() -> None:
    tidied = asyncio.Event()

    @agent_runner
    async def tidies(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.completed()
        await asyncio.sleep(0.01)
        tidied.set()

    async with serving(tidies) as host:
        await host.run("hi")
        await asyncio.wait_for(tidied.wait(), 2)


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("has no words")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("a\ud83d"), "runner.error", "ValueError: a\ufffd"),
        (_Unspeakable(), "runner.error", "_Unspeakable: (it has no readable text)"),
        (RunFailure("acme.\ud83d", "b\ud83d"), "acme.\ufffd", "b\ufffd"),
        (ExceptionGroup("some", [LookupError("one")]), "runner.error", "LookupError: one"),
        (ExceptionGroup("some", [RunFailure("acme.no", "no")]), "acme.no", "no"),
        (
            ValueError("x" * 3_000_000),
            "runner.error",
            f"ValueError: {'x' * 9_988}... (2990012 more characters)",
        ),
    ],
    ids=["surrogate", "unspeakable", "failure", "group", "failure in a group", "large"],
)
async def test_whatever_is_raised_ends_the_run_as_failed(
    error: Exception, code: str, message: str
) -> None:
    @agent_runner
    async def breaks(ctx: RunContext) -> None:
        raise error

    async with serving(breaks) as host:
        outcome = await host.run("hi")

    assert outcome.failed is not None
    assert (outcome.failed.code, outcome.failed.message) == (code, message)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("text", "run() yielded str: yield results"),
        (None, "run() yielded NoneType: yield results"),
        (RunResult(), "run() yielded a result without a payload"),
    ],
    ids=["text", "none", "empty"],
)
async def test_what_is_no_result_is_an_error_at_the_authors_yield(
    wrong: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    @agent_runner
    async def confuses(ctx: RunContext) -> AsyncIterator[Any]:
        yield wrong

    async with serving(confuses) as host:
        outcome = await host.run("hi")

    assert outcome.failed is not None
    assert message in outcome.failed.message
    assert "yield wrong" in caplog.text, "the traceback shows the line that is wrong"


async def test_a_delta_of_something_else_than_text_is_an_error_that_says_so() -> None:
    @agent_runner
    async def confuses(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta(7)  # type: ignore[arg-type]

    async with serving(confuses) as host:
        outcome = await host.run("hi")

    assert outcome.failed is not None
    assert outcome.failed.message == "TypeError: run() yielded a delta of int: it takes text"


async def test_plain_code_that_returns_a_coroutine_is_told_what_to_write() -> None:
    async def inner() -> None:
        raise AssertionError("is never awaited")

    coroutine = inner()

    @agent_runner
    def confuses(ctx: RunContext) -> Any:
        return coroutine

    async with serving(confuses) as host:
        outcome = await host.run("hi")
    coroutine.close()

    assert outcome.failed is not None
    assert "write `async def run`" in outcome.failed.message


async def test_a_result_over_the_limit_fails_the_run_naming_size_and_limit() -> None:
    @agent_runner
    async def is_huge(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.reply("x" * 1_100_000)

    async with serving(is_huge) as host:
        outcome = await host.run("hi")

    assert outcome.failed is not None
    assert outcome.failed.code == "runner.protocol"
    assert "message_completed result has 1100" in outcome.failed.message
    assert outcome.failed.details["limit"] == "1048576"


async def test_an_author_can_catch_what_is_wrong_with_a_result_and_go_on() -> None:
    @agent_runner
    async def recovers(ctx: RunContext) -> AsyncIterator[Result]:
        try:
            yield ctx.delta("x" * 1_100_000)
        except RunFailure:
            yield ctx.delta("shorter")

    async with serving(recovers) as host:
        outcome = await host.run("hi")

    assert outcome.text == "shorter"
    assert outcome.completed is not None


async def test_inline_bytes_do_not_count_towards_the_limit() -> None:
    @agent_runner
    async def attaches(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.artifact(b"x" * 1024 * 1024)

    async with serving(attaches) as host:
        outcome = await host.run("hi")

    assert outcome.completed is not None


async def test_halves_of_a_surrogate_pair_in_two_deltas_are_joined() -> None:
    @agent_runner
    async def cuts(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("a\ud83d")
        yield ctx.usage("m", output_tokens=1)
        yield ctx.delta("\ude00b")
        yield ctx.delta("lone \ud83d")
        yield ctx.delta("c")
        yield ctx.delta("\ud83d")

    async with serving(cuts) as host:
        outcome = await host.run("hi")

    assert outcome.streamed_text == "a😀blone \ufffdc\ufffd"


async def test_an_empty_delta_sends_nothing() -> None:
    @agent_runner
    async def says_little(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("")
        yield ctx.delta("a")
        yield ctx.reasoning("")

    async with serving(says_little) as host:
        outcome = await host.run("hi")

    assert [result.message_delta.text for result in outcome.results] == ["a", ""]


async def test_deltas_name_their_message_and_others_carry_their_time() -> None:
    @agent_runner
    async def writes_two(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("a", "m1")
        yield ctx.reasoning("b", "m2")
        yield ctx.delta_parts("c")
        yield ctx.log("d")

    async with serving(writes_two) as host:
        results = (await host.run("hi")).results

    assert [result.message_delta.message_id for result in results[:2]] == ["m1", "m2"]
    assert results[1].message_delta.reasoning_text == "b"
    assert [result.HasField("timestamp") for result in results] == [False, False, False, True, True]


async def test_context_variables_of_the_author_live_through_the_run() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    @agent_runner
    async def remembers(ctx: RunContext) -> AsyncIterator[Result]:
        token = variable.set("kept")
        yield ctx.delta("a")
        await asyncio.sleep(0)
        yield ctx.delta(variable.get())
        variable.reset(token)

    async with serving(remembers) as host:
        assert (await host.run("hi")).text == "akept"


async def test_many_runs_share_one_runner_object() -> None:
    async with serving(Greeter()) as host:
        outcomes = await asyncio.gather(*(host.run(f"number {n}") for n in range(64)))

    assert [outcome.text for outcome in outcomes] == [f"Hello, number {n}" for n in range(64)]


async def test_a_loggers_lines_name_the_run(caplog: pytest.LogCaptureFixture) -> None:
    @agent_runner
    async def logs(ctx: RunContext) -> None:
        ctx.logger.warning("something %s", "odd")

    with caplog.at_level(logging.WARNING):
        async with serving(logs) as host:
            outcome = await host.run("hi")

    assert f"run {outcome.run_id}: something odd" in caplog.text


def test_a_decorated_function_can_still_be_called() -> None:
    assert isinstance(answers_once, FunctionRunner)
    assert answers_once.name == "default"
    coroutine = answers_once(None)  # type: ignore[arg-type]
    assert asyncio.iscoroutine(coroutine)
    coroutine.close()


def test_a_decorator_can_name_the_runner() -> None:
    @agent_runner(name="second", handles_interrupt=True)
    async def second(ctx: RunContext) -> None:
        """Says nothing."""

    assert (second.name, second.handles_interrupt) == ("second", True)
    assert second.__doc__ == "Says nothing."


async def test_an_unknown_runner_is_not_found_and_the_known_ones_are_named() -> None:
    from grpc import StatusCode
    from grpc.aio import AioRpcError
    from runmesh.v1.run_pb2_grpc import RunServiceStub

    async with serving(Greeter()) as host:
        request = run_pb2.RunRequest(runner_id="plugin:acme/test/other")
        request.context.run_id = "run-1"
        with pytest.raises(AioRpcError) as caught:
            await RunServiceStub(host.channel).Run(request).read()

    assert caught.value.code() is StatusCode.NOT_FOUND
    assert "plugin:acme/test/default" in (caught.value.details() or "")


async def test_a_half_in_a_messages_id_is_replaced() -> None:
    @agent_runner
    async def names(ctx: RunContext) -> AsyncIterator[Result]:
        yield ctx.delta("a", message_id="m\ud83d")
        yield ctx.reasoning("b", message_id="m\ud83d")

    async with serving(names) as host:
        outcome = await host.run("hi")

    ids = {delta.message_id for delta in outcome.of_kind("message_delta")}
    assert (outcome.failed, ids) == (None, {"m\ufffd"})


async def test_what_a_later_host_hands_over_is_passed_on_as_it_is() -> None:
    later = context_pb2.RunContext()
    later.MergeFromString(b"\xfa\x07\x01x")  # field 127, which nobody knows yet
    later.resources.models.add(model_id="m", kind=99)
    part = later.input.parts.add()
    part.MergeFromString(b"\xfa\x07\x01x")
    seen: list[RunContext] = []

    @agent_runner
    async def passes_on(ctx: RunContext) -> Result:
        seen.append(ctx)
        return ctx.message(*ctx.input.parts)

    async with serving(passes_on) as host:
        outcome = await host.run(None, context=later)

    [ctx] = seen
    assert b"\xfa\x07\x01x" in ctx.proto.SerializeToString()
    assert ctx.resources.models[0].kind == 99
    assert [piece.SerializeToString() for piece in outcome.messages[0].parts] == [
        part.SerializeToString()
    ]
