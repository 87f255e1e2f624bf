"""The promises of the transcript."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stores import Stores, open_stores
from stores.errors import ConstraintViolated, InvalidRecord
from stores.records import RunFacts, TranscriptItem
from tests.conformance.stores.samples import NOON, accepted, an_item, told


def positions(items: Sequence[TranscriptItem]) -> list[int]:
    return [item.position for item in items]


async def fill(stores: Stores, count: int, conversation_key: str = "talk") -> None:
    await accepted(stores, f"run-{conversation_key}")
    items = (
        an_item(f"item-{conversation_key}-{number}", conversation_key=conversation_key)
        for number in range(count)
    )
    await told(stores, f"run-{conversation_key}", *items)


async def test_every_field_of_an_item_comes_back(stores: Stores) -> None:
    await accepted(stores)
    whole = an_item(
        "item-1",
        role="assistant",
        content=bytes(range(256)),
        run_id="run-1",
        runner_id="plugin:a/b/c",
        actor=b"actor",
        incomplete=True,
        text="x" * 1_000_000 + "世界",
    )
    bare = an_item("item-2", text=None)
    await told(stores, "run-1", whole, bare)
    page = await stores.transcript.page("talk", newest_first=False)
    assert page.items == (replace(whole, position=1), replace(bare, position=2))


async def test_unknown_conversation_is_an_empty_one(stores: Stores) -> None:
    page = await stores.transcript.page("talk")
    assert page.items == ()
    assert page.next_cursor is None
    assert await stores.transcript.latest_position("talk") is None


async def test_positions_count_from_one_in_each_conversation(stores: Stores) -> None:
    await fill(stores, 3, "talk")
    await fill(stores, 2, "other")
    assert positions((await stores.transcript.page("talk")).items) == [3, 2, 1]
    assert positions((await stores.transcript.page("other")).items) == [2, 1]
    assert await stores.transcript.latest_position("talk") == 3


BOUNDS: list[tuple[dict[str, int], bool, list[int]]] = [
    ({}, True, [9, 8, 7, 6]),
    ({}, False, [1, 2, 3, 4]),
    ({"before": 4}, True, [3, 2, 1]),
    ({"at_or_before": 4}, True, [4, 3, 2, 1]),
    ({"after": 6}, True, [9, 8, 7]),
    ({"after": 2, "before": 5}, False, [3, 4]),
    ({"before": 9, "at_or_before": 3}, False, [1, 2, 3]),
    ({"before": 3, "at_or_before": 9}, False, [1, 2]),
    ({"after": 9}, False, []),
    ({"before": 1}, True, []),
    ({"at_or_before": 0}, True, []),
]


async def test_page_keeps_its_bounds(stores: Stores) -> None:
    await fill(stores, 9)
    for bounds, newest_first, expected in BOUNDS:
        page = await stores.transcript.page("talk", limit=4, newest_first=newest_first, **bounds)
        assert (bounds, positions(page.items)) == (bounds, expected)


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_go_through_a_conversation_once(stores: Stores, newest_first: bool) -> None:
    await fill(stores, 6)
    for limit in (1, 2, 3, 6, 7):
        seen: list[int] = []
        bounds: dict[str, int] = {}
        while not seen or bounds:
            page = await stores.transcript.page(
                "talk", limit=limit, newest_first=newest_first, **bounds
            )
            assert 0 < len(page.items) <= limit
            seen += positions(page.items)
            side = "before" if newest_first else "after"
            bounds = {} if page.next_cursor is None else {side: page.next_cursor}
        assert seen == sorted(range(1, 7), reverse=newest_first)


async def test_paging_is_stable_while_items_arrive(stores: Stores) -> None:
    await fill(stores, 6)
    first = await stores.transcript.page("talk", limit=3)
    await told(stores, "run-talk", an_item("new-1"), an_item("new-2"))
    second = await stores.transcript.page("talk", limit=3, before=first.next_cursor)
    assert positions(first.items + second.items) == [6, 5, 4, 3, 2, 1]
    forward = await stores.transcript.page("talk", after=6, newest_first=False)
    assert positions(forward.items) == [7, 8]


@pytest.mark.parametrize("limit", [0, -1, 10_001])
async def test_page_of_no_size_is_refused(stores: Stores, limit: int) -> None:
    with pytest.raises(InvalidRecord, match="limit must be 1 to 10000"):
        await stores.transcript.page("talk", limit=limit)


async def test_failed_piece_takes_no_position(stores: Stores) -> None:
    await fill(stores, 2)
    with pytest.raises(ConstraintViolated):
        await told(stores, "run-talk", an_item("new"), an_item("item-talk-0"))
    await told(stores, "run-talk", an_item("new"))
    assert positions((await stores.transcript.page("talk")).items) == [3, 2, 1]


async def test_forward_reader_misses_nothing_that_two_hosts_write(
    stores: Stores, database_url: str
) -> None:
    other = await open_stores(database_url)
    await accepted(stores)
    writers = [
        write(owner, name, 60) for owner, name in ((stores, "a"), (other, "b"), (stores, "c"))
    ]
    seen: list[TranscriptItem] = []

    async def follow() -> None:
        while len(seen) < 180:
            after = seen[-1].position if seen else 0
            page = await stores.transcript.page("talk", after=after, newest_first=False)
            seen.extend(page.items)

    await asyncio.gather(follow(), *writers)
    await other.close()
    assert positions(seen) == list(range(1, 181))
    assert len({item.transcript_id for item in seen}) == 180


async def write(owner: Stores, name: str, count: int) -> None:
    for number in range(count):
        item = an_item(f"item-{name}-{number}", created_at=NOON)
        await owner.ledger.record(RunFacts(run_id="run-1", items=(item,)))


@pytest.mark.parametrize("newest_first", [True, False])
async def test_page_of_contents_ends_before_the_one_that_is_too_much(
    stores: Stores, newest_first: bool
) -> None:
    await accepted(stores)
    sizes = [10, 100_000, 60_000, 50, 500_000, 0]
    items = [an_item(str(size), content=bytes(size)) for size in sizes]
    await told(stores, "run-1", *items)
    pages: list[list[int]] = []
    seen: list[int] = []
    cursor: int | None = None
    while not pages or cursor is not None:
        page = await stores.transcript.contents(
            "talk",
            newest_first=newest_first,
            before=cursor if newest_first else None,
            after=None if newest_first else cursor,
            most_bytes=160_010,
        )
        pages.append([each.position for each in page.items])
        seen += [len(each.content) for each in page.items]
        cursor = page.next_cursor
    assert seen == (sizes[::-1] if newest_first else sizes)
    assert pages == ([[6], [5], [4, 3], [2, 1]] if newest_first else [[1, 2, 3], [4], [5], [6]])


async def test_contents_are_those_of_the_page_within_the_same_bounds(stores: Stores) -> None:
    await accepted(stores)
    contents = [b"", bytes(range(256)), b"x" * 16_384, b"y" * 16_385, b"5", b"6", b"7", b"8", b"9"]
    items = (an_item(f"item-{number}", content=each) for number, each in enumerate(contents))
    await told(stores, "run-1", *items)
    for bounds, newest_first, expected in BOUNDS:
        page = await stores.transcript.contents(
            "talk", limit=4, newest_first=newest_first, **bounds
        )
        whole = await stores.transcript.page("talk", limit=4, newest_first=newest_first, **bounds)
        assert [each.position for each in page.items] == expected
        assert list(page.items) == [(each.position, each.content) for each in whole.items]
        assert page.next_cursor == whole.next_cursor
