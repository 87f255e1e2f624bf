"""The promises of the audit."""

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given

from stores import Stores, open_stores
from stores.audit import AuditOutcome, AuditQuery, AuditRecord
from stores.errors import InvalidRecord, StoreUnavailable
from stores.sql import audit as sql_audit
from tests.conformance.stores.examples import EXAMPLES, TEXTS, holds_for_all_examples
from tests.conformance.stores.samples import NOON, at

ALL = AuditQuery()


def a_call(**changes: Any) -> AuditRecord:
    call = AuditRecord(
        at=NOON,
        rpc="GetState",
        outcome=AuditOutcome.DONE,
        run_id="run-1",
        runner_id="plugin:a/b/c",
        resource="key",
        scope="conversation",
        duration_seconds=0.000_123,
    )
    return replace(call, **changes)


def a_refusal(**changes: Any) -> AuditRecord:
    return a_call(outcome=AuditOutcome.REFUSED, reason="UNAUTHORIZED", **changes)


async def everything(stores: Stores, query: AuditQuery = ALL, **page: Any) -> list[AuditRecord]:
    found = (await stores.audit.page(query, **page)).items
    return [replace(each, position=0) for each in found]


async def test_row_comes_back_as_it_was(stores: Stores) -> None:
    by_key = a_call(run_id=None, runner_id=None, caller="key-1", at=at(1))
    failed = a_call(outcome=AuditOutcome.FAILED, reason="世界", at=at(2), resource="", scope="")
    for call in (a_call(), by_key, failed, a_refusal(at=at(3))):
        stores.audit.append(call)
    assert await everything(stores) == [a_refusal(at=at(3)), failed, by_key, a_call()]
    assert stores.audit.lost() == 0


async def test_rows_are_written_without_anybody_waiting(stores: Stores, database_url: str) -> None:
    other = await open_stores(database_url)
    stores.audit.append(a_call())
    async with asyncio.timeout(10):
        while not await everything(other):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    assert await everything(other) == [a_call()]
    await other.close()


async def test_rows_that_follow_each_other_go_into_one_piece_of_work(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_audit, "GATHERED_SECONDS", 3_600.0)
    before = stores.journal.statistics().submitted
    for number in range(200):
        stores.audit.append(a_call(at=at(number)))
        await asyncio.sleep(0)
    assert stores.journal.statistics().submitted == before
    await stores.audit.flush()
    assert stores.journal.statistics().submitted == before + 1
    assert len(await everything(stores, limit=1_000)) == 200


async def test_many_rows_wait_for_nothing(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_audit, "GATHERED_SECONDS", 3_600.0)
    before = stores.journal.statistics().submitted
    for number in range(600):
        stores.audit.append(a_call(at=at(number)))
    assert stores.journal.statistics().submitted == before + 2
    assert len(await everything(stores, limit=1_000)) == 600


async def test_flood_of_like_refusals_is_one_row_with_a_count(stores: Stores) -> None:
    for number in range(1_000):
        stores.audit.append(a_refusal(at=at(number), duration_seconds=0.001))
        stores.audit.append(a_refusal(at=at(number), resource="other", duration_seconds=0.5))
    stores.audit.append(a_call(at=at(1)))
    stores.audit.append(a_call(at=at(1)))
    assert await everything(stores) == [
        a_call(at=at(1)),
        a_call(at=at(1)),
        a_refusal(resource="other", count=1_000, duration_seconds=500.0),
        a_refusal(count=1_000, duration_seconds=1.0),
    ]


async def test_refusals_differ_by_whatever_they_say(stores: Stores) -> None:
    changes = [
        {"run_id": "run-2"},
        {"runner_id": "other"},
        {"caller": "key"},
        {"rpc": "SetState"},
        {"resource": "x"},
        {"scope": "x"},
    ]
    for change in [*changes, *changes]:
        stores.audit.append(a_refusal(**change))
    assert [row.count for row in await everything(stores)] == [2] * len(changes)


async def test_held_refusal_is_written_after_its_time(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_audit, "HELD_SECONDS", 0.01)
    before = stores.journal.statistics().submitted
    stores.audit.append(a_refusal())
    while stores.journal.statistics().submitted == before:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.005)
    assert await everything(stores) == [a_refusal()]


async def test_refusals_of_too_many_kinds_are_written_early(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_audit, "HELD_KINDS", 10)
    monkeypatch.setattr(sql_audit, "GATHERED_ROWS", 10)
    before = stores.journal.statistics().submitted
    for number in range(11):
        stores.audit.append(a_refusal(resource=str(number)))
    assert stores.journal.statistics().submitted == before + 1
    assert len(await everything(stores)) == 11


async def test_closing_writes_what_is_held(database_url: str) -> None:
    stores = await open_stores(database_url)
    stores.audit.append(a_refusal())
    stores.audit.append(a_call())
    await stores.close()
    await stores.close()
    stores.audit.append(a_call())
    again = await open_stores(database_url)
    assert len(await everything(again)) == 2
    await again.close()


async def test_rows_wait_while_the_database_is_away(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_audit, "WAITING_ROWS", 3)
    write = sql_audit._write

    def away(*_: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(sql_audit, "_write", away)
    stores.audit.append(a_call(at=at(1)))
    await stores.audit.flush()
    for number in (2, 3, 4, 5):
        stores.audit.append(a_call(at=at(number)))
    await stores.audit.flush()
    assert stores.audit.lost() == 2
    monkeypatch.setattr(sql_audit, "_write", write)
    assert [row.at for row in await everything(stores)] == [at(3), at(2), at(1)]


async def test_what_a_caller_sent_never_keeps_it_out_of_the_audit(stores: Stores) -> None:
    stores.audit.append(a_call(resource="a\0b\ud83d", scope="世" * 300, run_id="\0", rpc="x" * 256))
    (row,) = await everything(stores)
    assert (row.resource, row.run_id) == ("a\ufffdb\ufffd", "\ufffd")
    assert row.scope == "世" * 254 + "…"
    assert len(row.rpc) == 255


async def test_any_text_is_recorded(stores: Stores) -> None:
    @EXAMPLES
    @given(text=TEXTS.filter(lambda text: len(text) <= 255))
    async def holds(text: str) -> None:
        stores.audit.append(a_call(resource=text, reason=text, caller=text))
        (row,) = (await stores.audit.page(ALL, limit=1)).items
        assert (row.resource, row.reason, row.caller) == (text, text, text)

    await holds_for_all_examples(holds)


async def test_pages_go_by_time_run_and_outcome(stores: Stores) -> None:
    for number in range(6):
        stores.audit.append(
            a_call(
                at=at(number),
                run_id=f"run-{number % 2}",
                outcome=AuditOutcome.FAILED if number % 3 == 0 else AuditOutcome.DONE,
            )
        )

    async def seconds(**query: Any) -> list[float]:
        rows = await everything(stores, AuditQuery(**query))
        return [(row.at - NOON).total_seconds() for row in rows]

    assert await seconds() == [5, 4, 3, 2, 1, 0]
    assert await seconds(run_id="run-1") == [5, 3, 1]
    assert await seconds(outcome=AuditOutcome.FAILED) == [3, 0]
    assert await seconds(outcome=AuditOutcome.DONE, run_id="run-0") == [4, 2]
    assert await seconds(after=at(2), before=at(4)) == [3, 2]
    assert await seconds(run_id="a\0b") == []


async def test_pages_are_stable_while_rows_arrive(stores: Stores) -> None:
    for number in (1, 1, 2, 2, 2, 3):
        stores.audit.append(a_call(at=at(number)))
    found: list[int] = []
    after = None
    while True:
        page = await stores.audit.page(ALL, limit=2, after=after)
        found += [row.position for row in page.items]
        after = page.next_cursor
        if after is None:
            break
        stores.audit.append(a_call(at=at(9)))
    assert len(found) == len(set(found)) == 6


@pytest.mark.parametrize("cursor", ["", "x", "1", "1:x", "1:-1", "9" * 30 + ":1", "1:" + "9" * 30])
async def test_cursor_that_is_none_is_refused(stores: Stores, cursor: str) -> None:
    with pytest.raises(InvalidRecord, match="must be a page's next_cursor"):
        await stores.audit.page(ALL, after=cursor)


async def test_time_without_a_zone_and_empty_count_are_refused(stores: Stores) -> None:
    with pytest.raises(InvalidRecord, match="time zone"):
        stores.audit.append(a_call(at=datetime(2026, 3, 1)))  # noqa: DTZ001 - the case itself
    with pytest.raises(InvalidRecord, match="count must be at least 1"):
        stores.audit.append(a_call(count=0))
