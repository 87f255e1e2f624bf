"""Text, times, integers and sizes: what comes back as it was, and what is refused alike."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from stores import Stores
from stores.errors import InvalidRecord
from stores.records import Failure, RunFacts, RunQuery, RunStatus, RunWarning, Usage
from tests.conformance.stores.samples import (
    NOON,
    a_binding,
    a_checkpoint,
    a_key,
    a_result,
    a_run,
    accepted,
    an_agent,
    an_end,
    an_entry,
    an_event,
    an_item,
)

TEXTS = [
    "",
    " \t\r\n ",
    "'; DROP TABLE runs; -- % %s ? :name",
    "backslash \\u0000 and \\0",
    "\x01\x1f\x7f\x85\u2028\ufeff",
    "e\u0301 \u00e9 \u202eabc",
    "明天下午三点 ไทย 한국어",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "\ufffe\uffff\U0010ffff\ud7ff\ue000",
]


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts the process into a time zone that is hours from UTC."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def test_any_text_comes_back_as_it_was(stores: Stores) -> None:
    for number, text in enumerate(TEXTS):
        run_id = f"run-{number}"
        await accepted(stores, run_id, agent_id=text, conversation_key=text)
        checkpoint = a_checkpoint(run_id, text=text, reasoning=text)
        facts = RunFacts(
            run_id=run_id,
            items=(an_item(f"item-{number}", text=text, conversation_key=text),),
            checkpoints=(checkpoint,),
            warnings=(RunWarning("code", text, NOON),),
        )
        await stores.ledger.record(facts)
        await stores.catalogue.put_agent(an_agent(document=text, name=text))
        assert await stores.ledger.checkpoints(run_id) == [checkpoint]
        failure = Failure("code", text, details={text: text})
        await stores.ledger.finish(an_end(run_id, status=RunStatus.FAILED, failure=failure))
        await _check_text_is_back(stores, run_id, text)


async def _check_text_is_back(stores: Stores, run_id: str, text: str) -> None:
    page = await stores.transcript.page(text)
    assert [item.text for item in page.items] == [text]
    agent = await stores.catalogue.get_agent("agent")
    assert agent is not None
    assert (agent.document, agent.name) == (text, text)
    runs = await stores.ledger.list(RunQuery(agent_id=text, conversation_key=text))
    assert [run.run_id for run in runs.items] == [run_id]
    assert runs.items[0].warnings[0].message == text
    assert runs.items[0].failure == Failure("code", text, details={text: text})


def _facts(**facts: Any) -> Callable[[Stores], object]:
    return lambda stores: stores.ledger.record(RunFacts(run_id="run-1", **facts))


BAD = "a\0b"
LONE = "a\ud83d"

WRITES_OF_TEXT: dict[str, Callable[[Stores, str], object]] = {
    "event event_id": lambda s, t: s.events.append(an_event(t)),
    "event type": lambda s, t: s.events.append(an_event(type=t)),
    "event conversation_key": lambda s, t: s.events.append(an_event(conversation_key=t)),
    "event input_summary": lambda s, t: s.events.append(an_event(input_summary=t)),
    "run run_id": lambda s, t: s.ledger.accept(an_event(), a_run(t, an_event())),
    "run agent_id": lambda s, t: s.ledger.accept(an_event(), a_run(agent_id=t)),
    "run session_key": lambda s, t: s.ledger.accept(an_event(), a_run(session_key=t)),
    "transcript item text": lambda s, t: _facts(items=(an_item(text=t),))(s),
    "transcript item role": lambda s, t: _facts(items=(an_item(role=t),))(s),
    "result kind": lambda s, t: _facts(results=(a_result("run-1", 1, kind=t),))(s),
    "log entry kind": lambda s, t: _facts(entries=(an_entry(kind=t),))(s),
    "checkpoint text": lambda s, t: _facts(checkpoints=(a_checkpoint(text=t),))(s),
    "checkpoint reasoning": lambda s, t: _facts(checkpoints=(a_checkpoint(reasoning=t),))(s),
    "usage model_id": lambda s, t: _facts(usage=(Usage(t, 1, 1),))(s),
    "run warning message": lambda s, t: _facts(warnings=(RunWarning("c", t, NOON),))(s),
    "failure message": lambda s, t: s.ledger.finish(an_end(failure=Failure("c", t))),
    "failure details": lambda s, t: s.ledger.finish(
        an_end(failure=Failure("c", "m", details={t: "v"}))
    ),
    "agent document": lambda s, t: s.catalogue.put_agent(an_agent(document=t)),
    "agent name": lambda s, t: s.catalogue.apply([an_agent(name=t)], []),
    "binding document": lambda s, t: s.catalogue.put_binding(a_binding(document=t)),
    "host host_id": lambda s, t: s.hosts.register(t, "start", NOON),
    "run host_incarnation": lambda s, t: s.ledger.claim("run-1", t, "host", "start"),
    "run facts host_incarnation": lambda s, t: _facts(host_incarnation=t)(s),
    "run facts dropped_checkpoints": lambda s, t: _facts(dropped_checkpoints=(t,))(s),
    "run end host_incarnation": lambda s, t: s.ledger.finish(an_end(host_incarnation=t)),
    "agent id": lambda s, t: s.catalogue.delete_agent(t),
    "binding id": lambda s, t: s.catalogue.delete_binding(t),
    "host incarnation": lambda s, t: s.hosts.release("host", t),
    "API key key_id": lambda s, t: s.keys.revoke(t, NOON),
    "API key name": lambda s, t: s.keys.create(a_key(name=t)),
}


@pytest.mark.parametrize("text", [BAD, LONE], ids=["NUL", "lone surrogate"])
async def test_text_that_no_engine_may_hold_is_refused_by_name(stores: Stores, text: str) -> None:
    for place, write in WRITES_OF_TEXT.items():
        with pytest.raises(InvalidRecord) as caught:
            write(stores, text)
        assert f"{caught.value.record} {caught.value.field}" == place
        assert ("U+0000" if text == BAD else "surrogate") in caught.value.rule


async def test_reading_by_text_that_cannot_be_stored_finds_nothing(stores: Stores) -> None:
    for text in (BAD, LONE):
        assert await stores.ledger.get(text) is None
        assert await stores.events.get(text, "", "", "") is None
        assert (await stores.transcript.page(text)).items == ()
        assert (await stores.ledger.list(RunQuery(agent_id=text))).items == ()
        assert await stores.catalogue.get_agent(text) is None


@pytest.mark.parametrize(
    ("field", "most"), [("event_id", 255), ("conversation_key", 2_048), ("input_summary", 1_000)]
)
async def test_the_longest_text_is_stored_and_a_longer_one_refused(
    stores: Stores, field: str, most: int
) -> None:
    event = an_event(**{field: "x" * most})
    assert await stores.events.append(event)
    assert await stores.events.get("acme", "helper", "api", event.event_id) == event
    with pytest.raises(InvalidRecord, match=f"{field} must be at most {most}"):
        _ = stores.events.append(an_event(**{field: "x" * (most + 1)}))


async def test_identifiers_are_measured_in_bytes(stores: Stores) -> None:
    with pytest.raises(InvalidRecord, match="at most 255 bytes, is 258"):
        _ = stores.events.append(an_event("世" * 86))


async def test_all_identifiers_at_their_longest_fit_the_indexes(stores: Stores) -> None:
    # Without repetition, so that no engine saves room by compressing.
    letters = "".join(chr(0x4E00 + number) for number in range(682))
    long_id = letters[:85]
    event = an_event(
        long_id, workspace=long_id, bot=long_id, source=long_id, conversation_key=letters
    )
    run = a_run(long_id, event, agent_id=long_id)
    await stores.ledger.accept(event, run, an_item(long_id, conversation_key=letters)).committed
    assert await stores.ledger.get(long_id) == run


@pytest.mark.usefixtures("far_from_utc")
async def test_times_are_instants_whatever_zone_they_come_in(stores: Stores) -> None:
    east, west = timezone(timedelta(hours=8)), timezone(timedelta(hours=-8))
    noon_east = datetime(2026, 3, 1, 12, tzinfo=east)
    noon_west = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=west)
    await accepted(stores, "run-1", created_at=noon_east)
    await accepted(stores, "run-2", created_at=noon_west, deadline=noon_east)
    run = await stores.ledger.get("run-2")
    assert run is not None
    assert run.created_at == noon_west
    assert run.created_at.tzinfo is UTC
    assert run.created_at.microsecond == 1
    assert run.deadline == noon_east
    between = datetime(2026, 3, 1, 12, tzinfo=UTC)
    after = await stores.ledger.list(RunQuery(created_after=between))
    before = await stores.ledger.list(RunQuery(created_before=between))
    assert [run.run_id for run in after.items] == ["run-2"]
    assert [run.run_id for run in before.items] == ["run-1"]


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2262, 4, 12, 1, 2, 3, 4, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ],
)
async def test_far_times_keep_their_microseconds(stores: Stores, moment: datetime) -> None:
    await stores.events.append(an_event(occurred_at=moment, received_at=moment))
    event = await stores.events.get("acme", "helper", "api", "event-1")
    assert event is not None
    assert (event.occurred_at, event.received_at) == (moment, moment)


async def test_time_without_a_zone_is_refused(stores: Stores) -> None:
    naive = datetime(2026, 3, 1, 12)  # noqa: DTZ001 - the case itself
    with pytest.raises(InvalidRecord, match="event: field received_at must have a time zone"):
        _ = stores.events.append(an_event(received_at=naive))


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**53 + 1])
async def test_integers_of_64_bits_are_exact(stores: Stores, number: int) -> None:
    await accepted(stores, agent_revision=number)
    run = await stores.ledger.get("run-1")
    assert run is not None
    assert run.agent_revision == number


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
async def test_wider_integers_are_refused(stores: Stores, number: int) -> None:
    with pytest.raises(InvalidRecord, match="agent_revision must fit"):
        _ = stores.ledger.accept(an_event(), a_run(agent_revision=number))
