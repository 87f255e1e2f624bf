"""Which model answers, and what is said when none does."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import types_pb2
from runmesh.v1.types_pb2 import TokenUsage

from runner_sdk.errors import (
    HostUnavailable,
    InvalidArgument,
    NotImplementedByHost,
    RateLimited,
)
from runner_sdk.results import assistant_message
from runner_sdk.testing import StandInHost, tool_call
from tests.unit.local_agent.agents import (
    BOTH,
    CONFIG,
    FALLBACK,
    PRIMARY,
    agent,
    logged,
    questions,
    texts,
)


def _away(message: str) -> HostUnavailable:
    return HostUnavailable(method="StreamModel", reason="UNAVAILABLE", message=message)


def _too_long() -> InvalidArgument:
    return InvalidArgument(
        method="StreamModel",
        reason="INVALID_ARGUMENT",
        message="the messages do not fit",
        metadata={"model_error": "context_too_long"},
    )


def _answer(message: str | types_pb2.ChatMessage, **counts: int) -> api.InvokeModelResponse:
    if isinstance(message, str):
        message = assistant_message([message])
    return api.InvokeModelResponse(
        message=message,
        finish_reason="tool_calls" if message.tool_calls else "stop",
        usage=TokenUsage(model_id=PRIMARY, **counts) if counts else None,
    )


def _breaks_off(host: StandInHost, *deltas: api.ModelDelta) -> None:
    """Lets the primary model break off after some pieces, and every other one answer."""

    async def stream(request: api.StreamModelRequest) -> AsyncIterator[api.StreamModelResponse]:
        if request.model_id == PRIMARY:
            for delta in deltas:
                yield api.StreamModelResponse(delta=delta)
            raise _away("the connection was cut")
        message = assistant_message(["I say it all."])
        yield api.StreamModelResponse(delta=api.ModelDelta(text="I say it all."))
        yield api.StreamModelResponse(end=api.ModelEnd(finish_reason="stop", message=message))

    host.answer("StreamModel", stream)


async def test_answer_is_streamed_and_its_message_is_the_pieces_joined() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, "It is nine o'clock, 你好 😀")
        outcome = await host.run("what time is it?", config=CONFIG)

    assert len(outcome.of_kind("message_delta")) > 1
    assert outcome.streamed_text == outcome.text == "It is nine o'clock, 你好 😀"
    assert outcome.completed is not None
    assert outcome.completed.finish_reason == "stop"
    assert outcome.messages[0].metadata["model"] == PRIMARY


async def test_what_a_model_has_not_streamed_is_said_at_the_end() -> None:
    message = assistant_message(["All at once."])

    async def stream(_: api.StreamModelRequest) -> AsyncIterator[api.StreamModelResponse]:
        yield api.StreamModelResponse(delta=api.ModelDelta(text="All "))
        yield api.StreamModelResponse(end=api.ModelEnd(finish_reason="stop", message=message))

    async with agent() as host:
        host.add_model(PRIMARY)
        host.answer("StreamModel", stream)
        outcome = await host.run("hello", config=CONFIG)

    assert outcome.streamed_text == outcome.text == "All at once."


async def test_reasoning_is_shown_apart() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, assistant_message(["Four."], reasoning="two and two"))
        outcome = await host.run("2+2?", config=CONFIG)

    deltas = outcome.of_kind("message_delta")
    assert "".join(delta.reasoning_text for delta in deltas) == "two and two"
    assert outcome.streamed_text == outcome.text == "Four."
    assert outcome.messages[0].reasoning_text == "two and two"


@pytest.mark.parametrize("piece", ["text", "reasoning"])
async def test_fallback_is_not_asked_once_the_primary_has_said_something(piece: str) -> None:
    delta = api.ModelDelta(text="It is ") if piece == "text" else api.ModelDelta(reasoning_text="h")
    async with agent() as host:
        host.add_model(PRIMARY)
        host.add_model(FALLBACK)
        _breaks_off(host, delta)
        outcome = await host.run("hello", config=BOTH)

    assert outcome.streamed_text == delta.text
    assert not questions(host, FALLBACK)
    assert outcome.failed is not None
    assert outcome.failed.code == "local-agent.model_failed"
    assert "primary broke off" in outcome.failed.message
    assert "the connection was cut" in outcome.failed.message


async def test_fallback_is_asked_when_the_primary_sends_nothing_but_empty_pieces() -> None:
    async with agent() as host:
        host.add_model(PRIMARY)
        host.add_model(FALLBACK)
        _breaks_off(host, api.ModelDelta())
        outcome = await host.run("hello", config=BOTH)

    assert outcome.text == "I say it all."
    assert outcome.messages[0].metadata == {"model": FALLBACK, "fallback_for": PRIMARY}
    assert any("primary failed" in line for line in logged(outcome))


async def test_fallback_that_answers_is_kept_for_the_rest_of_the_run() -> None:
    async with agent() as host:
        host.add_tool("clock", "nine")
        host.add_model(PRIMARY, _away("away"))
        host.add_model(FALLBACK, tool_call("clock"), "It is nine.")
        outcome = await host.run("time?", config=BOTH)

    assert outcome.text == "It is nine."
    assert len(questions(host, PRIMARY)) == 1
    assert len(questions(host, FALLBACK)) == 2


async def test_model_that_the_run_was_not_given_is_skipped_with_a_warning() -> None:
    async with agent() as host:
        host.add_model(FALLBACK, "Here I am.")
        outcome = await host.run("hello", config=BOTH)

    assert outcome.text == "Here I am."
    assert any("primary is not there" in line for line in logged(outcome))


async def test_model_of_another_kind_is_never_asked() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, kind="embedding")
        outcome = await host.run("hello", config=CONFIG)

    assert outcome.failed is not None
    assert outcome.failed.code == "local-agent.no_model"
    assert PRIMARY in outcome.failed.message


@pytest.mark.parametrize("model", [None, "", "__none__", {"primary": "__none", "fallbacks": []}])
async def test_run_without_a_model_says_what_to_do(model: Any) -> None:
    async with agent() as host:
        config: Mapping[str, Any] = {} if model is None else {"model": model}
        outcome = await host.run("hello", config=config)

    assert outcome.failed is not None
    assert outcome.failed.code == "local-agent.no_model"
    assert "field `model`" in outcome.failed.message


async def test_run_whose_models_all_fail_names_them_and_the_last_reason() -> None:
    limited = RateLimited(
        method="StreamModel", reason="RATE_LIMITED", message="second", retry_after_seconds=7
    )
    async with agent() as host:
        host.add_model(PRIMARY, _away("first"))
        host.add_model(FALLBACK, limited)
        outcome = await host.run("hello", config=BOTH)

    assert outcome.failed is not None
    assert outcome.failed.code == "local-agent.model_failed"
    assert outcome.failed.retryable
    assert outcome.failed.details["reason"] == "RATE_LIMITED"
    assert outcome.failed.details["models"] == "primary, fallback"
    assert float(outcome.failed.details["retry_after_seconds"]) >= 7
    assert "primary: first" in outcome.failed.message
    assert "fallback: second" in outcome.failed.message


async def test_question_that_is_too_long_is_asked_once_more_with_half_the_room() -> None:
    async with agent() as host:
        host.add_history(*(("user", "word " * 200) for _ in range(20)))
        host.add_model(PRIMARY, _too_long(), "Short.", context_window_tokens=8000)
        outcome = await host.run("hello", config=CONFIG)

    assert outcome.text == "Short."
    first, second = questions(host)
    assert len(second.messages) < len(first.messages)
    assert texts(second)[-1] == "hello"


async def test_question_that_is_too_long_at_half_the_room_goes_to_the_fallback() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, _too_long())
        host.add_model(FALLBACK, "I hold more.")
        outcome = await host.run("hello", config=BOTH)

    assert outcome.text == "I hold more."
    assert len(questions(host)) == 2


async def test_usage_is_summed_over_rounds_and_named_by_model() -> None:
    async with agent() as host:
        host.add_tool("clock", "nine")
        host.add_model(
            PRIMARY,
            _answer(tool_call("clock"), input_tokens=10, output_tokens=3, reasoning_tokens=1),
            _answer("Nine.", input_tokens=20, output_tokens=4, cache_read_tokens=9),
        )
        outcome = await host.run("time?", config=CONFIG)

    assert outcome.completed is not None
    # What is not known of one round is not known of the whole.
    assert list(outcome.completed.usage) == [
        TokenUsage(model_id=PRIMARY, input_tokens=30, output_tokens=7)
    ]
    assert outcome.of_kind("usage_reported")[0].usage[0].input_tokens == 10


async def test_usage_that_is_not_told_is_unknown_and_not_zero() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, "Hello.")
        outcome = await host.run("hello", config=CONFIG)

    assert outcome.completed is not None
    assert list(outcome.completed.usage) == [TokenUsage(model_id=PRIMARY)]


async def test_arguments_of_the_configuration_reach_the_model_as_they_are() -> None:
    config = {**CONFIG, "temperature": 0.2, "extra_args": {"seed": 9007199254740993}}
    async with agent() as host:
        host.add_model(PRIMARY, "Hello.")
        await host.run("hello", config=config)

    assert questions(host)[0].extra_args_json == '{"seed":9007199254740993,"temperature":0.2}'


async def test_model_that_answers_nothing_fails_the_run_and_is_named() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, "\n ")
        outcome = await host.run("hello", config=CONFIG)

    assert outcome.failed is not None
    assert outcome.failed.code == "runner.empty_output"
    assert PRIMARY in outcome.failed.message
    assert outcome.streamed_text == ""


async def test_instructions_are_the_bound_prompt_and_the_workspaces_demands() -> None:
    async with agent() as host:
        host.set_prompt(
            "Be brief.", ("user", "hi"), ("assistant", "Hi."), fragments={"workspace": "No names."}
        )
        host.add_model(PRIMARY, "Hello.")
        await host.run("hello", config=CONFIG)

    assert texts(questions(host)[0]) == ["Be brief.\n\nNo names.", "hi", "Hi.", "hello"]


async def test_instructions_of_the_configuration_stand_in_where_the_host_has_none() -> None:
    config = {**CONFIG, "prompt": [{"role": "system", "content": "Be kind."}]}
    async with agent() as host:
        host.add_model(PRIMARY, "Hello.")
        await host.run("hello", config=config)

    assert texts(questions(host)[0]) == ["Be kind.", "hello"]


@pytest.mark.parametrize("method", ["GetPrompt", "PageHistory"])
async def test_host_that_does_not_give_what_is_needed_fails_the_run_for_now(method: str) -> None:
    async with agent() as host:
        host.add_history("before")
        host.answer(
            method,
            HostUnavailable(method=method, reason="UNAVAILABLE", message="the store is away"),
        )
        host.add_model(PRIMARY, "Hello.")
        outcome = await host.run("hello", config=CONFIG)

    assert outcome.failed is not None
    assert outcome.failed.code == "local-agent.host_failed"
    assert outcome.failed.retryable
    assert f"{method}: the store is away" in outcome.failed.message
    assert not questions(host)


async def test_host_without_prompts_leaves_those_of_the_configuration() -> None:
    config = {**CONFIG, "prompt": [{"role": "system", "content": "Be kind."}]}
    async with agent() as host:
        refusal = NotImplementedByHost(
            method="GetPrompt", reason="NOT_IMPLEMENTED", message="not in this host"
        )
        host.answer("GetPrompt", refusal)
        host.add_model(PRIMARY, "Hello.")
        await host.run("hello", config=config)

    assert texts(questions(host)[0])[0] == "Be kind."
