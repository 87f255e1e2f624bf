"""The promises of pages of a conversation's events."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stores import Stores, open_stores
from stores.errors import InvalidRecord
from stores.records import EventRecord, Page
from tests.conformance.stores.samples import a_run, an_event, at

EventPage = Page[EventRecord, int]


def ids(page: EventPage) -> list[str]:
    return [event.event_id for event in page.items]


async def fill(stores: Stores, *names: str, conversation_key: str = "talk") -> None:
    """Logs events; the part of a name before its colon is the type."""
    for name in names:
        event_type = f"type.{name.partition(':')[0]}"
        await stores.events.append(
            an_event(name, type=event_type, conversation_key=conversation_key)
        )


async def test_events_are_given_whole_with_and_without_a_run(stores: Stores) -> None:
    logged = an_event("1", envelope=bytes(range(256)), occurred_at=at(-3), input_summary="世界")
    await stores.events.append(logged)
    await stores.ledger.accept(an_event("2"), a_run("run-2", an_event("2"))).committed
    page = await stores.events.page("talk", newest_first=False)
    assert page == Page((logged, an_event("2", run_id="run-2")), None)


async def test_events_of_other_conversations_and_of_none_are_not_there(stores: Stores) -> None:
    await fill(stores, "a:1")
    await fill(stores, "a:2", conversation_key="other")
    await fill(stores, "a:3", conversation_key="")
    assert ids(await stores.events.page("talk")) == ["a:1"]
    assert ids(await stores.events.page("")) == []
    assert ids(await stores.events.page("nowhere")) == []
    assert ids(await stores.events.page("surrogate \ud800")) == []


async def test_order_is_that_of_arrival_whatever_the_times_say(stores: Stores) -> None:
    for number, seconds in enumerate((5, -5, 0)):
        await stores.events.append(
            an_event(str(number), received_at=at(seconds), occurred_at=at(-seconds))
        )
    assert ids(await stores.events.page("talk")) == ["2", "1", "0"]
    assert ids(await stores.events.page("talk", newest_first=False)) == ["0", "1", "2"]


async def test_only_the_types_asked_for_are_given(stores: Stores) -> None:
    await fill(stores, "a:1", "b:2", "c:3", "a:4", "b:5", "c:6")
    for types, expected in (
        (["type.a"], ["a:4", "a:1"]),
        (["type.a", "type.c"], ["c:6", "a:4", "c:3", "a:1"]),
        (["type.c", "type.c", "type.a", "type.b"], ["c:6", "b:5", "a:4", "c:3", "b:2", "a:1"]),
        (["type", "type.", "TYPE.A", "%"], []),
    ):
        assert ids(await stores.events.page("talk", types=types)) == expected
    first = await stores.events.page("talk", types=["type.b"], limit=1)
    assert first.next_cursor is not None
    second = await stores.events.page("talk", types=["type.b"], before=first.next_cursor)
    assert (ids(first), ids(second), second.next_cursor) == (["b:5"], ["b:2"], None)


async def test_types_and_limits_have_bounds(stores: Stores) -> None:
    many = [f"type.{number}" for number in range(1_000)]
    await fill(stores, "999:1")
    assert ids(await stores.events.page("talk", types=many)) == ["999:1"]
    with pytest.raises(InvalidRecord, match="types must be at most 1000, are 1001"):
        await stores.events.page("talk", types=[*many, "type.more"])
    for limit in (0, 10_001):
        with pytest.raises(InvalidRecord, match="limit must be 1 to 10000"):
            await stores.events.page("talk", limit=limit)


@pytest.mark.parametrize("newest_first", [True, False])
async def test_page_ends_before_the_event_that_is_too_much(
    stores: Stores, newest_first: bool
) -> None:
    sizes = [100, 50, 500, 10, 10, 10]
    for number, size in enumerate(sizes):
        await stores.events.append(an_event(str(number), envelope=bytes(size)))
    order = sorted(range(6), reverse=newest_first)
    seen, pages = list[int](), list[list[int]]()
    cursor: int | None = None
    while not pages or cursor is not None:
        page = await stores.events.page(
            "talk",
            newest_first=newest_first,
            most_bytes=166,
            before=cursor if newest_first else None,
            after=None if newest_first else cursor,
        )
        pages.append([int(each) for each in ids(page)])
        seen += pages[-1]
        cursor = page.next_cursor
    assert seen == order
    expected = [[5, 4, 3], [2], [1, 0]] if newest_first else [[0, 1], [2], [3, 4, 5]]
    # 100 and 50 with 8 more each are 166, and 500 comes alone.
    assert pages == expected


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    kinds=st.lists(st.sampled_from("abc"), max_size=12),
    limit=st.integers(1, 5),
    wanted=st.sets(st.sampled_from("abc")),
    newest_first=st.booleans(),
    most_bytes=st.integers(1, 60),
    arriving=st.lists(st.sampled_from("abc"), max_size=6),
)
async def test_pages_go_through_what_was_there_once_while_events_arrive(
    stores: Stores,
    kinds: list[str],
    limit: int,
    wanted: set[str],
    newest_first: bool,
    most_bytes: int,
    arriving: list[str],
) -> None:
    key = f"talk of {id(kinds)} {kinds} {limit} {wanted} {newest_first} {most_bytes} {arriving}"
    names = [f"{kind}:{number} {key}" for number, kind in enumerate(kinds)]
    later = [f"{kind}:{number} {key}" for number, kind in enumerate(arriving, len(kinds))]
    await fill(stores, *(name[:255] for name in names), conversation_key=key)
    seen: list[str] = []
    cursor: int | None = None
    while True:
        page = await stores.events.page(
            key,
            types=[f"type.{kind}" for kind in wanted],
            limit=limit,
            newest_first=newest_first,
            most_bytes=most_bytes,
            before=cursor if newest_first else None,
            after=None if newest_first else cursor,
        )
        seen += ids(page)
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
        if arriving:
            await fill(stores, later[len(later) - len(arriving)][:255], conversation_key=key)
            arriving = arriving[1:]
    there = [name[:255] for name in names if not wanted or name[0] in wanted]
    if newest_first:
        assert seen == there[::-1]
    else:
        came = [name[:255] for name in later if not wanted or name[0] in wanted]
        assert seen == [*there, *came[: len(seen) - len(there)]]


async def test_forward_reader_misses_nothing_that_two_hosts_log(
    stores: Stores, database_url: str
) -> None:
    other = await open_stores(database_url)

    async def write(owner: Stores, name: str) -> None:
        for number in range(40):
            event = an_event(f"{name}-{number}")
            if number % 2:
                run = replace(a_run(f"run-{name}-{number}", event), host_id=name)
                await owner.ledger.accept(event, run).committed
            else:
                await owner.events.append(event)

    seen: list[str] = []

    async def follow(writers: asyncio.Future[list[None]]) -> None:
        after: int | None = None
        while True:
            written = writers.done()
            page = await stores.events.page("talk", after=after, newest_first=False, limit=3)
            # Where there is nothing more yet, there is no cursor to go on from: it is read again.
            if page.next_cursor is not None or written:
                seen.extend(ids(page))
                after = page.next_cursor
            if written and after is None:
                return

    owners = (stores, "a"), (other, "b"), (stores, "c")
    writers = asyncio.gather(*(write(owner, name) for owner, name in owners))
    await follow(writers)
    await other.close()
    assert len(seen) == len(set(seen)) == 120
    assert seen == ids(await stores.events.page("talk", newest_first=False, limit=120))
