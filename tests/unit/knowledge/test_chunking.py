# ruff: noqa: RUF001
"""Passages are the document's text, whole, and are cut where it reads."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_service.knowledge.chunking import Passage, cut
from host_service.knowledge.document import Part, ReadDocument
from host_service.knowledge.graphemes import may_cut

_PIECES = st.sampled_from(
    [
        *("word", "Wort", " ", " ", "\n", "\n\n", ". ", "! ", "你好", "世界。", "吗？", "，"),
        *("e\u0301", "👩\u200d👩\u200d👧", "👍🏽", "🇩🇪🇫🇷", "각", "क्षि", "\r\n", "\u3000", "x" * 40),
    ]
)
TEXTS = st.lists(_PIECES, max_size=120).map("".join)


@st.composite
def documents(draw: st.DrawFn) -> ReadDocument:
    text = draw(TEXTS)
    starts = sorted({0, *draw(st.lists(st.integers(0, len(text)), max_size=4))})
    return ReadDocument(
        text=text, parts=tuple(Part(position=at, headings=(str(at),)) for at in starts)
    )


def texts_of(text: str, *, characters: int, overlap: int = 0) -> list[str]:
    document = ReadDocument(text=text)
    return [
        text[each.position : each.position + each.length]
        for each in cut(document, characters=characters, overlap=overlap)
    ]


@given(documents(), st.integers(1, 60), st.data())
def test_passages_cover_the_document_and_stay_within_their_parts(
    document: ReadDocument, characters: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, characters - 1))
    passages = list(cut(document, characters=characters, overlap=overlap))
    covered: set[int] = set()
    ends = dict(
        zip(
            document.parts,
            [*(part.position for part in document.parts[1:]), len(document.text)],
            strict=True,
        )
    )
    before: Passage | None = None
    for each in passages:
        end = each.position + each.length
        assert 0 < each.length <= characters
        assert each.part.position <= each.position < end <= ends[each.part]
        text = document.text[each.position : end]
        assert text == text.strip()
        if before is not None and before.part == each.part:
            assert each.position > before.position
            assert end > before.position + before.length
            assert before.position + before.length - each.position <= overlap
        covered.update(range(each.position, end))
        before = each
    blank = {at for at, each in enumerate(document.text) if each.isspace()}
    assert covered | blank == set(range(len(document.text)))


@given(TEXTS, st.integers(24, 60))
def test_what_reads_as_one_character_is_never_cut(text: str, characters: int) -> None:
    document = ReadDocument(text=text)
    for each in cut(document, characters=characters, overlap=characters // 3):
        assert may_cut(text, each.position)
        assert may_cut(text, each.position + each.length)


@pytest.mark.parametrize("text", ["worde\u0301", "word\r\nword", "ab cd\r\nef"])
def test_no_passage_is_within_the_one_before(text: str) -> None:
    for characters in (2, 3, 4):
        for overlap in range(characters):
            passages = list(cut(ReadDocument(text=text), characters=characters, overlap=overlap))
            ends = [each.position + each.length for each in passages]
            assert ends == sorted(set(ends)), (characters, overlap)


def test_text_of_nothing_but_marks_is_cut_all_the_same() -> None:
    assert "".join(texts_of("\u0301" * 500, characters=100)) == "\u0301" * 500


def test_paragraphs_are_kept_whole_where_they_fit() -> None:
    text = "One one one.\n\nTwo two two. Two.\n\nThree."
    assert texts_of(text, characters=20) == ["One one one.", "Two two two. Two.", "Three."]


def test_sentences_are_kept_whole_where_paragraphs_are_too_long() -> None:
    text = "First sentence here. Second one follows! Third?"
    assert texts_of(text, characters=30) == ["First sentence here.", "Second one follows! Third?"]


def test_sentences_end_at_full_width_marks() -> None:
    text = "今天下午开会。请大家准时参加！地点在哪里？在三楼。"
    assert texts_of(text, characters=12) == [
        "今天下午开会。",
        "请大家准时参加！",
        "地点在哪里？在三楼。",
    ]


def test_numbers_and_names_are_no_ends_of_sentences() -> None:
    assert texts_of("Version 1.25.3 of a.b.c is out now", characters=20)[0] == "Version 1.25.3 of"


def test_next_passage_repeats_the_end_of_the_one_before() -> None:
    text = "Alpha beta gamma. Delta epsilon. Zeta eta theta. Iota kappa."
    passages = texts_of(text, characters=34, overlap=18)
    assert passages[0] == "Alpha beta gamma. Delta epsilon."
    assert passages[1].startswith("Delta epsilon.")


def test_marks_of_annex_29_are_not_cut() -> None:
    for joined in ("e\u0301", "👩\u200d👧", "👍🏽", "🇩🇪", "\r\n", "\u1100\u1161\u11a8"):
        assert not any(may_cut(joined, at) for at in range(1, len(joined))), joined
    flags = "🇩🇪🇫🇷🇮🇹"
    assert [may_cut(flags, at) for at in range(1, 6)] == [False, True, False, True, False]
    assert unicodedata.category("\u0301") == "Mn"
