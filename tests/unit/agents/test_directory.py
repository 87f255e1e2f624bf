"""Tests of `host_service.agents.directory`, over real stores."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from host_service.agents.agent import Agent
from host_service.agents.binding import Binding
from host_service.agents.changes import Change
from host_service.agents.directory import AgentDirectory
from host_service.agents.follow_up import RunnerKind
from host_service.errors import (
    BindingConflict,
    Conflict,
    HostError,
    InvalidArgument,
    NoBinding,
    NotFound,
)
from stores import Stores, open_stores
from tests.unit.agents.directories import apply, directory_over
from tests.unit.runs.samples import RUNNER, an_agent, an_event

MESSAGES = ("message.received",)


@pytest.fixture
def directory(stores: Stores) -> AgentDirectory:
    return directory_over(stores)


def a_binding(id: str = "messages", agent_id: str = "helper", **scope: str) -> Binding:
    return Binding(id=id, agent_id=agent_id, scope=scope, event_types=MESSAGES)


def kinds(changes: Sequence[Change]) -> Sequence[tuple[str, str, str]]:
    return [(each.object, each.id, each.kind) for each in changes]


async def test_what_is_applied_answers_at_once_and_after_a_start(
    directory: AgentDirectory, stores: Stores
) -> None:
    agent, binding = an_agent(models=("m",)), a_binding()
    changes = await apply(directory, [agent], [binding])
    assert kinds(changes) == [("agent", "helper", "created"), ("binding", "messages", "created")]
    assert directory.resolve(an_event()) == (binding, agent)
    started = directory_over(stores)
    await started.reload()
    assert started.resolve(an_event()) == (binding, agent)
    assert (started.agents["helper"].revision, started.bindings["messages"].revision) == (1, 1)


async def test_applying_the_same_again_changes_nothing(
    directory: AgentDirectory, stores: Stores
) -> None:
    await apply(directory, [an_agent()], [a_binding()])
    revision = await stores.catalogue.revision()
    changes = await apply(directory, [an_agent()], [a_binding()])
    assert {each.kind for each in changes} == {"unchanged"}
    assert all(not each.fields for each in changes)
    assert await stores.catalogue.revision() == revision


async def test_configuration_that_only_looks_different_is_unchanged_and_not_written(
    directory: AgentDirectory,
) -> None:
    await apply(directory, [an_agent(config_json='{"a": 1, "b": [2]}')], [])
    changes = await apply(directory, [an_agent(config_json='{"b":[2],"a":1}')], [])
    assert kinds(changes) == [("agent", "helper", "unchanged")]
    assert directory.agents["helper"].revision == 1


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ({"name": "A"}, {"name": "B"}, [("name", '"A"', '"B"')]),
        (
            {"config_json": '{"big": 9007199254740993}'},
            {"config_json": '{"big": 9007199254740992}'},
            [("config.big", "9007199254740993", "9007199254740992")],
        ),
        (
            {"config_json": '{"a": {"b": 1, "c": "你"}}'},
            {"config_json": '{"a": {"b": true}}'},
            [("config.a.b", "1", "true"), ("config.a.c", '"你"', None)],
        ),
        ({"config_json": "{}"}, {"config_json": '{"a": null}'}, [("config.a", None, "null")]),
        (
            {"config_json": '{"a.b": 1, "a": {"b": 2}}'},
            {"config_json": '{"a.b": 2, "a": {"b": 2}}'},
            [('config."a.b"', "1", "2")],
        ),
        ({"skills": None}, {"skills": ()}, [("skills", "null", "[]")]),
        ({"enabled": True}, {"enabled": False}, [("enabled", "true", "false")]),
    ],
)
async def test_update_tells_each_field_before_and_after(
    directory: AgentDirectory,
    before: Mapping[str, object],
    after: Mapping[str, object],
    fields: Sequence[tuple[str, str | None, str | None]],
) -> None:
    await apply(directory, [an_agent(**before)], [])
    (change,) = await apply(directory, [an_agent(**after)], [])
    assert change.kind == "updated"
    assert [each for each in change.fields if each[0] != "config"] == fields


async def test_binding_that_moves_to_another_agent_is_an_update_of_that_field(
    directory: AgentDirectory,
) -> None:
    await apply(directory, [an_agent(), an_agent(id="other")], [a_binding()])
    (change,) = await apply(directory, [], [a_binding(agent_id="other")])
    assert change == Change(
        "binding", "messages", "updated", (("agent_id", '"helper"', '"other"'),)
    )
    assert directory.resolve(an_event())[1].id == "other"


async def test_dry_run_tells_the_changes_and_writes_nothing(
    directory: AgentDirectory, stores: Stores
) -> None:
    changes = await apply(directory, [an_agent()], [a_binding()], dry_run=True)
    assert {each.kind for each in changes} == {"created"}
    assert await stores.catalogue.revision() == 0
    assert not directory.agents
    with pytest.raises(NoBinding):
        directory.resolve(an_event())


@pytest.mark.parametrize(
    ("agents", "bindings", "error", "told"),
    [
        ([an_agent(id="new")], [a_binding(agent_id="nobody")], InvalidArgument, "'nobody'"),
        ([an_agent(id="new"), an_agent(id="new")], [], InvalidArgument, "agents[1].id"),
        (
            [an_agent(id="new")],
            [a_binding("b", agent_id="new"), a_binding("b", agent_id="new")],
            InvalidArgument,
            "bindings[1].id",
        ),
        ([an_agent(id="new")], [a_binding("twin", agent_id="new")], BindingConflict, "messages"),
    ],
)
async def test_one_fault_keeps_everything_out(
    directory: AgentDirectory,
    agents: list[Agent],
    bindings: list[Binding],
    error: type[HostError],
    told: str,
) -> None:
    await apply(directory, [an_agent()], [a_binding()])
    with pytest.raises(error) as raised:
        await apply(directory, agents, bindings)
    assert told in raised.value.message
    assert set(directory.agents) == {"helper"}
    await directory.reload()
    assert set(directory.agents) == {"helper"}
    assert set(directory.bindings) == {"messages"}


async def test_all_faults_are_told_at_once(directory: AgentDirectory) -> None:
    bindings = [a_binding("a", agent_id="x"), a_binding("b", agent_id="y")]
    with pytest.raises(InvalidArgument) as raised:
        await apply(directory, [], bindings)
    assert [fault.field for fault in raised.value.faults] == [
        "bindings[0].agent_id",
        "bindings[1].agent_id",
    ]


async def test_binding_that_makes_way_in_the_same_apply_is_no_conflict(
    directory: AgentDirectory,
) -> None:
    await apply(directory, [an_agent()], [a_binding()])
    moved = a_binding(workspace_id="acme")
    await apply(directory, [], [moved, a_binding("new")])
    assert directory.resolve(an_event())[0] == moved


async def test_two_conflicting_applies_at_once_are_not_both_taken(
    directory: AgentDirectory,
) -> None:
    await apply(directory, [an_agent()], [])
    outcomes = await asyncio.gather(
        apply(directory, [], [a_binding("one")]),
        apply(directory, [], [a_binding("other")]),
        return_exceptions=True,
    )
    assert [type(each) for each in outcomes] == [tuple, BindingConflict]
    assert set(directory.bindings) == {"one"}


async def test_bindings_of_a_disabled_agent_leave_the_event_to_wider_ones(
    directory: AgentDirectory,
) -> None:
    off = an_agent(id="off", enabled=False)
    narrow = a_binding("narrow", agent_id="off", actor_id="ann")
    await apply(directory, [an_agent(), off], [a_binding(), narrow])
    assert directory.resolve(an_event())[1].id == "helper"
    await apply(directory, [replace(off, enabled=True)], [])
    assert directory.resolve(an_event())[1].id == "off"


async def test_disabled_or_unknown_agent_cannot_be_named(directory: AgentDirectory) -> None:
    await apply(directory, [an_agent(), an_agent(id="off", enabled=False)], [])
    assert directory.named("helper").id == "helper"
    for agent_id in ("off", "nobody"):
        with pytest.raises(NotFound):
            directory.named(agent_id)


async def test_deleting_an_agent_takes_its_bindings_along(directory: AgentDirectory) -> None:
    await apply(directory, [an_agent(), an_agent(id="other")], [a_binding()])
    assert await directory.delete_agent("helper")
    assert not await directory.delete_agent("helper")
    assert set(directory.agents) == {"other"}
    assert not directory.bindings


async def test_deleted_binding_answers_no_more(directory: AgentDirectory) -> None:
    await apply(directory, [an_agent()], [a_binding()])
    assert await directory.delete_binding("messages")
    assert not await directory.delete_binding("messages")
    with pytest.raises(NoBinding):
        directory.resolve(an_event())


async def test_first_start_has_one_agent_for_every_message(directory: AgentDirectory) -> None:
    await directory.ensure_default(RUNNER)
    binding, agent = directory.resolve(an_event())
    assert (agent.id, agent.runner_id, binding.scope) == ("default", RUNNER, {})
    with pytest.raises(NoBinding):
        directory.resolve(an_event(type="group.member_joined"))


async def test_default_agent_is_made_at_the_very_first_start_only(
    directory: AgentDirectory, stores: Stores
) -> None:
    await directory.ensure_default(RUNNER)
    await directory.delete_agent("default")
    started = directory_over(stores)
    await started.ensure_default(RUNNER)
    await started.reload()
    assert not started.agents


async def test_catalogue_that_has_something_gets_no_default_agent(
    directory: AgentDirectory, stores: Stores
) -> None:
    await apply(directory, [an_agent()], [])
    await directory_over(stores).ensure_default(RUNNER)
    await directory.reload()
    assert set(directory.agents) == {"helper"}


async def test_conflict_that_is_in_the_data_all_the_same_is_told_at_dispatch(
    directory: AgentDirectory, stores: Stores
) -> None:
    await apply(directory, [an_agent()], [a_binding()])
    record = await stores.catalogue.get_binding("messages")
    assert record is not None
    await stores.catalogue.put_binding(replace(record, id="by another way"))
    await directory.reload()
    with pytest.raises(BindingConflict, match="by another way, messages"):
        directory.resolve(an_event())


async def test_two_hosts_never_store_bindings_that_tie(stores: Stores, tmp_path: Path) -> None:
    other = await open_stores(f"sqlite:///{tmp_path / 'stores.db'}")
    here, there = directory_over(stores), directory_over(other)
    await apply(here, [an_agent()], [])
    try:
        for number in range(5):
            room = f"room-{number}"
            outcomes = await asyncio.gather(
                apply(here, [], [a_binding(f"a-{number}", conversation_id=room)]),
                apply(there, [], [a_binding(f"b-{number}", conversation_id=room)]),
                return_exceptions=True,
            )
            assert sum(isinstance(each, BindingConflict) for each in outcomes) == 1, outcomes
    finally:
        await other.close()


async def test_others_who_never_stop_changing_things_are_told_of(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, elsewhere = directory_over(stores), directory_over(stores)
    reload, numbers = directory.reload, iter(range(100))

    async def changed_meanwhile() -> None:
        await reload()
        await apply(elsewhere, [an_agent(id=f"agent-{next(numbers)}")], [])

    monkeypatch.setattr(directory, "reload", changed_meanwhile)
    with pytest.raises(Conflict, match="apply again"):
        await apply(directory, [an_agent()], [])
    assert "helper" not in elsewhere.agents


async def test_follow_up_that_the_runner_cannot_is_refused_and_of_an_unknown_one_saved(
    stores: Stores,
) -> None:
    known = {RUNNER: RunnerKind(is_stateful=True, can_be_steered=False)}
    directory = directory_over(stores, kind_of=known.get)
    for follow_up in ("steer", "parallel"):
        with pytest.raises(InvalidArgument) as raised:
            await apply(directory, [an_agent(follow_up=follow_up)], [])
        (fault,) = raised.value.faults
        assert (fault.field, fault.got) == ("agents[0].follow_up", follow_up)
    for follow_up in ("", "queue", "interrupt", "reject"):
        await apply(directory, [an_agent(follow_up=follow_up)], [])
    stranger = an_agent(id="stranger", runner_id="plugin:acme/later/default", follow_up="steer")
    await apply(directory, [stranger], [])
    assert directory.agents["stranger"].follow_up == "steer"


async def test_changes_of_one_agent_at_once_are_all_kept(directory: AgentDirectory) -> None:
    await apply(directory, [an_agent()], [])

    def naming(base: str) -> Callable[[Agent], Agent]:
        return lambda agent: replace(agent, knowledge_bases=(*agent.knowledge_bases, base))

    await asyncio.gather(*(directory.change_agent("helper", naming(f"b{i}")) for i in range(8)))
    assert sorted(directory.agents["helper"].knowledge_bases) == [f"b{i}" for i in range(8)]
    with pytest.raises(NotFound, match="'nobody'"):
        await directory.change_agent("nobody", lambda agent: agent)
