"""The promises of the event log."""

from dataclasses import replace

import pytest

from stores import Stores
from stores.errors import ConstraintViolated, EventConflict, InvalidRecord
from tests.conformance.stores.samples import (
    a_run,
    accepted,
    an_end,
    an_entry,
    an_event,
    at,
)


async def test_event_without_a_run_is_logged(stores: Stores) -> None:
    event = an_event(occurred_at=at(-5), input_summary="世界", envelope=bytes(range(256)))
    assert await stores.events.append(event) is True
    assert await stores.events.get("acme", "helper", "api", "event-1") == event


async def test_redelivery_of_an_event_without_a_run_is_no_error(stores: Stores) -> None:
    await stores.events.append(an_event(received_at=at(0)))
    assert await stores.events.append(an_event(received_at=at(5))) is False
    stored = await stores.events.get("acme", "helper", "api", "event-1")
    assert stored == an_event(received_at=at(0))


async def test_redelivery_of_an_event_with_a_run_leaves_its_run(stores: Stores) -> None:
    await stores.ledger.accept(an_event(), a_run()).committed
    assert await stores.events.append(an_event()) is False
    stored = await stores.events.get("acme", "helper", "api", "event-1")
    assert stored == an_event(run_id="run-1")


async def test_logging_other_content_is_a_conflict(stores: Stores) -> None:
    await stores.events.append(an_event())
    with pytest.raises(EventConflict) as caught:
        await stores.events.append(an_event(digest=b"another digest"))
    assert caught.value.run_id is None


async def test_logging_an_event_with_a_run_is_refused_at_once(stores: Stores) -> None:
    with pytest.raises(InvalidRecord, match="field run_id must be None"):
        _ = stores.events.append(an_event(run_id="run-1"))


async def test_absent_identities_are_empty_and_equal(stores: Stores) -> None:
    event = an_event(workspace="", bot="")
    assert await stores.events.append(event) is True
    assert await stores.events.append(event) is False
    assert await stores.events.get("", "", "api", "event-1") == event
    assert await stores.events.get("", "helper", "api", "event-1") is None


async def test_unknown_event_is_none(stores: Stores) -> None:
    assert await stores.events.get("acme", "helper", "api", "event-1") is None
    assert await stores.events.get_for_run("run-1") is None


async def test_entries_are_read_in_the_order_they_were_stored(stores: Stores) -> None:
    await accepted(stores)
    await accepted(stores, "run-2")
    kinds = ["tool_call_started", "artifact_created", "error"]
    await stores.events.append_entries([an_entry(kind=kind) for kind in kinds[:2]])
    await stores.events.append_entries([an_entry("run-2", "delivered")])
    await stores.events.append_entries([an_entry(kind=kinds[2], sequence=4, at=at(-9))])
    entries = await stores.events.entries("run-1")
    assert [entry.kind for entry in entries] == kinds
    assert replace(entries[2], position=0) == an_entry(kind="error", sequence=4, at=at(-9))
    rest = await stores.events.entries("run-1", after_position=entries[0].position, limit=1)
    assert rest == [entries[1]]
    assert await stores.events.entries("run-1", after_position=entries[2].position) == []


async def test_entries_are_taken_after_the_end_of_a_run(stores: Stores) -> None:
    await accepted(stores)
    await stores.ledger.finish(an_end())
    await stores.events.append_entries([an_entry(kind="delivered")])
    assert [entry.kind for entry in await stores.events.entries("run-1")] == ["delivered"]


async def test_entries_of_an_unknown_run_fail_together(stores: Stores) -> None:
    await accepted(stores)
    with pytest.raises(ConstraintViolated):
        await stores.events.append_entries([an_entry(), an_entry("run-2")])
    assert await stores.events.entries("run-1") == []


async def test_no_entries_are_no_error(stores: Stores) -> None:
    await stores.events.append_entries([])
