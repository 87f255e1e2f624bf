"""Tests of `host_service.runs.state`: what a run starts with, and what its results write."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from runmesh.v1 import context_pb2, result_pb2

from host_service.agents.agent import Scope
from host_service.limits import Limits
from host_service.runs.services import RunServices
from host_service.runs.state import SCOPES, RunState, UpdateRefused
from host_service.validation import Validator
from stores import Stores
from stores.errors import StoreUnavailable
from tests.unit.capabilities.test_gate import rights
from tests.unit.runs.samples import a_frame, a_result
from tests.unit.runs.test_delivery import a_delivery

KEYS = {scope: f"key of {scope.value}" for scope in Scope}
CONVERSATION = result_pb2.STATE_SCOPE_CONVERSATION


def run_state(store: Any, keys: dict[Scope, str] | None = None, **limits: int) -> RunState:
    in_force = Limits(**limits)
    return RunState(
        snapshot=rights(state_keys=KEYS if keys is None else keys),
        store=store,
        limits=in_force,
        validator=Validator(in_force.as_mapping()),
    )


async def started(state: RunState) -> context_pb2.StateSnapshot:
    context = context_pb2.RunContext()
    state.begin_reading()
    await state.fill(context)
    return context.state


def an_update(**changes: Any) -> result_pb2.StateUpdated:
    fields: dict[str, Any] = {"scope": CONVERSATION, "key": "k", "value_json": "1"}
    return result_pb2.StateUpdated(**(fields | changes))


async def test_run_starts_with_what_each_of_its_scopes_holds(stores: Stores) -> None:
    for scope, key in KEYS.items():
        await stores.state.set(key, "name", f'"{scope.value}"')
    await stores.state.set("another key", "name", '"another"')
    found = await started(run_state(stores.state))
    for scope in Scope:
        assert dict(getattr(found, f"{scope.value}_json")) == {"name": f'"{scope.value}"'}
    granted = {scope: KEYS[scope] for scope in (Scope.ACTOR, Scope.RUNNER)}
    found = await started(run_state(stores.state, granted))
    assert {field.name for field, _ in found.ListFields()} == {"actor_json", "runner_json"}


async def test_beyond_the_bytes_the_scopes_that_matter_least_are_left_out(stores: Stores) -> None:
    order = ["conversation", "actor", "subject", "binding", "runner", "workspace"]
    assert [scope.value for scope in SCOPES] == order
    for key in KEYS.values():
        await stores.state.set(key, "k", '"12345"')
    # A key and its value are 8 bytes.
    for kept in range(len(SCOPES) + 1):
        found = await started(run_state(stores.state, state_snapshot_bytes=8 * kept + 7))
        assert found.truncated is (kept < len(SCOPES))
        there = {scope for scope in Scope if getattr(found, f"{scope.value}_json")}
        assert there == set(SCOPES[:kept])


async def test_what_is_written_after_the_start_does_not_show(stores: Stores) -> None:
    await stores.state.set(KEYS[Scope.ACTOR], "k", '"before"')
    state, context = run_state(stores.state), context_pb2.RunContext()
    state.begin_reading()
    async with asyncio.timeout(5):
        while not state._reading or not state._reading.done():  # noqa: ASYNC110 - the end of a read has no event
            await asyncio.sleep(0)
    await stores.state.set(KEYS[Scope.ACTOR], "k", '"after"')
    await state.fill(context)
    assert dict(context.state.actor_json) == {"k": '"before"'}


class _NoStore:
    """A store that nothing may be asked of."""

    async def snapshot(self, *_: Any, **__: Any) -> None:
        raise AssertionError("was read")


class _StoreThatIsAway:
    async def snapshot(self, *_: Any, **__: Any) -> None:
        raise StoreUnavailable("away")


async def test_run_without_state_reads_nothing(stores: Stores) -> None:
    found = await started(run_state(_NoStore(), {}))
    assert not found.ByteSize()


async def test_state_that_cannot_be_read_is_told_to_who_waits_for_it_alone() -> None:
    state = run_state(_StoreThatIsAway())
    state.begin_reading()
    with pytest.raises(StoreUnavailable):
        await state.fill(context_pb2.RunContext())
    abandoned = run_state(_StoreThatIsAway())
    abandoned.begin_reading()
    abandoned.stop_reading()


async def test_update_is_stored_in_its_scope_as_it_came(stores: Stores) -> None:
    text = '{"id": 9223372036854775807, "t": "🦉"}'
    state = run_state(stores.state)
    for scope in Scope:
        number = result_pb2.StateScope.Value(f"STATE_SCOPE_{scope.name}")
        entry = await state.update(an_update(scope=number, value_json=text))
        assert (entry.value, entry.version) == (text, 1)
        assert await stores.state.get(KEYS[scope], "k") == entry


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scope": result_pb2.STATE_SCOPE_ACTOR}, "not granted state of scope actor"),
        ({"scope": 99}, "scope"),
        ({"scope": 0}, "scope"),
        ({"key": ""}, "key"),
        ({"key": "k" * 256}, "key"),
        ({"value_json": "{"}, "value_json"),
        ({"value_json": "NaN"}, "value_json"),
        ({"value_json": ""}, "value_json"),
        ({"value_json": f'"{"x" * 262_143}"'}, "262145"),
    ],
)
async def test_update_that_may_not_be_stored_says_why(
    stores: Stores, changes: dict[str, Any], why: str
) -> None:
    state = run_state(stores.state, {Scope.CONVERSATION: "key"})
    with pytest.raises(UpdateRefused, match=why):
        await state.update(an_update(**changes))
    assert (await stores.state.list("key")).items == ()


class _SilentLedger:
    """A ledger that never answers."""

    def record(self, _: object) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()


async def test_refused_update_is_a_warning_and_is_passed_on_all_the_same(
    stores: Stores, services: RunServices
) -> None:
    services = replace(services, state=stores.state)
    delivery = a_delivery(services, _SilentLedger())
    delivery.state = run_state(stores.state, {Scope.CONVERSATION: "key"})
    reader = delivery.log.subscribe(patient=True)
    updates = [
        an_update(),
        an_update(scope=result_pb2.STATE_SCOPE_ACTOR),
        an_update(key="k" * 300),
        an_update(value_json="{"),
        an_update(value_json=f'"{"x" * 300_000}"'),
        an_update(value_json='"\\u0000"'),
        an_update(value_json="2"),
    ]
    await delivery.pass_on(
        a_frame(a_result(number, state_updated=each) for number, each in enumerate(updates, 1))
    )
    warnings = [warning.code for warning in delivery.warnings]
    assert warnings.count("state_refused") == 4
    assert [code for code in warnings if code != "state_refused"] == ["text_repaired"]
    assert len(delivery.uncommitted) == len(updates)
    await stores.journal.flush()
    entry = await stores.state.get("key", "k")
    assert entry is not None
    # The first, the one that was mended, and the last; in this order.
    assert (entry.value, entry.version) == ("2", 3)
    assert len((await stores.state.list("key")).items) == 1
    reader.close()
