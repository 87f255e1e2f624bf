"""The promises of state."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores import Stores, open_stores
from stores.errors import InvalidRecord, ValueTooLarge, VersionConflict
from stores.limits import StoreLimits
from stores.state import StateEntry
from tests.conformance.stores.examples import EXAMPLES, KEYS, TEXTS, holds_for_all_examples
from tests.conformance.stores.samples import NOON, at

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@dataclass
class Clock:
    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stores(database_url: str, clock: Clock) -> AsyncIterator[Stores]:
    opened = await open_stores(
        database_url, clock=clock, limits=StoreLimits(state_value_bytes=2_000)
    )
    yield opened
    await opened.close()


async def fill(stores: Stores, scope: str, *keys: str) -> None:
    for key in keys:
        await stores.state.set(scope, key, json.dumps(key))


async def test_entry_over_the_bound_hides_none_behind_it(stores: Stores) -> None:
    await fill(stores, "scope", "large", "m", "n")
    page = await stores.state.list("scope", most_bytes=1)
    assert [entry.key for entry in page.items] == ["large"]
    assert await listed(stores, "scope", after=page.next_cursor) == ["m", "n"]


async def listed(stores: Stores, scope: str, **query: Any) -> list[str]:
    return [entry.key for entry in (await stores.state.list(scope, **query)).items]


async def test_value_comes_back_as_the_text_it_came_as(stores: Stores) -> None:
    texts = [
        '{ "big": 9007199254740993, "bigger": 123456789012345678901234567890, "a": 1.0 }',
        '"世界 \\ud83d\\ude00 \\\\u0000"',
        " null\n",
        "1e2",
        "-0",
        "9" * 308,
        '{"":{"":[]},"e\u0301":"\u00e9","\u0065":0}',
        "[" * 64 + "]" * 64,
    ]
    for number, text in enumerate(texts):
        stored = await stores.state.set("scope", f"key-{number}", text)
        assert stored == StateEntry(f"key-{number}", text, 1, NOON)
        assert await stores.state.get("scope", f"key-{number}") == stored


async def test_any_json_comes_back_byte_for_byte(stores: Stores) -> None:
    @EXAMPLES
    @given(value=JSON, ascii_only=st.booleans(), indent=st.none() | st.just(1))
    async def holds(value: object, ascii_only: bool, indent: int | None) -> None:
        text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
        if len(text.encode()) > 2_000:
            return
        await stores.state.set("scope", "key", text)
        entry = await stores.state.get("scope", "key")
        assert entry is not None
        assert entry.value == text

    await holds_for_all_examples(holds)


REFUSED = {
    "": "cannot be read at line 1",
    "{": "cannot be read",
    "[1,]": "cannot be read",
    "1 2": "cannot be read",
    "{'a': 1}": "cannot be read",
    "NaN": "NaN and Infinity",
    '{"a": [-Infinity]}': "NaN and Infinity",
    "1e999": "beyond the range",
    "9" * 400: "beyond the range",
    '{"a": 1, "a": 1}': "two members of one name",
    '[{"a": 1, "\\u0061": 2}]': "two members of one name",
    "[" * 65 + "]" * 65: "over 64",
    "[" * 900 + "]" * 900: "over 64",
    '{"a":' * 65 + "1" + "}" * 65: "over 64",
    '"a\\u0000b"': "U\\+0000",
    '{"a\\u0000b": 1}': "U\\+0000",
    '[[{"a": "\\ud83d"}]]': "lone surrogate",
    '"a\0b"': "U\\+0000",
    '"\ud83d"': "lone surrogate",
    '"a\tb"': "cannot be read",
    "\ufeff1": "cannot be read",
}


@pytest.mark.parametrize("text", REFUSED)
async def test_text_that_is_no_json_is_refused_alike(stores: Stores, text: str) -> None:
    with pytest.raises(InvalidRecord, match=REFUSED[text]) as caught:
        _ = stores.state.set("scope", "key", text)
    assert (caught.value.record, caught.value.field) == ("state", "value")
    assert await stores.state.get("scope", "key") is None


async def test_value_at_its_limit_is_stored_and_a_larger_one_refused(stores: Stores) -> None:
    await stores.state.set("scope", "key", '"' + "世" * 666 + '"')
    with pytest.raises(ValueTooLarge, match="at most 2000 bytes, is 2001") as caught:
        _ = stores.state.set("scope", "key", '"' + "x" * 1_999 + '"')
    assert (caught.value.size, caught.value.limit) == (2_001, 2_000)


async def test_version_counts_the_writes_of_a_key(stores: Stores, clock: Clock) -> None:
    assert (await stores.state.set("scope", "key", "1")).version == 1
    clock.now = at(5)
    assert (await stores.state.set("scope", "key", "1")).version == 2
    assert await stores.state.get("scope", "key") == StateEntry("key", "1", 2, at(5))
    assert (await stores.state.set("scope", "other", "1")).version == 1


async def test_stale_version_is_refused_and_changes_nothing(stores: Stores) -> None:
    await stores.state.set("scope", "key", "1", expected_version=0)
    for expected in (0, 2, -1):
        with pytest.raises(VersionConflict, match=f"has version 1, not {expected}") as caught:
            await stores.state.set("scope", "key", "2", expected_version=expected)
        assert (caught.value.expected, caught.value.actual) == (expected, 1)
        with pytest.raises(VersionConflict):
            await stores.state.delete("scope", "key", expected_version=expected)
    assert (await stores.state.set("scope", "key", "3", expected_version=1)).version == 2
    with pytest.raises(VersionConflict, match="has version 0, not 1"):
        await stores.state.set("scope", "absent", "1", expected_version=1)


async def test_key_that_comes_again_goes_on_above_the_version_it_had(stores: Stores) -> None:
    await fill(stores, "scope", "key", "key")
    assert await stores.state.delete("scope", "key", expected_version=2) is True
    assert await stores.state.delete("scope", "key") is False
    assert await stores.state.get("scope", "key") is None
    again = await stores.state.set("scope", "key", "1", expected_version=0)
    assert again.version == 3
    with pytest.raises(VersionConflict, match="has version 3, not 2"):
        await stores.state.set("scope", "key", "2", expected_version=2)
    assert (await stores.state.set("scope", "new", "1")).version == 1
    await stores.state.delete("scope", "key")
    assert (await stores.state.set("scope", "key", "1")).version == 4


async def test_deletions_are_forgotten_after_30_days(stores: Stores, clock: Clock) -> None:
    for key in ("old", "young"):
        await fill(stores, "scope", key)
        await stores.state.delete("scope", key)
        clock.now = at(86_400)
    clock.now = at(30 * 86_400 + 1)
    await fill(stores, "scope", "other")
    await stores.state.delete("scope", "other")
    assert (await stores.state.set("scope", "old", "1")).version == 1
    assert (await stores.state.set("scope", "young", "1")).version == 2


async def test_no_update_is_lost_between_writers_that_compare(stores: Stores) -> None:
    other = stores.state

    async def add_one(state: Any) -> None:
        while True:
            entry = await state.get("scope", "count")
            count, version = (json.loads(entry.value), entry.version) if entry else (0, 0)
            try:
                await state.set("scope", "count", str(count + 1), expected_version=version)
            except VersionConflict:
                continue
            return

    await asyncio.gather(*(add_one(other) for _ in range(20)))
    entry = await stores.state.get("scope", "count")
    assert entry is not None
    assert (entry.value, entry.version) == ("20", 20)


async def test_writers_of_two_hosts_lose_no_update(stores: Stores, database_url: str) -> None:
    second = await open_stores(database_url)
    wins: list[int] = []

    async def write(state: Any, number: int) -> None:
        for version in range(10):
            try:
                await state.set("scope", "key", str(number), expected_version=version)
            except VersionConflict:
                continue
            wins.append(version)

    await asyncio.gather(write(stores.state, 1), write(second.state, 2))
    await second.close()
    assert sorted(wins) == sorted(set(wins))
    entry = await stores.state.get("scope", "key")
    assert entry is not None
    assert entry.version == len(wins)


async def test_any_history_of_one_key_is_that_of_a_model(stores: Stores) -> None:
    steps = st.lists(
        st.tuples(st.sampled_from(["set", "delete"]), st.none() | st.integers(0, 4)), max_size=12
    )

    @EXAMPLES
    @given(scope=KEYS, key=KEYS, history=steps)
    async def holds(scope: str, key: str, history: Sequence[tuple[str, int | None]]) -> None:
        await stores.state.delete(scope, key)
        first = await stores.state.set(scope, key, "0")
        highest, live = first.version, True
        for action, offset in history:
            expected = None if offset is None else max(0, highest - offset)
            actual = highest if live else 0
            call = (
                stores.state.set(scope, key, "1", expected_version=expected)
                if action == "set"
                else stores.state.delete(scope, key, expected_version=expected)
            )
            if expected not in (None, actual):
                with pytest.raises(VersionConflict):
                    await call
            elif action == "set":
                entry = await call
                highest, live = highest + 1, True
                assert isinstance(entry, StateEntry)
                assert entry.version == highest
            else:
                assert await call is live
                live = False

    await holds_for_all_examples(holds)


async def test_no_two_pairs_of_scope_and_key_share_a_value(stores: Stores) -> None:
    pairs = [
        ("a", "b:c"), ("a:b", "c"), ("a", "b"), ("A", "b"), ("a", "B"), ("a ", "b"), ("a", " b"),
        ("é", "k"), ("e\u0301", "k"), ("", "k"), ("k", "k"), ("ﬁ", "k"), ("fi", "k"), ("%", "_"),
        ("1:a1:b", "k"), ("\u200b", "k"), ("'", '"'), ("a\\", "b"), ("a", "\\b"),
        ("\U0001d7cf", "1"),
    ]  # fmt: skip
    for number, (scope, key) in enumerate(pairs):
        await stores.state.set(scope, key, str(number))
    for number, (scope, key) in enumerate(pairs):
        entry = await stores.state.get(scope, key)
        assert entry is not None
        assert (entry.value, entry.version) == (str(number), 1)


async def test_conversation_id_is_another_name_of_the_external_one(stores: Stores) -> None:
    put = await stores.state.set("scope", "conversation_id", '"c"')
    assert put.key == "external.conversation_id"
    assert await stores.state.get("scope", "external.conversation_id") == put
    assert await stores.state.get("scope", "conversation_id") == put
    await stores.state.set("scope", "external.conversation_id", '"d"', expected_version=1)
    with pytest.raises(VersionConflict):
        await stores.state.set("scope", "conversation_id", '"e"', expected_version=1)
    assert await listed(stores, "scope") == ["external.conversation_id"]
    assert await listed(stores, "scope", prefix="conv") == []
    assert await stores.state.delete("scope", "conversation_id") is True
    assert await stores.state.get("scope", "external.conversation_id") is None


@pytest.mark.parametrize("bad", ["a\0b", "a\ud83d"])
async def test_key_that_cannot_be_stored_is_refused_and_finds_nothing(
    stores: Stores, bad: str
) -> None:
    for write in (
        lambda: stores.state.set(bad, "key", "1"),
        lambda: stores.state.set("scope", bad, "1"),
        lambda: stores.state.set("scope", "key", "1", workspace=bad),
        lambda: stores.state.delete(bad, "key"),
        lambda: stores.state.delete("scope", bad),
    ):
        with pytest.raises(InvalidRecord):
            write()
    assert await stores.state.get(bad, bad) is None
    assert await listed(stores, bad) == []
    assert await listed(stores, "scope", prefix=bad, after=bad) == []
    assert (await stores.state.snapshot([bad])).entries == {bad: []}


async def test_empty_and_overlong_keys_are_refused(stores: Stores) -> None:
    longest_scope = "".join(chr(0x4E00 + number) for number in range(682))
    await stores.state.set(longest_scope, "k" * 255, "1")
    assert await listed(stores, longest_scope) == ["k" * 255]
    with pytest.raises(InvalidRecord, match="key must not be empty"):
        _ = stores.state.set("scope", "", "1")
    with pytest.raises(InvalidRecord, match="key must be at most 255 bytes"):
        _ = stores.state.set("scope", "k" * 256, "1")
    with pytest.raises(InvalidRecord, match="scope_key must be at most 2048 bytes"):
        _ = stores.state.set("s" * 2_049, "key", "1")


async def test_list_has_the_keys_of_a_prefix_in_the_order_of_their_bytes(stores: Stores) -> None:
    top = "\U0010ffff"
    keys = ["b", "a", "a%", "a_b", "a\\", "aé", "ab", "A", top, top + "z", "\ud7ff", "\ue000"]
    await fill(stores, "scope", *keys)
    await fill(stores, "other", "zz")
    in_order = sorted(keys, key=str.encode)
    assert await listed(stores, "scope") == in_order
    for prefix in ("a", "a%", "a_", "a\\", "", top, "\ud7ff", "x", "A"):
        expected = [key for key in in_order if key.startswith(prefix)]
        assert await listed(stores, "scope", prefix=prefix) == expected


async def test_any_keys_are_listed_page_by_page(stores: Stores) -> None:
    scopes = iter(range(1_000))

    @EXAMPLES
    @given(keys=st.sets(KEYS, max_size=8), prefix=st.text("ab\U0010ffff", max_size=2))
    async def holds(keys: set[str], prefix: str) -> None:
        scope = f"scope-{next(scopes)}"
        await asyncio.gather(*(stores.state.set(scope, key, "1") for key in keys | {prefix + "a"}))
        expected = sorted(
            (key for key in keys | {prefix + "a"} if key.startswith(prefix)), key=str.encode
        )
        found: list[str] = []
        after = None
        while True:
            page = await stores.state.list(scope, prefix=prefix, after=after, limit=2)
            found += [entry.key for entry in page.items]
            after = page.next_cursor
            if after is None:
                break
        assert found == expected

    await holds_for_all_examples(holds)


async def test_pages_are_stable_while_keys_come_and_go(stores: Stores) -> None:
    staying = [f"k{number:02}" for number in range(20)]
    await fill(stores, "scope", *staying)
    going = asyncio.create_task(_come_and_go(stores))
    found: list[str] = []
    after = None
    while True:
        page = await stores.state.list("scope", after=after, limit=3)
        found += [entry.key for entry in page.items]
        after = page.next_cursor
        if after is None:
            break
    await going
    assert found == sorted(set(found))
    assert set(staying) <= set(found)


async def _come_and_go(stores: Stores) -> None:
    for number in range(20):
        key = f"k{number:02}-and-gone"
        await stores.state.set("scope", key, "1")
        await stores.state.set("scope", f"k{number:02}", "2")
        if number % 2:
            await stores.state.delete("scope", key)


async def test_page_ends_at_its_bytes_and_has_one_entry_at_least(stores: Stores) -> None:
    for key in "abc":
        await stores.state.set("scope", key, '"' + "x" * 97 + '"')
    page = await stores.state.list("scope", most_bytes=200)
    assert ([entry.key for entry in page.items], page.next_cursor) == (["a", "b"], "b")
    page = await stores.state.list("scope", most_bytes=199)
    assert ([entry.key for entry in page.items], page.next_cursor) == (["a"], "a")
    page = await stores.state.list("scope", most_bytes=5, after="b")
    assert ([entry.key for entry in page.items], page.next_cursor) == (["c"], None)


async def test_snapshot_has_the_scopes_in_order_within_its_bytes(stores: Stores) -> None:
    for scope in ("z", "a"):
        for key in "qp":
            await stores.state.set(scope, key, '"' + "x" * 97 + '"')
    whole = await stores.state.snapshot(["z", "none", "a"])
    assert not whole.truncated
    keys = {scope: [entry.key for entry in found] for scope, found in whole.entries.items()}
    assert keys == {"z": ["p", "q"], "none": [], "a": ["p", "q"]}
    cut = await stores.state.snapshot(["z", "a"], most_bytes=300)
    assert cut.truncated
    keys = {scope: [entry.key for entry in found] for scope, found in cut.entries.items()}
    assert keys == {"z": ["p", "q"], "a": ["p"]}
    first = await stores.state.snapshot(["z", "a"], most_bytes=100)
    assert [len(found) for found in first.entries.values()] == [1, 0]
    exact = await stores.state.snapshot(["z", "a"], most_bytes=400)
    assert exact == await stores.state.snapshot(["z", "a"])
    nothing = await stores.state.snapshot(["z", "a"], most_bytes=1)
    assert (nothing.entries, nothing.truncated) == ({"z": [], "a": []}, True)
    assert (await stores.state.snapshot([])).entries == {}
    with pytest.raises(InvalidRecord, match="at most 8"):
        await stores.state.snapshot([str(number) for number in range(9)])
