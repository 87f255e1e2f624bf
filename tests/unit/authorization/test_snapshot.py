"""Tests of `host_service.authorization.snapshot`: what a run may do, and where its state lies."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_service.agents.agent import Agent, Scope
from host_service.authorization.snapshot import Asked, EventIdentity, Snapshot, freeze
from host_service.runs.event import conversation_key
from tests.unit.runs.samples import RUNNER, an_agent, an_event

ALL_SCOPES = frozenset(Scope)


def asking(**changes: Any) -> Asked:
    fields: dict[str, Any] = {
        "permissions": {"history": frozenset({"page"}), "events": frozenset()},
        "storage": frozenset({"plugin", "workspace", "binding"}),
        "actions": frozenset({"message.send", "message.recall"}),
        "capabilities": frozenset({"platform_api"}),
    }
    return Asked(**(fields | changes))


def frozen(
    agent: Agent | None = None, asked: Asked | None = None, identity: EventIdentity | None = None
) -> Snapshot:
    agent = agent or an_agent(state_scopes=ALL_SCOPES)
    return freeze(
        run_id="run-1",
        plugin_id=agent.plugin_id,
        agent=agent,
        asked=asked or asking(),
        identity=identity or an_event(subject={"type": "message", "id": "m"}).identity(),
    )


def test_only_what_the_manifest_asks_for_is_granted() -> None:
    snapshot = frozen()
    assert snapshot.grants("history", "page")
    assert not snapshot.grants("history", "search")
    assert not snapshot.grants("events", "get")
    assert not snapshot.grants("no such group", "page")


def test_storage_takes_both_manifest_and_agent() -> None:
    assert frozen(an_agent()).storage == {"plugin", "binding"}
    agent = an_agent(storage_areas=frozenset({"workspace", "binding"}))
    asked = asking(storage=frozenset({"plugin", "binding"}))
    assert frozen(agent, asked).storage == {"binding"}
    assert frozen(an_agent(storage_areas=frozenset())).storage == frozenset()


def test_actions_take_manifest_agent_and_the_capability() -> None:
    agent = an_agent(actions=frozenset({"message.send", "group.kick"}))
    assert frozen(agent).actions == {"message.send"}
    assert frozen(an_agent()).actions == frozenset()
    assert frozen(agent, asking(capabilities=frozenset())).actions == frozenset()


def test_agent_grants_no_state_at_all_when_its_state_is_off() -> None:
    agent = an_agent(state_enabled=False, state_scopes=ALL_SCOPES)
    assert frozen(agent).state_keys == {}


def test_state_is_granted_in_the_scopes_of_the_policy_only() -> None:
    assert set(frozen().state_keys) == ALL_SCOPES
    assert set(frozen(an_agent()).state_keys) == {Scope.CONVERSATION, Scope.ACTOR}


@pytest.mark.parametrize(
    ("lacking", "absent"),
    [
        ({"conversation_id": "", "thread_id": ""}, Scope.CONVERSATION),
        ({"actor": None}, Scope.ACTOR),
        ({"actor": {"type": "user"}}, Scope.ACTOR),
        ({"subject": {"type": "message"}}, Scope.SUBJECT),
    ],
)
def test_scope_that_the_event_has_no_identity_for_is_absent(
    lacking: Mapping[str, Any], absent: Scope
) -> None:
    event = an_event(**{"subject": {"type": "message", "id": "m"}, **lacking})
    assert set(frozen(identity=event.identity()).state_keys) == ALL_SCOPES - {absent}


def test_rights_cannot_be_changed_once_they_are_frozen() -> None:
    permissions = {"history": frozenset({"page"})}
    snapshot = frozen(asked=asking(permissions=permissions))
    permissions["history"] = frozenset({"page", "search"})
    assert not snapshot.grants("history", "search")
    with pytest.raises(TypeError):
        snapshot.permissions["events"] = frozenset({"get"})  # type: ignore[index]  # it must not
    with pytest.raises(TypeError):
        snapshot.state_keys[Scope.ACTOR] = "another's"  # type: ignore[index]  # it must not
    with pytest.raises(AttributeError):
        snapshot.wider_history = True  # type: ignore[misc]  # it must not


def test_history_of_other_conversations_takes_the_agents_policy() -> None:
    assert not frozen().wider_history
    assert frozen(an_agent(history_beyond_conversation=True)).wider_history


# What each scope is keyed by, and nothing else: two events, agents or runners share a key exactly
# when all of these are equal.
_KEYED_BY: Mapping[Scope, tuple[str, ...]] = {
    Scope.CONVERSATION: ("runner", "agent", "workspace", "bot", "conversation", "thread"),
    Scope.ACTOR: ("runner", "agent", "workspace", "bot", "actor_type", "actor_id"),
    Scope.SUBJECT: ("runner", "agent", "workspace", "bot", "subject_type", "subject_id"),
    Scope.BINDING: ("runner", "agent"),
    Scope.RUNNER: ("runner", "workspace"),
    Scope.WORKSPACE: ("plugin", "workspace"),
}
# Short texts of the very characters that a careless way to join them would trip over.
_parts = st.text(":|/\\%0123a", max_size=3)
_names = {"author": ["acme", "zed"], "runner_name": ["fast", "slow"]}
_FIELDS = (
    *_names,
    "agent",
    "workspace",
    "bot",
    "conversation",
    "thread",
    "actor_type",
    "actor_id",
    "subject_type",
    "subject_id",
)
_worlds = st.fixed_dictionaries(
    {name: st.sampled_from(_names[name]) if name in _names else _parts for name in _FIELDS}
)


def _state_keys(world: Mapping[str, str]) -> Mapping[Scope, str]:
    runner_id = f"plugin:{world['author']}/desk/{world['runner_name']}"
    return frozen(
        an_agent(id=world["agent"], runner_id=runner_id, state_scopes=ALL_SCOPES),
        identity=EventIdentity(
            workspace=world["workspace"],
            bot=world["bot"],
            source="api",
            event_id="event-1",
            conversation_id=world["conversation"],
            thread_id=world["thread"],
            conversation_key=conversation_key(
                workspace=world["workspace"],
                bot=world["bot"],
                conversation=world["conversation"],
                thread=world["thread"],
            ),
            actor_type=world["actor_type"],
            actor_id=world["actor_id"],
            subject_type=world["subject_type"],
            subject_id=world["subject_id"],
        ),
    ).state_keys


def _identity(world: Mapping[str, str], scope: Scope) -> tuple[str, ...]:
    known = {
        **world,
        "runner": f"{world['author']}/{world['runner_name']}",
        "plugin": world["author"],
    }
    return tuple(known[name] for name in _KEYED_BY[scope])


@given(_worlds, _worlds, st.sets(st.sampled_from(_FIELDS)))
@settings(max_examples=120, deadline=None)
def test_two_different_scopes_never_share_a_key_and_the_same_one_always_does(
    one: dict[str, str], other: dict[str, str], differing: set[str]
) -> None:
    # Alike but for some fields, since two random worlds are hardly ever alike in anything.
    other = {name: (other if name in differing else one)[name] for name in one}
    keys, other_keys = _state_keys(one), _state_keys(other)
    assert len(set(keys.values())) == len(keys)
    for scope, key in keys.items():
        for other_scope, other_key in other_keys.items():
            same = scope is other_scope and _identity(one, scope) == _identity(other, scope)
            assert (key == other_key) is same


def test_state_of_a_runner_is_not_that_of_another_runner_of_the_plugin() -> None:
    other = an_agent(runner_id=RUNNER.replace("default", "other"), state_scopes=ALL_SCOPES)
    mine, theirs = frozen().state_keys, frozen(other).state_keys
    assert {scope for scope in ALL_SCOPES if mine[scope] == theirs[scope]} == {Scope.WORKSPACE}
