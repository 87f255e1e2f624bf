"""Vectors and orders of documents out of their terms."""

import math

from hypothesis import given
from hypothesis import strategies as st

from host_service.rehearsal.vectors import DIMENSION, embed, rerank


def _nearness(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(embed(one), embed(other), strict=True))


def test_texts_with_words_in_common_are_nearer() -> None:
    asked = "what does the run token protect"
    assert _nearness(asked, "the run token protects the host") > _nearness(asked, "apples are red")
    assert _nearness("项目评审会议", "明天开评审会议") > _nearness("项目评审会议", "今天天气很好")


@given(st.text(max_size=100))
def test_a_vector_has_length_one_and_is_the_same_again(text: str) -> None:
    vector = embed(text)
    assert len(vector) == DIMENSION
    assert math.isclose(sum(each * each for each in vector), 1.0)
    assert vector == embed(text)


def test_documents_are_ordered_by_what_they_have_of_the_query() -> None:
    documents = ["apples are red", "a run has a token", "the run token protects the host"]
    places = rerank("what does the run token protect", documents)
    assert [place for place, _ in places] == [2, 1, 0]
    assert all(0 <= score <= 1 for _, score in places)


def test_documents_that_are_alike_keep_their_order() -> None:
    assert [place for place, _ in rerank("x", ["a", "b", "c"])] == [0, 1, 2]
    assert rerank("x", []) == []
