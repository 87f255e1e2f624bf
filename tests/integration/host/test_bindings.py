"""Which agent answers: the narrowest binding, and never two."""

from typing import Any

import pytest
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import event_pb2, gateway_pb2

from stores import Stores
from stores.records import BindingRecord
from tests.integration.host.calls import Caller, agent, message
from tests.integration.host.refusals import refused

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED


def binding(id: str, agent_id: str, *event_types: str, **fields: Any) -> admin_pb2.Binding:
    return admin_pb2.Binding(id=id, agent_id=agent_id, event_types=event_types, **fields)


async def bindings_of(caller: Caller) -> set[str]:
    answer = await caller.admin.ListBindings(
        admin_pb2.ListBindingsRequest(page_size=100), metadata=caller.metadata
    )
    return {each.id for each in answer.bindings}


async def delete(caller: Caller, *ids: str) -> None:
    for binding_id in ids:
        request = admin_pb2.DeleteBindingRequest(binding_id=binding_id)
        await caller.admin.DeleteBinding(request, metadata=caller.metadata)


async def test_redelivery_of_an_event_without_a_binding_is_tried_anew(caller: Caller) -> None:
    event = message("finally", type="late.binding", event_id="late-1")
    assert (await refused(caller.dispatch(event))).reason == "NO_BINDING"
    await caller.apply(bindings=[binding("late", "default", "late.binding")])
    answer = await caller.dispatch(event)
    assert answer.ended.status == COMPLETED
    assert answer.text == "finally"
    assert not answer.accepted.duplicate
    assert answer.ended.binding_id == "late"
    again = await caller.dispatch(event)
    assert again.accepted.duplicate
    assert again.run_id == answer.run_id


async def test_narrowest_scope_and_most_exact_type_win(caller: Caller) -> None:
    narrow = [
        binding("n-prefix", "default", "narrow.*"),
        binding("n-longer", "default", "narrow.by.*"),
        binding("n-exact", "default", "narrow.by.type"),
        binding("n-filter", "default", "narrow.by.type",
                filters=[{"field": "metadata.room", "equals": "1"}]),
        binding("n-bot", "default", "narrow.*", scope={"bot_id": "b"}),
        binding("n-actor", "default", "narrow.*", scope={"actor_id": "u"}),
        binding("n-off", "default", "narrow.*", scope={"thread_id": "t"}, enabled=False),
    ]  # fmt: skip
    await caller.apply(bindings=narrow)
    actor = event_pb2.Actor(type="user", id="u")
    cases: list[tuple[str, dict[str, Any]]] = [
        ("n-prefix", {"type": "narrow.other"}),
        ("n-longer", {"type": "narrow.by.other"}),
        ("n-exact", {"type": "narrow.by.type"}),
        ("n-exact", {"type": "narrow.by.type", "metadata": {"room": "2"}}),
        ("n-filter", {"type": "narrow.by.type", "metadata": {"room": "1"}}),
        ("n-bot", {"type": "narrow.by.type", "metadata": {"room": "1"}, "bot_id": "b"}),
        ("n-actor", {"type": "narrow.by.type", "bot_id": "b", "actor": actor}),
        ("n-exact", {"type": "narrow.by.type", "conversation_id": "c", "thread_id": "t"}),
    ]
    for expected, fields in cases:
        run = await caller.submit(message(**fields))
        assert run.binding_id == expected, fields


async def test_bindings_that_tie_are_refused_when_saved_and_nothing_is(caller: Caller) -> None:
    before = await bindings_of(caller)
    pairs = [
        (binding("tie-a", "default", "tie.saved"), binding("tie-b", "default", "tie.saved")),
        (binding("tie-a", "default", "tie.*"), binding("tie-b", "default", "tie.*", "x.y")),
        (
            binding("tie-a", "default", "tie.f", filters=[{"field": "actor.type", "equals": "u"}]),
            binding("tie-b", "default", "tie.f", filters=[{"field": "bot_id", "equals": "b"}]),
        ),
    ]
    for pair in pairs:
        refusal = await refused(caller.apply(agent("tied"), bindings=pair))
        assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "BINDING_CONFLICT")
        assert "tie-a" in refusal.message
        assert "tie-b" in refusal.message
    assert await bindings_of(caller) == before
    assert (await refused(caller.dispatch(message(), "tied"))).reason == "NOT_FOUND"


async def test_one_binding_may_not_tie_with_one_that_is_there(caller: Caller) -> None:
    await caller.apply(bindings=[binding("there", "default", "tie.there")])
    refusal = await refused(caller.apply(bindings=[binding("comes-later", "default", "tie.there")]))
    assert refusal.reason == "BINDING_CONFLICT"
    assert "there" in refusal.message
    assert "comes-later" in refusal.message
    # Filters that give one field different values never meet.
    apart = [
        binding(f"apart-{value}", "default", "tie.apart",
                filters=[{"field": "metadata.room", "equals": value}])
        for value in ("1", "2")
    ]  # fmt: skip
    await caller.apply(bindings=apart)
    for value in ("1", "2"):
        run = await caller.submit(message(type="tie.apart", metadata={"room": value}))
        assert run.binding_id == f"apart-{value}"


@pytest.mark.parametrize("kind", ["dispatch", "submit"])
async def test_tie_that_came_to_be_some_other_way_is_refused_at_dispatch(
    caller: Caller, stores: Stores, kind: str
) -> None:
    document = '{"scope": {}, "event_types": ["tie.smuggled"], "filters": []}'
    for binding_id in ("smuggled-a", "smuggled-b"):
        await stores.catalogue.put_binding(
            BindingRecord(id=binding_id, agent_id="default", document=document)
        )
    # A host reads its catalogue again with every change that comes through it.
    await delete(caller, "no-such-binding")
    try:
        newest = (await caller.list(page_size=1)).runs
        event = message(type="tie.smuggled", event_id=f"tie-{kind}")
        call: Any = getattr(caller, kind)
        refusal = await refused(call(event))
        assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "BINDING_CONFLICT")
        assert "smuggled-a" in refusal.message
        assert "smuggled-b" in refusal.message
        assert (await caller.list(page_size=1)).runs == newest
        # An agent that is named needs no binding.
        assert (await caller.dispatch(event, "default")).ended.status == COMPLETED
    finally:
        await delete(caller, "smuggled-a", "smuggled-b")
    other = message(type="tie.smuggled", event_id=f"untied-{kind}")
    assert (await refused(caller.dispatch(other))).reason == "NO_BINDING"


async def test_binding_of_an_agent_that_is_not_there_is_refused(caller: Caller) -> None:
    refusal = await refused(caller.apply(bindings=[binding("lost", "no-such-agent", "x.y")]))
    assert refusal.code == refusal.reason == "INVALID_ARGUMENT"
    assert list(refusal.fields) == ["bindings[0].agent_id"]
