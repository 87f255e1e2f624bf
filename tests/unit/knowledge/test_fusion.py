"""Several rankings become one, in which what is first anywhere is among the first."""

import pytest

from host_service.knowledge.fusion import fuse


def fused(*rankings: str, weight: float = 0.5) -> list[tuple[str, float]]:
    return fuse([(ranking, lambda _: weight) for ranking in rankings], key=lambda item: item)


def test_what_is_first_in_all_has_the_score_one() -> None:
    item, score = fused("ab", "ac")[0]
    assert item == "a"
    assert score == pytest.approx(1.0)


def test_first_two_of_each_ranking_are_among_the_first_five() -> None:
    noise = "".join(chr(ord("A") + i) for i in range(20))
    first_five = [item for item, _ in fused("ab" + noise, "cd" + noise[::-1])][:5]
    assert set("abcd") <= set(first_five)


def test_what_is_in_both_is_before_what_is_as_high_in_one() -> None:
    assert fused("xay", "zac")[0][0] == "a"


def test_ties_keep_the_order_of_the_rankings() -> None:
    assert [item for item, _ in fused("ab", "cd")] == ["a", "c", "b", "d"]


def test_weights_are_the_items_own() -> None:
    ranking = fuse([("ab", lambda item: 1.0 if item == "b" else 0.5)], key=lambda item: item)
    assert [item for item, _ in ranking] == ["b", "a"]


def test_nothing_is_nothing() -> None:
    assert fused("", "") == []
