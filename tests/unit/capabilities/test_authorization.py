"""Every call of HostAPI, granted and refused in every way that there is, as a runner meets it.

The calls go over a real connection to the real servicer and its stores. Each way of being refused
has its code, its reason and its audit row, for every call that can be refused so; a call without a
row in the table fails here.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import grpc.aio
import pytest
from google.protobuf.descriptor import Descriptor

from host_service.capabilities.needs import NEEDS
from host_service.runs.cursors import Cursors
from host_service.status import CODES
from host_service.validation.rule_kinds import MaxSize
from host_service.validation.rules import RULES
from stores import Stores
from stores.audit import AuditOutcome, AuditRecord
from tests.integration.host.refusals import Refusal, refusal_of
from tests.integration.host.waiting import eventually
from tests.unit.capabilities.authorization_rows import ABSENT, FOREIGN, OWN, ROWS, Row
from tests.unit.capabilities.authorization_world import CANARY, SERVICE, Tokens, World

Outcome = Refusal | Any


@pytest.fixture
async def world(stores: Stores) -> AsyncIterator[World]:
    async with World(stores).served() as world:
        yield world


async def outcome_of(world: World, rpc: str, tokens: Tokens, fields: Any) -> Outcome:
    """Returns what a call answers, or how it is refused."""
    try:
        return await world.call(rpc, tokens, fields)
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)


def told(outcome: Outcome) -> tuple[str, str]:
    """Returns code and reason; both empty for an answer."""
    return (outcome.code, outcome.reason) if isinstance(outcome, Refusal) else ("", "")


def expected(reason: str) -> tuple[str, str]:
    return (CODES[reason].name, reason) if reason else ("", "")


def audited_as(reason: str) -> AuditOutcome:
    """Returns what the audit calls it: who is away failed, and refused nothing."""
    if reason == "UNAVAILABLE":
        return AuditOutcome.FAILED
    return AuditOutcome.REFUSED if reason else AuditOutcome.DONE


async def rows_of(world: World, before: int) -> list[AuditRecord]:
    """Returns the rows that were written since, at least one: a stream's comes at its end."""

    async def are_there() -> bool:
        return len(await world.audited()) > before

    await eventually(are_there)
    return (await world.audited())[before:]


@dataclass(frozen=True, slots=True)
class Tried:
    """A call that was made, and what of it is not as it is to be."""

    outcome: Outcome
    wrong: list[str]


async def try_out(
    world: World, rpc: str, tokens: Tokens, fields: Any, reason: str, **row: Any
) -> Tried:
    """Calls, and looks at the answer and at its row in the audit."""
    before = len(await world.audited())
    outcome = await outcome_of(world, rpc, tokens, fields)
    wrong = []
    if told(outcome) != expected(reason):
        wrong.append(f"{rpc}: told {outcome!r}, not {reason or 'an answer'}")
    wanted = {
        "rpc": rpc,
        "outcome": audited_as(reason),
        "reason": reason,
        "run_id": f"run of {world.mine.envelope.event_id}",
        "runner_id": "plugin:acme/desk/default",
        "caller": None,
        **row,
    }
    if ROWS[rpc].endless and not reason:
        # Its runner has left it.
        wanted |= {"outcome": AuditOutcome.FAILED, "reason": "CANCELLED"}
    rows = await rows_of(world, before)
    found = [{name: getattr(each, name) for name in wanted} for each in rows]
    if found != [wanted]:
        wrong.append(f"{rpc}: written {found!r}, not {wanted!r}")
    return Tried(outcome, wrong)


def named(world: World, row: Row) -> str:
    """Returns what the audit row of a row's own request names."""
    if row.resource != OWN:
        return row.resource
    assert isinstance(row.fields, Mapping)
    (own,) = [name for name, value in row.fields.items() if value in (OWN, [OWN])]
    value = world.filled({own: OWN})[own]
    assert isinstance(value, str)
    return value


def test_every_call_of_the_service_has_a_row_and_no_other() -> None:
    assert set(ROWS) == set(SERVICE.methods_by_name)


async def test_what_is_granted_is_done_and_shows_nothing_of_others(world: World) -> None:
    wrong = []
    for rpc, row in ROWS.items():
        tried = await try_out(
            world,
            rpc,
            world.open(world.mine),
            world.filled(row.fields),
            row.outcome,
            resource=named(world, row),
            scope=row.scope,
        )
        wrong += tried.wrong
        if CANARY in str(tried.outcome):
            wrong.append(f"{rpc}: shows what is another's: {tried.outcome}")
    assert wrong == []


def ways_to_have_no_token(world: World) -> Iterator[tuple[str, Tokens]]:
    good, other = world.open(world.mine), world.open(world.neighbours)
    stranger = Tokens("", "rmi_of_acme/other")
    ended = world.open(world.mine)
    world.tokens.revoke(ended.run)
    late = world.open(world.mine)
    world.tokens.revoke(late.run, too_late=True)
    yield "no token", Tokens("", "")
    yield "no run token", replace(good, run="")
    yield "no instance token", replace(good, instance="")
    yield "a run token that never was", replace(good, run="rmr_" + "A" * 43)
    yield "another plugin's instance", replace(good, instance=stranger.instance)
    yield (
        "another run's token with another plugin's instance",
        replace(other, instance=stranger.instance),
    )
    yield "the tokens in each other's place", Tokens(good.instance, good.run)
    yield "a run that has ended", ended
    yield "a run that was ended at its deadline", late


async def test_call_without_good_tokens_is_refused_alike_whatever_is_wrong(world: World) -> None:
    wrong, texts = [], set()
    for rpc, row in ROWS.items():
        for way, tokens in ways_to_have_no_token(world):
            tried = await try_out(
                world,
                rpc,
                tokens,
                world.filled(row.fields),
                "UNAUTHENTICATED",
                run_id=None,
                runner_id=None,
                resource="",
                scope="",
            )
            wrong += [f"{way}: {each}" for each in tried.wrong]
            texts.add(str(tried.outcome))
    assert wrong == []
    assert len(texts) == 1


async def test_what_is_not_in_the_snapshot_is_refused_whatever_the_id(world: World) -> None:
    wrong = []
    for rpc, row in ROWS.items():
        for lacking in row.lacking.values():
            tokens = world.open(world.mine, **lacking)
            tried = await try_out(
                world,
                rpc,
                tokens,
                world.filled(row.fields),
                "UNAUTHORIZED",
                resource=named(world, row),
                scope=row.scope,
            )
            wrong += tried.wrong
            if row.another is None or row.unseen != "NOT_FOUND":
                continue
            for fields in (row.another, absent(row.another)):
                outcome = await outcome_of(world, rpc, tokens, world.filled(fields))
                if told(outcome) != expected("UNAUTHORIZED"):
                    wrong.append(f"{rpc}: {fields} without {lacking}: {outcome!r}")
    assert wrong == []


def test_every_right_that_a_call_needs_is_taken_away_in_the_table() -> None:
    for rpc, need in NEEDS.items():
        ways = set(ROWS[rpc].lacking)
        wanted = set()
        if need.group:
            wanted.add("permission")
        if need.capability:
            wanted.add("capability")
        if need.has_scope:
            wanted |= {"scope", "state", "identity"}
        if need.has_area:
            wanted |= {"manifest", "policy"}
        assert wanted <= ways, rpc


def absent(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        name: [ABSENT] if value == [FOREIGN] else ABSENT if value == FOREIGN else value
        for name, value in fields.items()
    }


async def test_what_is_anothers_looks_exactly_like_what_does_not_exist(world: World) -> None:
    wrong = []
    for rpc, row in ROWS.items():
        if row.another is None:
            continue
        assert isinstance(row.fields, Mapping)
        seen = []
        for changes in (row.another, absent(row.another)):
            fields = {**row.fields, **changes}
            filled = world.filled(fields)
            (other,) = [
                value[0] if isinstance(value, list) else value
                for name, value in filled.items()
                if fields[name] in (FOREIGN, ABSENT, [FOREIGN], [ABSENT])
            ]
            tokens = world.open(world.mine)
            tried = await try_out(
                world, rpc, tokens, filled, row.unseen, resource=other, scope=row.scope
            )
            wrong += tried.wrong
            seen.append(str(tried.outcome).replace(other, "<id>"))
        if len(set(seen)) != 1:
            wrong.append(f"{rpc}: tells what is another's from what is not: {seen}")
    assert wrong == []


async def test_cursor_of_another_conversation_is_not_found(world: World) -> None:
    foreign = Cursors.of(world.neighbours.conversation_key).encode(1)
    for field in ("at_or_before", "after"):
        tried = await try_out(
            world, "PageHistory", world.open(world.mine), {field: foreign}, "NOT_FOUND"
        )
        assert tried.wrong == []


def sizes_within(message: Descriptor, above: tuple[Descriptor, ...] = ()) -> Iterator[str]:
    for field in message.fields:
        if any(isinstance(rule, MaxSize) for rule in RULES.get(field.full_name, ())):
            yield field.full_name
        nested = field.message_type
        if nested is not None and nested not in above:
            yield from sizes_within(nested, (*above, message))


async def test_what_is_too_large_is_refused_with_size_and_limit(world: World) -> None:
    wrong = []
    for rpc, row in ROWS.items():
        limited = list(sizes_within(SERVICE.methods_by_name[rpc].input_type))
        assert bool(limited) == (row.too_large is not None), rpc
        if row.too_large is None:
            continue
        fields = row.too_large
        if isinstance(row.fields, Mapping) and isinstance(fields, Mapping):
            fields = {**row.fields, **fields}
        fields = world.filled(fields)
        tried = await try_out(world, rpc, world.open(world.mine), fields, "PAYLOAD_TOO_LARGE")
        wrong += tried.wrong
        refusal = tried.outcome
        if not (refusal.facts.get("limit") == "1024" and int(refusal.facts["size"]) > 1024):
            wrong.append(f"{rpc}: {refusal.facts}")
        if refusal.retry_after_seconds is not None:
            wrong.append(f"{rpc}: waiting does not help")
    assert wrong == []


async def test_what_comes_too_fast_is_refused_with_a_time_to_wait(world: World) -> None:
    wrong = []
    for rpc, row in ROWS.items():
        tokens = world.open(world.mine)
        access = world.tokens.check(
            authorization=f"Bearer {tokens.run}", instance_token=tokens.instance
        )
        while not access.rate.take():
            pass
        fields = world.filled(row.fields)
        tried = await try_out(world, rpc, tokens, fields, "RATE_LIMITED")
        wrong += tried.wrong
        if not tried.outcome.retry_after_seconds:
            wrong.append(f"{rpc}: no time to wait")
        # One run's haste is not another's.
        wrong += (await try_out(world, rpc, world.open(world.mine), fields, row.outcome)).wrong
    assert wrong == []


@pytest.mark.parametrize(
    ("too_late", "reason"), [(True, "DEADLINE_EXCEEDED"), (False, "UNAUTHENTICATED")]
)
async def test_what_comes_too_late_is_refused_by_what_ended_the_run(
    world: World, too_late: bool, reason: str
) -> None:
    wrong = []
    for rpc, row in ROWS.items():
        tokens = world.open(world.mine)

        def end(tokens: Tokens = tokens) -> None:
            world.tokens.revoke(tokens.run, too_late=too_late)

        # The run ends while its call is on its way through the checks.
        world.while_checked = end
        wrong += (await try_out(world, rpc, tokens, world.filled(row.fields), reason)).wrong
    assert wrong == []


async def test_fields_that_break_rules_are_named(world: World) -> None:
    wrong = []
    for rpc, row in ROWS.items():
        if row.broken is None:
            continue
        fields = row.broken
        if isinstance(row.fields, Mapping) and isinstance(fields, Mapping):
            fields = {**row.fields, **fields}
        fields = world.filled(fields)
        tried = await try_out(world, rpc, world.open(world.mine), fields, "INVALID_ARGUMENT")
        wrong += tried.wrong
        if not tried.outcome.fields:
            wrong.append(f"{rpc}: names no field")
    assert wrong == []


@pytest.mark.parametrize(
    ("too_late", "reason"), [(True, "DEADLINE_EXCEEDED"), (False, "UNAUTHENTICATED")]
)
async def test_stream_under_way_ends_with_its_run(
    world: World, too_late: bool, reason: str
) -> None:
    tokens = world.open(world.mine)
    call = world.stream("PullSteering", tokens)
    assert (await call.read()).steering_id == "steered-mine"
    before = len(await world.audited())
    world.tokens.revoke(tokens.run, too_late=too_late)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert told(refusal_of(caught.value)) == expected(reason)
    (row,) = await rows_of(world, before)
    assert (row.rpc, row.outcome, row.reason) == ("PullSteering", AuditOutcome.REFUSED, reason)


async def test_flood_of_like_refusals_is_one_row_with_a_count(world: World) -> None:
    before = len(await world.audited())
    tokens = world.open(world.mine, without=("history", "page"))
    for _ in range(20):
        await outcome_of(world, "PageHistory", tokens, {})
    (row,) = await rows_of(world, before)
    assert (row.rpc, row.reason, row.count) == ("PageHistory", "UNAUTHORIZED", 20)
