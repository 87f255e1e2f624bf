"""Searching finds on both engines exactly what a plain reading of its rules finds."""

# ruff: noqa: RUF001 - letters that look like others are what this is about

import itertools
import re
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stores import Stores
from stores.records import TranscriptItem
from tests.conformance.stores.samples import accepted, an_item, told

# What each character of the alphabet is once folded; those with nothing to fold are themselves.
FOLDED = dict(zip("ABéÉＡｂДﾊ１\u3000’", "abeeabдハ1 '", strict=True))
FOLDED |= {"ß": "ss", "\u200d": "", "\U0001f3fd": "", "\u0301": ""}
WORDS = "abABéÉßＡｂдД12１"
PAIRED = "评审会はハﾊ한국กาकि👍👩"
MARKS = "'’\"-_+.%*(/"
UNSEEN = "\u200d\U0001f3fd\u0301"
ALPHABET = WORDS * 3 + PAIRED * 2 + MARKS + UNSEEN + " \u3000\n"

texts = st.text(alphabet=ALPHABET, max_size=24)
queries = st.text(alphabet=ALPHABET, min_size=1, max_size=8)


def plain(text: str) -> str:
    return "".join(FOLDED.get(character, character) for character in text)


def words_of(text: str) -> list[str]:
    """Return the runs of letters and digits of scripts that have words, as they are written."""
    return re.findall(f"[{WORDS}es]+", re.sub(f"[{UNSEEN}]", "", text))


def parts_of(word: str) -> list[str]:
    """Cut a word where a digit meets a letter, or where a capital begins something."""
    wide = str.maketrans("ÉéＡｂ１", "EeAb1")
    letters = word.translate(wide)
    cuts = [0]
    for place in range(1, len(letters)):
        before, here, after = letters[place - 1], letters[place], letters[place + 1 : place + 2]
        begins = here in "ABE" and (before in "abe" or (before in "ABE" and after in [*"abe"]))
        if begins or before.isdigit() is not here.isdigit():
            cuts.append(place)
    return [word[a:b] for a, b in itertools.pairwise([*cuts, len(letters)])]


def units_of(text: str) -> Iterator[str]:
    """Yield the words of a text, and their parts and what these make side by side."""
    for word in words_of(text):
        yield plain(word)
        parts = [plain(part) for part in parts_of(word)]
        if len(parts) <= 8:
            for begin, end in itertools.combinations(range(len(parts) + 1), 2):
                yield "".join(parts[begin:end])


def answers(text: str, query: str) -> bool:
    """Return whether a text has all words of a query, each as it stands."""
    words = [word.strip("'\".(*"[:4]) or word for word in plain(query).split()]
    units = set(units_of(text))
    return bool(words) and all(
        word in plain(text) and units.issuperset(words_of(word)) for word in words
    )


_numbers = itertools.count()


@given(texts=st.lists(texts, min_size=1, max_size=8), queries=st.lists(queries, max_size=6))
@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_search_finds_what_the_rules_say(
    stores: Stores, texts: list[str], queries: list[str]
) -> None:
    talk = f"talk-{next(_numbers)}"
    await accepted(stores, f"run-{talk}")
    items = [
        an_item(f"{talk}-{number}", conversation_key=talk, workspace=talk, text=text)
        for number, text in enumerate(texts, 1)
    ]
    await told(stores, f"run-{talk}", *items)
    # Pieces of the texts themselves as well: they are found more often than not.
    for query in (*queries, *(text[1:6] for text in texts)):
        expected = [item.transcript_id for item in reversed(items) if answers(_text(item), query)]
        page = await stores.transcript.search(talk, query)
        wide = await stores.transcript.search_workspace(talk, query)
        assert [item.transcript_id for item in page.items] == expected, query
        assert wide.items == page.items


def _text(item: TranscriptItem) -> str:
    return item.text or ""


@given(text=st.text(), query=st.text())
@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_any_text_is_found_by_itself_and_breaks_nothing(
    stores: Stores, text: str, query: str
) -> None:
    talk = f"any-{next(_numbers)}"
    clean = text.replace("\0", "")
    await accepted(stores, f"run-{talk}")
    await told(stores, f"run-{talk}", an_item(f"{talk}-1", conversation_key=talk, text=clean))
    by_itself = await stores.transcript.search(talk, clean)
    assert len(by_itself.items) <= 1
    for word in clean.split():
        if word.isalnum():
            assert len((await stores.transcript.search(talk, word)).items) == 1, word
    await stores.transcript.search(talk, query.replace("\0", ""))
