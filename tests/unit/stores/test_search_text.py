"""Folding, terms and queries, as pure functions."""

# ruff: noqa: RUF001 - letters that look like others are what this is about

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores import search_text
from stores.search_text import QUERY_CHARACTERS, TEXT_CHARACTERS, Query, counted_terms, fold, terms

# Every character that a text may hold, each on a line of its own; of those for private use, and of
# the rarer ideographs, which are all alike, only some.
CHARACTERS = "\n".join(
    chr(code)
    for codes in (
        range(1, 0xD800),
        range(0xE000, 0x20100),
        range(0x2F700, 0x2FB00),
        range(0xE0000, 0xE0200),
    )
    for code in codes
)


FOLDS = [
    ("Hello", "hello"),
    ("STRASSE", fold("straße")),
    ("ＡＢＣ　１２３", "abc 123"),
    ("ｶﾞｷﾞ", "ガギ"),
    ("Crème Brûlée", "creme brulee"),
    ("Đường", "duong"),
    ("Łódź", "lodz"),
    ("İI", "ii"),
    ("ΣΊΣΥΦΟΣ", "σισυφοσ"),
    ("مُحَمَّد", "محمد"),
    ("👍🏽", "👍"),
    ("a\u200db\u00adc\ufeff", "abc"),
    ("it’s “so” – so", 'it\'s "so" - so'),
    ("한국", "한국"),
    ("ก้าว", "ก้าว"),
    ("हिन्दी", "हिन्दी"),
]


@pytest.mark.parametrize(("text", "folded"), FOLDS)
def test_text_is_folded(text: str, folded: str) -> None:
    assert fold(text) == folded


def test_folding_twice_is_folding_once() -> None:
    folded = fold(CHARACTERS)
    assert fold(folded) == folded


def test_every_character_that_is_seen_is_of_one_kind() -> None:
    kinds = (search_text._WORD, search_text._PAIRS, search_text._MARKS)
    seen = "".join(fold(CHARACTERS).split())
    assert sum(len(run) for kind in kinds for run in kind.findall(seen)) == len(seen)
    for kind in kinds:
        seen = kind.sub("", seen)
    assert seen == ""


TERMS = [
    ("", set()),
    ("Two words, two", {"two", "words", ","}),
    ("开会了", {"开", "会", "了", "开会", "会了"}),
    ("a开b", {"a", "开", "b"}),
    ("snake_case", {"snake", "_", "case"}),
    ("getUserName", {"getusername", "get", "user", "name", "getuser", "username"}),
    ("v12", {"v12", "v", "12"}),
    ("a->b", {"a", "b", "-", ">", "->"}),
    ("e1f2a3b4c5", {"e1f2a3b4c5"}),
    ("👍👎", {"👍", "👎", "👍👎"}),
]


@pytest.mark.parametrize(("text", "expected"), TERMS)
def test_text_has_its_terms(text: str, expected: set[str]) -> None:
    assert terms(text) == expected


def test_terms_are_counted() -> None:
    counted = counted_terms("Two words, two. 会会会 getName")
    assert (counted["two"], counted["words"], counted["会"], counted["会会"]) == (2, 1, 3, 2)
    assert counted["name"] == counted["getname"] == 1


@given(st.text())
def test_counted_terms_are_the_terms(text: str) -> None:
    assert counted_terms(text).keys() == terms(text)


@given(st.text(), st.text())
def test_what_matches_has_the_terms(text: str, query: str) -> None:
    parsed = Query.parse(query)
    if parsed.matches(text):
        assert parsed.terms <= terms(text)


@given(st.text(min_size=1), st.text(), st.text())
def test_words_match_where_they_stand_alone(word: str, before: str, after: str) -> None:
    parsed = Query.parse(word)
    assert parsed.matches(f"{before} {word} {after}") is bool(parsed.words)


@given(st.text(), st.text())
def test_case_does_not_matter(text: str, query: str) -> None:
    parsed = Query.parse(fold(query))
    assert parsed == Query.parse(query)
    assert parsed.matches(fold(text)) <= parsed.matches(text)


def test_text_counts_up_to_its_bound() -> None:
    text = "x " * (TEXT_CHARACTERS // 2) + "end"
    assert terms(text) == {"x"}
    assert not Query.parse("end").matches(text)
    assert Query.parse("a" * QUERY_CHARACTERS + "bc").words == ("a" * QUERY_CHARACTERS,)


def test_query_without_words_matches_nothing() -> None:
    for query in ("", " ", "\u200d", "\u0301"):
        assert Query.parse(query).words == ()
        assert not Query.parse(query).matches("")
