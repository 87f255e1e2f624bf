"""What the echo says, and in which pieces."""

from collections.abc import AsyncIterator

import pytest
from echo import Echo

from runner_sdk.testing import StandInHost


@pytest.fixture
async def host() -> AsyncIterator[StandInHost]:
    async with StandInHost(Echo()) as host:
        yield host


@pytest.mark.parametrize("text", ["hello  there, 你好 👩‍💻\n", " ", "x" * 10_000])
async def test_it_says_the_text_in_pieces_and_whole(host: StandInHost, text: str) -> None:
    outcome = await host.run(text, runner="echo")
    assert outcome.streamed_text == outcome.text == text


async def test_it_is_silent_where_nothing_was_said(host: StandInHost) -> None:
    outcome = await host.run("", runner="echo")
    assert outcome.results[-1].run_completed.finish_reason == "silent"


async def test_it_names_an_event_without_text(host: StandInHost) -> None:
    outcome = await host.run(None, runner="echo", event_type="group.member_joined")
    assert outcome.text == "Event group.member_joined, without text."


async def test_it_repeats_and_fails_as_its_configuration_says(host: StandInHost) -> None:
    config = {"repeat": 3, "size": 2, "interval_seconds": 0.001, "message": False}
    outcome = await host.run("hi", runner="echo", config=config)
    assert outcome.streamed_text == "xxxxxx"
    assert not outcome.of_kind("message_completed")
    failed = await host.run("hi", runner="echo", config={"failure": "error"})
    assert failed.failed is not None
    assert failed.failed.code == "echo.asked"
    assert failed.failed.retryable
