"""How much fits, and how texts and turns are cut to fit."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_agent.budget import UNKNOWN_WINDOW, Budget, cap_for, cut_text
from local_agent.fitting import fit_turn, newest_that_fit
from local_agent.settings import Settings
from local_agent.tokens import messages_tokens, text_tokens
from runmesh.v1 import types_pb2
from runmesh.v1.context_pb2 import ModelResource
from runmesh.v1.types_pb2 import ChatMessage, ToolCall

from runner_sdk.messages import tool_message, user_message

# What a cut text has at least is the note that it was cut.
_NOTE = 24
_sizes = st.lists(st.integers(0, 5000), max_size=30)


def budget(window: int | None, *, ratio: float = 1.0, **configured: Any) -> Budget:
    model = ModelResource(model_id="model", context_window_tokens=window)
    return Budget.of(model, Settings(**{"extra_args": {}, **configured}), ratio=ratio)


def test_model_of_an_unknown_window_is_taken_to_be_small() -> None:
    assert budget(None) == budget(0) == budget(UNKNOWN_WINDOW)


@pytest.mark.parametrize(
    ("extra_args", "reply"),
    [({}, 4096), ({"max_tokens": 500}, 500), ({"max_completion_tokens": 10**6}, 50_000)],
)
def test_answer_is_left_what_it_may_have(extra_args: Mapping[str, Any], reply: int) -> None:
    found = budget(100_000, extra_args=extra_args)

    assert found.reply == reply
    assert found.prompt + found.reply <= found.window


def test_history_has_its_share_or_so_many_tokens() -> None:
    assert budget(100_000, history_share=0.25).history == budget(100_000).history // 2
    assert budget(100_000, history_tokens=3000).history == 3000
    assert budget(1000, history_tokens=3000).history == budget(1000).prompt


def test_model_that_counts_more_holds_less() -> None:
    assert budget(100_000, ratio=2.0).prompt == pytest.approx(budget(100_000).prompt / 2, abs=1)


@settings(deadline=None, max_examples=50)
@given(text=st.text(max_size=3000), tokens=st.integers(_NOTE, 600))
def test_cut_text_fits_and_what_fits_is_not_cut(text: str, tokens: int) -> None:
    cut = cut_text(text, tokens)

    assert text_tokens(cut) <= tokens
    assert (cut == text) == (text_tokens(text) <= tokens)


@settings(deadline=None, max_examples=50)
@given(sizes=_sizes, total=st.integers(0, 20_000))
def test_cap_fills_the_total_and_never_more(sizes: list[int], total: int) -> None:
    cap = cap_for(sizes, total)
    capped = sum(min(size, cap) for size in sizes)

    assert capped <= total
    assert capped == sum(sizes) or total - capped < len(sizes)


@settings(deadline=None, max_examples=50)
@given(sizes=_sizes, tokens=st.integers(0, 20_000))
def test_newest_that_fit_are_as_many_as_fit(sizes: list[int], tokens: int) -> None:
    first = newest_that_fit(sizes, tokens)

    assert sum(sizes[first:]) <= tokens
    assert first == 0 or sum(sizes[first - 1 :]) > tokens


@settings(deadline=None, max_examples=50)
@given(
    question=st.integers(0, 4000),
    results=st.lists(st.integers(0, 4000), max_size=8),
    tokens=st.integers(80, 3000),
)
def test_turn_fits_and_every_call_in_it_has_its_result(
    question: int, results: list[int], tokens: int
) -> None:
    turn = [user_message("why " * question)]
    for number, size in enumerate(results):
        call = ToolCall(id=f"call-{number}", name="lookup", arguments_json="{}")
        turn.append(ChatMessage(role=types_pb2.CHAT_ROLE_ASSISTANT, tool_calls=[call]))
        turn.append(tool_message(call.id, "row " * size, name="lookup"))
    fitted = fit_turn(turn, tokens)

    assert messages_tokens(fitted) <= tokens
    assert fitted[0].role == types_pb2.CHAT_ROLE_USER
    called = [call.id for each in fitted for call in each.tool_calls]
    assert called == [each.tool_call_id for each in fitted if each.tool_call_id]
    if messages_tokens(turn) <= tokens:
        assert fitted == turn
