"""The same event again: one run, however often and however close together it comes."""

import asyncio
from pathlib import Path
from typing import Any

import grpc.aio
from runmesh.v1 import event_pb2, gateway_pb2

from tests.integration.host.calls import (
    END,
    Caller,
    collect,
    collect_until,
    message,
    say,
    scripted,
)
from tests.integration.host.refusals import refusal_of, refused
from tests.integration.host.waiting import eventually

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED


def calls_of(note: Path) -> int:
    return note.read_text().split().count("called") if note.exists() else 0


async def test_redelivery_is_answered_with_the_run_it_has_and_its_results(
    caller: Caller, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    event = scripted(say("once "), say("only"), END, note=note, event_id="again-1")
    first = await caller.dispatch(event, "scripted")
    assert not first.accepted.duplicate
    second = await caller.dispatch(event, "scripted")
    assert second.accepted.duplicate
    assert second.ended.duplicate
    assert second.run_id == first.run_id
    assert second.ended.status == COMPLETED
    assert second.messages == first.messages == ["once only"]
    second.check_numbers()
    assert second.results[-1].sequence == first.results[-1].sequence
    assert calls_of(note) == 1
    assert (await caller.submit(event, "scripted")).duplicate


async def test_time_delivery_and_extras_are_no_part_of_what_an_event_is(caller: Caller) -> None:
    first = await caller.dispatch(message("same", event_id="again-2"))
    other = message(
        "same",
        event_id="again-2",
        source=event_pb2.EVENT_SOURCE_API,
        delivery=event_pb2.DeliveryContext(surface="console"),
        metadata={"attempt": "2"},
        adapter_extra_json='{"attempt": 2}',
    )
    other.time.GetCurrentTime()
    second = await caller.dispatch(other)
    assert second.accepted.duplicate
    assert second.run_id == first.run_id


async def test_same_id_with_other_content_is_refused_and_changes_nothing(caller: Caller) -> None:
    first = await caller.dispatch(message("one thing", event_id="again-3"))
    changes: list[dict[str, Any]] = [
        {"text": "another thing"},
        {"text": "one thing", "type": "message.edited"},
        {"text": "one thing", "conversation_id": "c"},
        {"text": "one thing", "actor": event_pb2.Actor(type="user", id="u")},
        {"text": "one thing", "data_json": "{}"},
    ]
    for change in changes:
        event = message(event_id="again-3", **change)
        for call in (caller.dispatch(event, "default"), caller.submit(event, "default")):
            refusal = await refused(call)
            assert refusal.code == refusal.reason == "ALREADY_EXISTS"
            assert refusal.facts["resource"] == "again-3"
    runs = await caller.list(created_after=first.ended.created_at)
    assert [run.run_id for run in runs.runs] == [first.run_id]


async def test_same_id_elsewhere_is_another_event(caller: Caller) -> None:
    places: list[dict[str, Any]] = [
        {},
        {"workspace_id": "w"},
        {"bot_id": "b"},
        {"workspace_id": "b"},
        {"source": event_pb2.EVENT_SOURCE_PLATFORM},
    ]
    answers = [await caller.dispatch(message(event_id="again-4", **place)) for place in places]
    assert len({each.run_id for each in answers}) == len(places)
    assert not any(each.accepted.duplicate for each in answers)


async def test_event_without_an_id_is_new_each_time(caller: Caller) -> None:
    answers = [await caller.dispatch(message("same words")) for _ in range(2)]
    assert answers[0].run_id != answers[1].run_id
    assert answers[0].ended.event_id != answers[1].ended.event_id


async def test_redelivery_of_a_run_under_way_follows_it(caller: Caller, tmp_path: Path) -> None:
    go, note = tmp_path / "go", tmp_path / "note"
    event = scripted(
        say("begun, "), {"await": str(go)}, say("ended"), END, note=note, event_id="again-5"
    )
    first_call = caller.open(event, "scripted")
    first = await collect_until(first_call, lambda so_far: so_far.shown == "begun, ")
    second_call = caller.open(event, "scripted")
    second = await collect_until(second_call, lambda so_far: so_far.shown == "begun, ")
    go.touch()
    first, second = await collect(first_call, first), await collect(second_call, second)
    assert second.accepted.duplicate
    assert second.run_id == first.run_id
    assert second.shown == first.shown == "begun, ended"
    assert calls_of(note) == 1


async def test_twenty_deliveries_at_once_start_one_run(caller: Caller, tmp_path: Path) -> None:
    note = tmp_path / "note"
    event = scripted(say("one run"), END, note=note, event_id="again-6")
    answers = await asyncio.gather(*(caller.dispatch(event, "scripted") for _ in range(20)))
    assert len({each.run_id for each in answers}) == 1
    assert [each.accepted.duplicate for each in answers].count(False) == 1
    assert {each.text for each in answers} == {"one run"}
    assert {each.ended.status for each in answers} == {COMPLETED}
    assert calls_of(note) == 1
    runs = await caller.list(created_after=answers[0].ended.created_at)
    assert len(runs.runs) == 1


async def test_of_two_contents_at_once_one_is_run_and_the_other_refused(
    caller: Caller, tmp_path: Path
) -> None:
    note = tmp_path / "note"

    async def deliver(text: str) -> str:
        event = scripted(say(text), END, note=note, event_id="again-7")
        refusal = await _refusal_or_none(caller.submit(event, "scripted"))
        return text if refusal is None else refusal

    told = await asyncio.gather(*(deliver(text) for text in ["left", "right"] * 8))
    assert told.count("ALREADY_EXISTS") == 8
    assert len(set(told)) == 2
    await eventually(lambda: "ended" in note.read_text())
    assert calls_of(note) == 1


async def test_redelivery_is_answered_while_the_line_is_full(
    narrow: Caller, tmp_path: Path
) -> None:
    go, note = tmp_path / "go", tmp_path / "note"
    events = [
        scripted(say("x"), {"await": str(go)}, END, note=note, event_id=f"again-full-{number}")
        for number in range(6)
    ]
    # Three go and two wait, which is all that this host takes.
    runs = [await narrow.submit(event, "scripted") for event in events[:5]]
    assert (await refused(narrow.submit(events[5], "scripted"))).reason == "OVERLOADED"
    again = await asyncio.gather(
        *(narrow.submit(event, "scripted") for event in events[:5] for _ in range(3))
    )
    assert {run.run_id for run in again} == {run.run_id for run in runs}
    assert all(run.duplicate for run in again)
    other = scripted(say("y"), END, event_id="again-full-4")
    assert (await refused(narrow.submit(other, "scripted"))).reason == "ALREADY_EXISTS"
    go.touch()
    for run in runs:
        assert (await narrow.watch(run.run_id)).ended.status == COMPLETED
    assert calls_of(note) == 5
    # What was refused is tried anew.
    assert not (await narrow.submit(events[5], "scripted")).duplicate


async def _refusal_or_none(call: Any) -> str | None:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return refusal_of(error).reason
    return None
