"""Tests of `host_service.runs.choice`: how a run came to its agent, kept and read again."""

import pytest

from host_service.agents.resolution import Match, Rank
from host_service.runs.choice import (
    ByBinding,
    ByCaller,
    ByReplay,
    Choice,
    choice_text,
    lost_by,
    read_choice,
)

WINNER = Match("room", Rank("conversation_id", "message.received", 1))


@pytest.mark.parametrize(
    "choice",
    [
        ByBinding(WINNER),
        ByBinding(
            WINNER, (Match("世界", Rank("", "message.*", 0)), Match("b", Rank("", "a.b", 2)))
        ),
        ByCaller(),
        ByReplay(side_effects=True, runner_address="unix:/tmp/x"),
        ByReplay(side_effects=False),
    ],
)
def test_choice_comes_back_as_it_was_kept(choice: Choice) -> None:
    assert read_choice(choice_text(choice)) == choice


@pytest.mark.parametrize("text", [None, "", "{}", '{"by": "something later"}'])
def test_what_was_not_kept_is_not_known(text: str | None) -> None:
    assert read_choice(text) is None


@pytest.mark.parametrize(
    ("beaten", "by"),
    [
        (Rank("", "message.received", 5), "scope"),
        (Rank("conversation_id", "message.*", 5), "pattern"),
        (Rank("conversation_id", "message.received", 0), "filters"),
    ],
)
def test_match_lost_by_the_first_that_tells_it_from_the_winner(beaten: Rank, by: str) -> None:
    assert lost_by(beaten, WINNER.rank) == by
