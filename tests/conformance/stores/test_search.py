# ruff: noqa: RUF001 - letters that look like others are what this is about
"""What is found in a transcript, and that both engines find the same."""

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from stores import Stores, open_stores
from stores.errors import ConstraintViolated, InvalidRecord
from stores.records import TranscriptItem
from stores.sql import search
from tests.conformance.stores.samples import accepted, an_item, told


async def fill(stores: Stores, *texts: str | None, conversation_key: str = "talk") -> None:
    """Store texts as items of a conversation, in order, with a number as id."""
    run_id = f"run-{conversation_key}"
    await accepted(stores, run_id, event=None)
    items = [
        an_item(f"{conversation_key}-{number}", conversation_key=conversation_key, text=text)
        for number, text in enumerate(texts, 1)
    ]
    await told(stores, run_id, *items)


async def found(stores: Stores, query: str, conversation_key: str = "talk") -> list[int]:
    """Return the positions of all that a query finds."""
    page = await stores.transcript.search(conversation_key, query, limit=100)
    assert page.next_cursor is None
    return positions(page.items)


def positions(items: Sequence[TranscriptItem]) -> list[int]:
    return [item.position for item in items]


async def test_chinese_and_code_inside_a_sentence_are_found(stores: Stores) -> None:
    await fill(stores, "明天下午三点开项目评审会议", "重跑gen-itgc后", "明天下午三点开会")
    assert await found(stores, "评审") == [1]
    assert await found(stores, "itgc") == [2]
    assert await found(stores, "明天 三点") == [3, 1]
    assert await found(stores, "审") == [1]
    assert await found(stores, "审评") == []


# Text, queries that find it, queries that do not.
LANGUAGES: list[tuple[str, list[str], list[str]]] = [
    ("The quick brown fox", ["fox", "QUICK fox", "fox the"], ["fo", "ox", "foxes", "quick cat"]),
    (
        "明天下午三点开项目评审会议",
        ["评审会议", "会议 明天", "项"],
        ["评会"],
    ),
    ("来週の会議はオンラインです", ["会議", "オンライン", "は", "ｵﾝﾗｲﾝ"], ["おんらいん", "会義"]),
    ("ｶﾞｲﾄﾞを読む", ["ガイド", "読"], ["カイト", "カイド"]),
    ("내일 회의를 시작합니다", ["회의", "회의를", "시작", "내일 시작"], ["회식"]),
    ("พรุ่งนี้มีประชุมทีม", ["ประชุม", "ทีม", "พรุ่งนี้ ทีม"], ["ประชม", "ทิม"]),
    ("कल बैठक होगी", ["बैठक", "कल होगी"], ["बाठक"]),
    ("اِجتِماع غداً", ["اجتماع", "غدا"], ["جتماع"]),
    ("שָׁלוֹם עולם", ["שלום", "עולם"], ["לום"]),
    ("Việt Nam, đường phố", ["viet", "việt nam", "duong pho"], ["vie"]),
    ("Crème BRÛLÉE à la carte", ["creme", "brûlée", "CRÈME brulee", "cre\u0300me"], ["crem"]),
    ("Straße in Łódź, Ærøskøbing", ["STRASSE", "straße", "lodz", "aeroskobing"], ["stra"]),
    ("İSTANBUL'da ΣΊΣΥΦΟΣ", ["istanbul", "σίσυφος", "ΣΙΣΥΦΟΣ"], ["stanbul"]),
    ("Ёлка и ПРИВЕТ", ["елка", "привет", "Ёлка"], ["прив"]),
    ("ＦＵＬＬ　ｗｉｄｔｈ １２３ ①", ["full", "width 123", "１２３", "1"], ["12", "2"]),
    (
        "done 👍🏽 by 👩🏽‍💻 and 👨‍👩‍👧",
        ["👍", "👍🏽", "👩‍💻", "👨‍👩‍👧", "👧", "💻 done"],
        ["👦", "👧👩"],
    ),
    ("❤️ and 🇩🇪", ["❤", "❤️", "🇩🇪"], ["🇫🇷", "🇪🇩"]),
    (
        "call getUserName() or HTTPServer2 in parse_json_file",
        [
            *("getUserName", "username", "GETUSERNAME", "name", "getUserName()"),
            *("http", "server", "httpserver2", "server2", "2", "parse_json", "json", "_"),
        ],
        ["user_name", "sername", "parse-json", "jso"],
    ),
    (
        "open /usr/local/bin/python3 at https://example.com/a?b=1#c",
        [
            *("/usr/local", "local/bin", "python", "python3"),
            *("https://example.com/a?b=1#c", "b=1", "example.com", "EXAMPLE"),
        ],
        ["usr/bin", "exampl", "com.example", "a?c"],
    ),
    ("C++ and C# at 50% for $5, v1.2.3", ["c++", "C#", "50%", "%", "$5", "1.2.3", "v1"], ["c+++"]),
    (
        'say "hello, world!" (it\'s)',
        ["hello", "'hello'", "hello!", "(world)", "it’s", '"'],
        ["its"],
    ),
    ("zero\u200bwidth soft\u00adhyphen", ["zerowidth", "softhyphen", "soft\u00adhyphen"], ["zero"]),
    ("x" * 100 + " " + "很" * 5, ["x" * 100, "很很", "很很很很很"], ["x" * 99, "x" * 64, "很" * 6]),
    ("٣ apples, ² ½", ["٣", "2", "1⁄2"], ["3"]),
    ("𠮷野家 𝐛𝐨𝐥𝐝 ﬁne", ["𠮷野", "bold", "fine", "𠮷"], ["野𠮷", "吉"]),
]


@pytest.mark.parametrize(("text", "queries", "others"), LANGUAGES)
async def test_text_is_found_by_what_is_in_it(
    stores: Stores, text: str, queries: list[str], others: list[str]
) -> None:
    await fill(stores, "something else", text)
    assert [query for query in queries if await found(stores, query) != [2]] == []
    assert [query for query in others if await found(stores, query)] == []


# They are looked for as they stand: each finds the item that has it, and no other.
SYNTAX = [
    "*",
    "%",
    "_",
    "'",
    '"',
    '"" OR 1=1 --',
    "'; DROP TABLE transcript_items; --",
    "a* NEAR(b c)",
    "terms:hello",
    "^hello",
    "-hello",
    "hello AND NOT world",
    "hello OR",
    "NEAR",
    "NOT",
    "(((",
    "{1,2}",
    "{}",
    "\\",
    "\\0 \\u0000",
    "$1 %s %(a)s ? :name",
    "hello & ! | world:*",
    "[a-z]+",
    "\ufeff\u202e\u200b",
    "\x01\x1f\x7f",
    "\U0010ffff\ufffe",
]


@pytest.mark.parametrize("query", SYNTAX)
async def test_query_is_data(stores: Stores, query: str) -> None:
    await fill(stores, "plain 明天", query + " literally", "1 2 3")
    visible = query.replace("\ufeff\u202e\u200b", "").strip()
    assert await found(stores, query) == ([2] if visible else [])


@pytest.mark.parametrize("query", ["", " \n\t\u3000", "\u200d\ufe0f"])
async def test_query_without_words_finds_nothing(stores: Stores, query: str) -> None:
    await fill(stores, "text", "", None)
    page = await stores.transcript.search("talk", query)
    assert (page.items, page.next_cursor) == ((), None)
    assert (await stores.transcript.search_workspace("acme", query)).items == ()


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ("a\0b", r"query must not contain U\+0000"),
        ("a\ud800", "query must not contain a lone surrogate"),
        ("a" * 1_025, "query must be at most 1024 characters, is 1025"),
    ],
)
async def test_query_that_no_text_can_hold_is_refused(
    stores: Stores, query: str, rule: str
) -> None:
    with pytest.raises(InvalidRecord, match=rule):
        await stores.transcript.search("talk", query)
    with pytest.raises(InvalidRecord, match=rule):
        await stores.transcript.search_workspace("acme", query)


@pytest.mark.parametrize("limit", [0, 10_001])
async def test_page_of_no_size_is_refused(stores: Stores, limit: int) -> None:
    with pytest.raises(InvalidRecord, match="limit must be 1 to 10000"):
        await stores.transcript.search("talk", "word", limit=limit)


async def test_found_item_comes_whole(stores: Stores) -> None:
    await fill(stores, "needle " + "x" * 300_000)
    page = await stores.transcript.page("talk")
    assert (await stores.transcript.search("talk", "needle")).items == page.items


async def test_end_of_a_long_text_is_not_found(stores: Stores) -> None:
    await fill(stores, "x " * 32_760 + "inside 评审", "x " * 32_768 + "outside 会议")
    assert await found(stores, "inside 评审") == [1]
    assert await found(stores, "outside") == await found(stores, "会议") == []


async def test_conversation_and_workspace_are_kept_apart(stores: Stores) -> None:
    await fill(stores, "word one")
    await fill(stores, "word two", conversation_key="other")
    await told(stores, "run-talk", an_item("elsewhere", workspace="b", text="word three"))
    assert await found(stores, "word") == [2, 1]
    assert await found(stores, "word", "other") == [1]
    assert await found(stores, "word", "unknown") == []

    async def ids(workspace: str) -> list[str]:
        page = await stores.transcript.search_workspace(workspace, "word")
        return [item.transcript_id for item in page.items]

    assert await ids("acme") == ["other-1", "talk-1"]
    assert await ids("b") == ["elsewhere"]
    assert await ids("c") == []


async def test_pages_go_through_what_is_found_once(stores: Stores) -> None:
    await fill(stores, *(f"word {number % 3} 评审" for number in range(20)))
    expected = [number + 1 for number in reversed(range(20)) if number % 3 == 1]
    for limit, workspace in itertools.product((1, 2, 3, 6, 7, 8), (False, True)):
        seen: list[int] = []
        cursor = None
        while not seen or cursor is not None:
            if workspace:
                page = await stores.transcript.search_workspace(
                    "acme", "1 评审", before=cursor, limit=limit
                )
            else:
                page = await stores.transcript.search("talk", "1 评审", before=cursor, limit=limit)
            assert 0 < len(page.items) <= limit
            seen += positions(page.items)
            cursor = page.next_cursor
        assert seen == expected


async def test_paging_is_stable_while_items_arrive(stores: Stores, database_url: str) -> None:
    other = await open_stores(database_url)
    await fill(stores, *(f"word {number}" for number in range(30)))
    writing = asyncio.create_task(
        told_one_by_one(other, [an_item(f"new-{number}", text="word") for number in range(60)])
    )
    seen: list[int] = []
    cursor = None
    while not seen or cursor is not None:
        page = await stores.transcript.search("talk", "word", before=cursor, limit=2)
        seen += positions(page.items)
        cursor = page.next_cursor
    await writing
    await other.close()
    assert seen == list(range(seen[0], 0, -1))
    assert seen[0] >= 30


async def told_one_by_one(stores: Stores, items: Sequence[TranscriptItem]) -> None:
    for item in items:
        await told(stores, "run-talk", item)
        # Found as soon as it is stored.
        page = await stores.transcript.search("talk", "word", limit=1)
        assert page.items[0].transcript_id == item.transcript_id


async def test_item_of_a_failed_piece_is_not_found(stores: Stores) -> None:
    await fill(stores, "first")
    with pytest.raises(ConstraintViolated):
        await told(stores, "run-talk", an_item("new", text="word"), an_item("talk-1"))
    assert await found(stores, "word") == []


async def test_search_goes_on_where_it_stopped_comparing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MOST_CANDIDATES", 4)
    monkeypatch.setattr(search, "_BATCH", 2)
    # All have the terms, the two oldest have them side by side.
    await fill(stores, "b-a", "b-a", *["b a-"] * 9)
    for find, scope in (
        (stores.transcript.search, "talk"),
        (stores.transcript.search_workspace, "acme"),
    ):
        pages = 0
        seen: list[int] = []
        cursor = None
        while not pages or cursor is not None:
            page = await find(scope, "b-a", before=cursor, limit=1)
            pages += 1
            seen += positions(page.items)
            cursor = page.next_cursor
        assert seen == [2, 1]
        assert pages > 2


async def test_search_passes_many_items_by_windows(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_NEWEST_WINDOW", 2)
    monkeypatch.setattr(search, "_WINDOW", 3)
    monkeypatch.setattr(search, "_FEW", 2)
    await fill(stores, "word", *["else"] * 7, "word", "else", "word", *["else"] * 7)
    assert await found(stores, "word") == [11, 9, 1]
    page = await stores.transcript.search_workspace("acme", "word", limit=3)
    assert positions(page.items) == [11, 9, 1]
