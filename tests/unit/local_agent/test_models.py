"""Which model answers, and what is said when none does."""

from runner_sdk.errors import HostUnavailable
from tests.unit.local_agent.agents import BOTH, CONFIG, FALLBACK, PRIMARY, agent


def _away(message: str) -> HostUnavailable:
    return HostUnavailable(method="StreamModel", reason="UNAVAILABLE", message=message)


async def test_answer_is_streamed_and_its_message_is_the_pieces_joined() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, "It is nine o'clock, 你好 😀")
        outcome = await host.run("what time is it?", config=CONFIG)

    assert len(outcome.of_kind("message_delta")) > 1
    assert outcome.streamed_text == outcome.text == "It is nine o'clock, 你好 😀"
    assert outcome.completed is not None
    assert outcome.completed.finish_reason == "stop"
    assert outcome.messages[0].metadata["model"] == PRIMARY


async def test_fallback_answers_when_the_primary_fails_before_it_says_anything() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, _away("the provider is away"))
        host.add_model(FALLBACK, "Here I am.")
        outcome = await host.run("hello", config=BOTH)

    assert outcome.text == "Here I am."
    assert outcome.messages[0].metadata["model"] == FALLBACK


async def test_run_without_a_model_says_what_to_do() -> None:
    async with agent() as host:
        outcome = await host.run("hello")

    assert outcome.failed is not None
    assert outcome.failed.code == "local-agent.no_model"
    assert "field `model`" in outcome.failed.message


async def test_run_whose_models_all_fail_names_them_and_the_last_reason() -> None:
    async with agent() as host:
        host.add_model(PRIMARY, _away("first"))
        host.add_model(FALLBACK, _away("second"))
        outcome = await host.run("hello", config=BOTH)

    assert outcome.failed is not None
    assert outcome.failed.code == "local-agent.model_failed"
    assert outcome.failed.retryable
    assert outcome.failed.details["reason"] == "UNAVAILABLE"
    assert outcome.failed.details["models"] == "primary, fallback"
    assert "primary: first" in outcome.failed.message
    assert "fallback: second" in outcome.failed.message
