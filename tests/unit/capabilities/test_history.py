"""Tests of `host_service.capabilities.history`: where it ends, cursors, pages, what is searched."""

import asyncio
import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runmesh.v1 import event_pb2, host_api_pb2, types_pb2

from host_service.errors import InvalidArgument, NotFound, Unauthorized
from host_service.identity import new_id
from host_service.pages import PageTokens
from host_service.runs.cursors import Cursors
from stores import Stores
from stores.records import RunFacts, TranscriptItem
from tests.unit.capabilities.rooms import NOON, RUNNER, Room, elsewhere, texts

OLDEST = host_api_pb2.PAGE_DIRECTION_OLDEST_FIRST
FILE = types_pb2.ArtifactRef(artifact_id="a-1", type="file", size_bytes=3)
IMAGE = types_pb2.ContentPart(
    artifact=types_pb2.ArtifactRef(artifact_id="a-2", type="image", size_bytes=4)
)


@pytest.fixture
def room(stores: Stores) -> Room:
    return Room(stores)


async def test_history_ends_before_the_runs_own_event_whatever_comes_later(room: Room) -> None:
    first = await room.talk("one")
    await room.says(first, "answer to one")
    event = await room.talk("two")
    run = await room.run_of(event)
    await room.says(event, "answer to two")
    await room.talk("three")
    assert await run.page() == ["answer to one", "one"]
    assert await run.page(direction=OLDEST) == ["one", "answer to one"]
    assert await (await room.run_of(first)).page() == []
    assert await (await room.run_of(first)).page(direction=OLDEST) == []


async def test_run_of_an_event_without_a_conversation_has_no_history(room: Room) -> None:
    await room.talk("one")
    alone = await room.run_of(await room.hears("two", conversation_id=""))
    assert await alone.page() == []
    assert await alone.page(direction=OLDEST) == []
    assert (await alone.call("SearchHistory", query="one")).items == []
    with pytest.raises(Unauthorized):
        await alone.page(conversation_id="room")
    wider = await room.run_of(await room.hears("two", conversation_id=""), wider_history=True)
    assert await wider.page(conversation_id="room") == ["one"]
    assert await wider.page() == []


async def test_event_that_says_nothing_has_the_history_before_it(room: Room) -> None:
    await room.talk("one")
    recall = await room.hears(type="message.recalled")
    await room.talk("two")
    assert await (await room.run_of(recall)).page() == ["one"]


async def test_item_has_all_that_was_stored_of_it(room: Room) -> None:
    event = await room.hears(
        "look 👋🏽",
        input=event_pb2.EventInput(attachments=[FILE]),
        thread_id="topic",
        actor=event_pb2.Actor(type="user", id="ann", name="Ann"),
    )
    await room.says(event, "seen", incomplete=True, metadata={"k": "v"})
    run = await room.run_of(await room.talk("?", thread_id="topic"))
    answer, asked = (await run.call("PageHistory", include_artifacts=True)).items
    cursors = Cursors.of(event.conversation_key)
    assert [answer.cursor, asked.cursor] == [cursors.encode(2), cursors.encode(1)]
    for item in (answer, asked):
        assert (item.conversation_id, item.thread_id) == ("room", "topic")
        assert item.event_id == event.envelope.event_id
        assert item.run_id == f"run of {event.envelope.event_id}"
        assert item.kind == host_api_pb2.TRANSCRIPT_KIND_MESSAGE
    assert asked.text == "look 👋🏽"
    assert asked.actor == event_pb2.Actor(type="user", id="ann", name="Ann")
    assert asked.created_at.ToNanoseconds() % 10**9 == 123456000
    assert [ref.artifact_id for ref in asked.artifacts] == ["a-1"]
    assert (asked.role, answer.role) == (types_pb2.CHAT_ROLE_USER, types_pb2.CHAT_ROLE_ASSISTANT)
    assert (answer.runner_id, answer.incomplete) == (RUNNER, True)
    assert dict(answer.metadata) == {"k": "v"}


async def test_refs_of_artifacts_come_when_they_are_asked_for(room: Room) -> None:
    event = await room.hears(input=event_pb2.EventInput(parts=[IMAGE], attachments=[FILE]))
    await room.says(event, "done", artifacts=[FILE])
    run = await room.run_of(await room.talk("?"))
    plain = (await run.call("PageHistory")).items
    whole = (await run.call("PageHistory", include_artifacts=True)).items
    assert [len(item.artifacts) for item in plain] == [0, 0]
    assert [len(item.artifacts) for item in whole] == [1, 1]
    # The parts are the content itself.
    assert [len(item.parts) for item in plain] == [0, 1]
    metadata, read = types_pb2.ARTIFACT_PERMISSION_METADATA, types_pb2.ARTIFACT_PERMISSION_READ
    assert list(whole[1].artifacts[0].permissions) == [metadata, read]
    assert list(plain[1].parts[0].artifact.permissions) == [metadata, read]
    blind = await room.run_of(await room.talk("?"), permissions={"history": frozenset({"page"})})
    (*_, item) = (await blind.call("PageHistory", include_artifacts=True)).items
    assert list(item.artifacts[0].permissions) == []


async def test_bounds_are_cursors_of_any_query(room: Room) -> None:
    run = await room.run_of(await room.talk("1", "2", "3", "4", "5", "6"))
    items = (await run.call("PageHistory", direction=OLDEST)).items
    assert texts(items) == ["1", "2", "3", "4", "5"]
    cursor = {item.text: item.cursor for item in items}
    assert await run.page(at_or_before=cursor["3"]) == ["3", "2", "1"]
    assert await run.page(after=cursor["3"]) == ["5", "4"]
    assert await run.page(after=cursor["1"], at_or_before=cursor["4"], direction=OLDEST) == [
        "2",
        "3",
        "4",
    ]
    assert await run.page(after=cursor["4"], at_or_before=cursor["4"]) == []
    (found,) = (await run.call("SearchHistory", query="2")).items
    assert await run.page(at_or_before=found.cursor) == ["2", "1"]
    # A cursor that another run was given is as good, and may lead to what came later.
    later = await room.run_of(await room.talk("7", "8"))
    newest = (await later.call("PageHistory", page_size=1)).items[0].cursor
    assert (await run.page(at_or_before=newest))[:2] == ["7", "6"]


@pytest.mark.parametrize("field", ["at_or_before", "after"])
async def test_cursor_of_another_conversation_or_thread_is_not_found(
    room: Room, field: str
) -> None:
    run = await room.run_of(await room.talk("one", "two"))
    for place in (
        elsewhere(conversation_id="other"),
        elsewhere(thread_id="t"),
        elsewhere(bot=""),
        elsewhere(workspace="other"),
    ):
        cursor = Cursors.of(place.key).encode(1)
        with pytest.raises(NotFound) as told:
            await run.page(**{field: cursor})
        assert told.value.facts["resource"] == cursor
    for text in ("1", "p1", "newest", "p1-" + "0" * 14):
        with pytest.raises(InvalidArgument) as refused:
            await run.page(**{field: text})
        assert [fault.field for fault in refused.value.faults] == [field]


OTHERS: list[dict[str, Any]] = [
    {"conversation_id": "other"},
    {"conversation_id": "nowhere"},
    {"thread_id": "topic"},
    {"conversation_id": "room", "thread_id": "topic"},
    {"conversation_id": "other", "thread_id": ""},
]


@pytest.mark.parametrize("other", OTHERS)
async def test_another_conversation_is_refused_whether_it_exists_or_not(
    room: Room, other: dict[str, Any]
) -> None:
    await room.talk("secret", conversation_id="other")
    await room.talk("secret", thread_id="topic")
    run = await room.run_of(await room.talk("one", "two"))
    with pytest.raises(Unauthorized):
        await run.page(**other)
    # A cursor, good or not, tells no more.
    with pytest.raises(Unauthorized):
        await run.page(**other, at_or_before="p1-" + "0" * 15)
    # Its own conversation may be named.
    assert await run.page(conversation_id="room") == ["one"]
    assert await run.page(conversation_id="room", thread_id="") == ["one"]


async def test_policy_may_grant_history_of_the_same_workspace_and_bot(room: Room) -> None:
    await room.talk("elsewhere 1", "elsewhere 2", conversation_id="other")
    await room.talk("of a topic", thread_id="topic")
    await room.talk("not mine", conversation_id="other", bot_id="another")
    run = await room.run_of(await room.talk("one", "two"), wider_history=True)
    assert await run.page(conversation_id="other") == ["elsewhere 2", "elsewhere 1"]
    assert await run.page(thread_id="topic") == ["of a topic"]
    assert await run.page(conversation_id="nowhere") == []
    assert await run.page() == ["one"]
    (item, _) = (await run.call("PageHistory", conversation_id="other")).items
    assert item.conversation_id == "other"
    with pytest.raises(NotFound):
        await run.page(at_or_before=item.cursor)
    assert await run.page(conversation_id="other", after=item.cursor) == []


async def test_refs_elsewhere_are_shown_and_open_nothing(room: Room) -> None:
    await room.hears("x", input=event_pb2.EventInput(attachments=[FILE]), conversation_id="other")
    run = await room.run_of(await room.talk("one"), wider_history=True)
    (item,) = (await run.call("PageHistory", conversation_id="other", include_artifacts=True)).items
    assert item.artifacts[0].artifact_id == "a-1"
    assert list(item.artifacts[0].permissions) == []


async def test_thread_of_a_run_is_its_own_unless_another_conversation_is_named(
    room: Room,
) -> None:
    await room.talk("whole room")
    await room.talk("other's", conversation_id="other")
    event = await room.talk("in topic", "now", thread_id="topic")
    run = await room.run_of(event, wider_history=True)
    assert await run.page() == ["in topic"]
    assert await run.page(conversation_id="room") == ["in topic"]
    assert await run.page(conversation_id="room", thread_id="") == ["whole room"]
    assert await run.page(conversation_id="other") == ["other's"]


async def test_page_token_is_good_for_its_query_and_conversation_alone(room: Room) -> None:
    event = await room.talk(*map(str, range(5)))
    run = await room.run_of(event)
    token = (await run.call("PageHistory", page_size=2)).next_page_token
    assert await run.page(page_token=token) == ["1", "0"]
    elsewhere_ = await room.run_of(await room.talk(*"abcde", thread_id="topic"))
    for caller, fields in (
        (run, {"direction": OLDEST}),
        (run, {"include_artifacts": True}),
        (elsewhere_, {}),
    ):
        with pytest.raises(InvalidArgument, match="page_token"):
            await caller.call("PageHistory", page_token=token, **fields)
    with pytest.raises(InvalidArgument, match="page_token"):
        await run.call("SearchHistory", query="1", page_token=token)


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "\u0667", "9" * 19])
async def test_token_made_by_hand_is_refused(room: Room, cursor: str) -> None:
    run = await room.run_of(await room.talk("one", "two"))
    query = host_api_pb2.PageHistoryRequest()
    token = PageTokens(limits=room.limits).issue(query, cursor, within=elsewhere().key)
    with pytest.raises(InvalidArgument, match="page_token"):
        await run.page(page_token=token)


async def test_page_ends_at_its_bytes_and_the_next_goes_on(stores: Stores) -> None:
    room = Room(stores, page_bytes=10_000)
    event = await room.talk(*("x" * size for size in (3_000, 20_000, 100, 4_000, 4_500, 4_000)))
    run = await room.run_of(await room.talk("now"))
    for direction in (OLDEST, host_api_pb2.PAGE_DIRECTION_NEWEST_FIRST):
        pages = await run.all_pages("PageHistory", direction=direction)
        sizes = [[len(item.text) for item in page.items] for page in pages]
        expected = [[3_000], [20_000], [100, 4_000, 4_500], [4_000]]
        if direction != OLDEST:
            expected = [[4_000, 4_500], [4_000, 100], [20_000], [3_000]]
        assert sizes == expected
        assert all(page.ByteSize() < 10_300 or len(page.items) == 1 for page in pages)
    assert event is not None


async def test_page_of_a_search_ends_at_its_bytes_as_well(stores: Stores) -> None:
    room = Room(stores, page_bytes=10_000)
    await room.talk(*("tea " * number for number in (1_000, 3_000, 1_000, 1_000, 500)))
    run = await room.run_of(await room.talk("now"))
    pages = await run.all_pages("SearchHistory", query="tea")
    sizes = [[len(item.text) // 4 for item in page.items] for page in pages]
    assert sizes == [[500, 1_000], [1_000], [3_000], [1_000]]


async def test_page_counts_what_it_puts_behind_stored_bytes(stores: Stores) -> None:
    room = Room(stores, page_bytes=2_000)
    place = {"conversation_id": "c" * 255, "thread_id": "t" * 255}
    run = await room.run_of(await room.talk(*map(str, range(10)), **place))
    pages = await run.all_pages("PageHistory")
    assert [len(page.items) for page in pages] == [3, 3, 3]
    assert all(page.ByteSize() < 2_200 for page in pages)


async def test_text_too_long_for_a_page_is_its_beginning_and_an_artifact(stores: Stores) -> None:
    room = Room(stores, page_item_text_bytes=1_000)
    # Characters of one to four bytes, so that the limit falls into one.
    text = "aé世👋" * 700
    event = await room.hears(text)
    await room.says(event, text, parts=[IMAGE, types_pb2.ContentPart(text="!")], artifacts=[FILE])
    run = await room.run_of(await room.talk("now"))
    page = await run.call("PageHistory")
    for item, whole, beside in zip(page.items, (text + "!", text), ([IMAGE], []), strict=True):
        assert item.truncated
        assert whole.startswith(item.text)
        assert 997 <= len(item.text.encode()) <= 1_000
        (ref,) = item.artifacts
        assert (ref.type, ref.mime_type) == ("text", "text/plain; charset=utf-8")
        assert ref.size_bytes == len(whole.encode())
        assert ref.sha256 == hashlib.sha256(whole.encode()).digest()
        assert [part.artifact.artifact_id for part in item.parts] == [
            part.artifact.artifact_id for part in beside
        ]
        record = await stores.artifacts.get(ref.artifact_id)
        assert record is not None
        assert run.access.snapshot.sees(record)
        assert record.created_at == item.created_at.ToDatetime(record.created_at.tzinfo)
        data = await stores.artifacts.read(ref.artifact_id, offset=0, length=1 << 20)
        assert data == whole.encode()
    whole_page = await run.call("PageHistory", include_artifacts=True)
    assert [[ref.type for ref in item.artifacts] for item in whole_page.items] == [
        ["text", "file"],
        ["text"],
    ]


async def test_text_at_the_limit_is_whole(stores: Stores) -> None:
    room = Room(stores, page_item_text_bytes=1_000)
    await room.hears("x" * 1_000)
    await room.hears("é" * 500)
    run = await room.run_of(await room.hears("é" * 500 + "x"))
    later = await room.run_of(await room.talk("now"))
    assert [item.truncated for item in (await run.call("PageHistory")).items] == [False, False]
    assert [item.truncated for item in (await later.call("PageHistory")).items] == [
        True,
        False,
        False,
    ]
    page = await stores.artifacts.list_of_conversation(elsewhere().key)
    assert len(page.items) == 1


async def test_whole_text_is_stored_once_however_often_it_is_asked_for(stores: Stores) -> None:
    room = Room(stores, page_item_text_bytes=1_000)
    await room.hears("word " * 1_000)
    run = await room.run_of(await room.talk("now"))

    async def ids() -> list[str]:
        (item,) = (await run.call("PageHistory")).items
        (found,) = (await run.call("SearchHistory", query="word")).items
        return [item.artifacts[0].artifact_id, found.artifacts[0].artifact_id]

    seen = {each for ids_ in await asyncio.gather(*(ids() for _ in range(8))) for each in ids_}
    assert len(seen) == 1
    page = await stores.artifacts.list_of_conversation(elsewhere().key)
    assert [record.artifact_id for record in page.items] == list(seen)
    # Removed by whatever removes artifacts, it comes again.
    await stores.artifacts.delete(page.items[0].artifact_id)
    assert set(await ids()) == seen
    assert await stores.artifacts.get(page.items[0].artifact_id) is not None


async def test_search_finds_what_was_said_before_the_event_and_never_the_event(
    room: Room,
) -> None:
    first = await room.talk("天气 today is fine")
    await room.says(first, "Is it? TODAY?")
    event = await room.talk("what is today")
    run = await room.run_of(event)
    await room.talk("today again")

    async def found(query: str) -> list[str]:
        return texts((await run.call("SearchHistory", query=query)).items)

    assert await found("today") == ["Is it? TODAY?", "天气 today is fine"]
    assert await found("天气") == ["天气 today is fine"]
    assert await found("is fine") == ["天气 today is fine"]
    assert await found("again") == []
    assert await found('"; DROP TABLE') == []
    assert await (await room.run_of(first)).all_pages("SearchHistory", query="today") == [
        host_api_pb2.SearchHistoryResponse()
    ]


async def test_search_goes_page_by_page_while_more_is_said(room: Room) -> None:
    run = await room.run_of(await room.talk(*(f"tea {number}" for number in range(7)), "now"))
    page = await run.call("SearchHistory", query="tea", page_size=3)
    seen = texts(page.items)
    while page.next_page_token:
        await room.talk("more tea")
        page = await run.call(
            "SearchHistory", query="tea", page_size=3, page_token=page.next_page_token
        )
        seen += texts(page.items)
    assert seen == [f"tea {number}" for number in reversed(range(7))]
    by_default = await run.call("SearchHistory", query="tea")
    assert len(by_default.items) == 7
    with pytest.raises(InvalidArgument, match="page_size"):
        await run.call("SearchHistory", query="tea", page_size=51)


@pytest.mark.parametrize("fields", [{"query": ""}, {"query": "x" * 1_025}, {"page_size": 1}])
async def test_search_wants_a_query(room: Room, fields: dict[str, Any]) -> None:
    run = await room.run_of(await room.talk("one"))
    with pytest.raises(InvalidArgument, match="query"):
        await run.call("SearchHistory", **fields)


async def test_history_takes_its_permission(room: Room) -> None:
    event = await room.talk("one", "two")
    pages = await room.run_of(event, permissions={"history": frozenset({"page"})})
    searches = await room.run_of(event, permissions={"history": frozenset({"search"})})
    assert await pages.page() == ["one"]
    with pytest.raises(Unauthorized):
        await pages.call("SearchHistory", query="one")
    assert texts((await searches.call("SearchHistory", query="one")).items) == ["one"]
    with pytest.raises(Unauthorized):
        await searches.page()


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    before=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=9),
    later=st.lists(st.sampled_from(["a", "b", "c"]), max_size=5),
    page_size=st.integers(1, 5),
    page_bytes=st.integers(200, 1_500),
    direction=st.sampled_from([OLDEST, host_api_pb2.PAGE_DIRECTION_UNSPECIFIED]),
)
async def test_pages_give_each_item_before_the_event_once_while_more_is_said(
    stores: Stores,
    before: list[str],
    later: list[str],
    page_size: int,
    page_bytes: int,
    direction: host_api_pb2.PageDirection.ValueType,
) -> None:
    room = Room(stores, page_bytes=page_bytes)
    number = new_id()
    place = {"conversation_id": number}
    said = [text or "-" for text in before]
    for index, text in enumerate(said):
        await room.hears(text, event_id=f"{number}/{index}", **place)
    run = await room.run_of(await room.hears("now", event_id=f"{number}/now", **place))
    seen: list[str] = []
    token = ""
    for index in range(20):
        page = await run.call(
            "PageHistory", page_size=page_size, direction=direction, page_token=token
        )
        seen += texts(page.items)
        token = page.next_page_token
        if not token:
            break
        assert page.items
        if later:
            await room.hears(later.pop(), event_id=f"{number}/later {index}", **place)
    assert seen == (said if direction == OLDEST else said[::-1])


async def test_items_from_before_are_shown_beside_those_of_today(
    room: Room, stores: Stores
) -> None:
    event = await room.talk("new")
    item = TranscriptItem(
        transcript_id="old",
        conversation_key=event.conversation_key,
        workspace="acme",
        bot="desk",
        event_id="event-0",
        role="user",
        kind="message",
        text="old",
        content=event_pb2.EventInput(text="old", attachments=[FILE]).SerializeToString(),
        actor=event_pb2.Actor(type="user", id="bob").SerializeToString(),
        created_at=NOON,
    )
    run_id = f"run of {event.envelope.event_id}"
    bare = replace(item, transcript_id="older", content=b"")
    await stores.ledger.record(RunFacts(run_id=run_id, items=(item, bare)))
    run = await room.run_of(await room.talk("now"))
    items = (await run.call("PageHistory", include_artifacts=True)).items
    assert texts(items) == ["old", "old", "new"]
    assert [item.actor.id for item in items] == ["bob", "bob", "ann"]
    assert [len(item.artifacts) for item in items] == [0, 1, 0]
    cursors = Cursors.of(event.conversation_key)
    assert [item.cursor for item in items] == [cursors.encode(number) for number in (3, 2, 1)]
    assert [item.conversation_id for item in items] == ["room"] * 3
    found = (await run.call("SearchHistory", query="old")).items
    assert [item.transcript_id for item in found] == ["older", "old"]
