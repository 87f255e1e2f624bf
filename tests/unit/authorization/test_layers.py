"""Tests of the three layers: what the manifest asks for, the agent grants, the workspace allows."""

from collections.abc import Mapping
from typing import Any

import pytest

from host_service.agents.agent import Agent, Scope
from host_service.agents.selectors import Selection
from host_service.authorization.grants import Grant
from host_service.authorization.policy import Allowance, WorkspacePolicy
from host_service.authorization.snapshot import Asked, GivenFile, Snapshot, freeze, left_out
from host_service.catalogue.documents import item_of
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.model import Model
from host_service.catalogue.shelf import Shelf
from host_service.catalogue.tool_server import ToolServer
from tests.unit.runs.samples import an_agent, an_event

EVERYTHING = {
    "models": frozenset({"invoke", "stream", "rerank", "embed"}),
    "tools": frozenset({"detail", "call"}),
    "knowledge_bases": frozenset({"list", "retrieve"}),
    "history": frozenset({"page", "search"}),
    "files": frozenset({"config"}),
}
CAPABILITIES = frozenset({"tool_calling", "knowledge_retrieval", "skill_authoring", "platform_api"})


def a_model(id: str = "small", kind: str = "chat", **changes: Any) -> Model:
    fields: dict[str, Any] = {"id": id, "kind": kind, "provider": "openai", "model_name": id}
    return Model(**(fields | changes))


SERVER = ToolServer(id="files", command="mcp-files", enabled_tools=("read", "write"))
BASE = KnowledgeBase(id="handbook", name="The handbook")


def a_shelf(*things: Any) -> Shelf:
    return Shelf.of(item_of(each) for each in things or (a_model(), SERVER, BASE))


def asking(
    permissions: Mapping[str, frozenset[str]] = EVERYTHING,
    capabilities: frozenset[str] = CAPABILITIES,
) -> Asked:
    return Asked(
        permissions=permissions,
        storage=frozenset({"plugin", "workspace", "binding"}),
        actions=frozenset({"message.send", "message.recall"}),
        capabilities=capabilities,
    )


def frozen(
    agent: Agent | None = None, *selected: Selection, asked: Asked | None = None, **around: Any
) -> Snapshot:
    agent = agent or an_agent()
    return freeze(
        run_id="run-1",
        plugin_id=agent.plugin_id,
        agent=agent,
        asked=asked or asking(),
        identity=an_event().identity(),
        selections=selected,
        **({"shelf": a_shelf()} | around),
    )


def grant(snapshot: Snapshot, kind: str, name: str) -> Grant:
    (found,) = [each for each in snapshot.trace if (each.kind, each.name) == (kind, name)]
    return found


def under(**policy: Any) -> Shelf:
    workspace = an_event().identity().workspace
    return a_shelf(a_model(), SERVER, BASE, WorkspacePolicy(id=workspace, **policy))


GRANTING = an_agent(
    models=("small",),
    tools=("files__read",),
    knowledge_bases=("handbook",),
    storage_areas=frozenset({"plugin", "workspace"}),
    actions=frozenset({"message.send"}),
    state_scopes=frozenset({Scope.CONVERSATION, Scope.ACTOR}),
    history_beyond_conversation=True,
)


def test_configuration_grants_what_it_selects_and_the_policy_adds_to_it() -> None:
    agent = an_agent(models=("large",), tools=("files__write",))
    snapshot = frozen(
        agent,
        Selection("model", "small", "model"),
        Selection("tool", "files__read", "tools"),
        Selection("knowledge_base", "handbook", "bases"),
        shelf=a_shelf(a_model(), a_model("large"), SERVER, BASE),
    )
    assert snapshot.models == {"small", "large"}
    assert snapshot.tools == {"files__read", "files__write"}
    assert snapshot.knowledge_bases == {"handbook"}
    assert [each.id for each in snapshot.resources.models] == ["large", "small"]
    assert snapshot.resources.knowledge_bases == (BASE,)
    assert grant(snapshot, "model", "small").granted_by == "config.model"
    assert grant(snapshot, "model", "large").granted_by == "resources.models"


def test_what_nobody_selects_is_not_granted_however_much_there_is() -> None:
    snapshot = frozen()
    assert (snapshot.models, snapshot.tools, snapshot.knowledge_bases) == (frozenset(),) * 3
    assert not any(each.kind in {"model", "tool", "knowledge_base"} for each in snapshot.trace)


@pytest.mark.parametrize(
    ("kind", "permission"),
    [("chat", "invoke"), ("chat", "stream"), ("rerank", "rerank"), ("embedding", "embed")],
)
def test_model_is_given_to_who_asks_for_a_call_of_its_kind(kind: str, permission: str) -> None:
    agent, shelf = an_agent(models=("m",)), a_shelf(a_model("m", kind))
    for each in ("invoke", "stream", "rerank", "embed"):
        asked = asking({"models": frozenset({each})})
        fits = each == permission or {each, permission} == {"invoke", "stream"}
        snapshot = frozen(agent, asked=asked, shelf=shelf)
        assert snapshot.models == ({"m"} if fits else frozenset())
        assert grant(snapshot, "model", "m").limited_by == ("" if fits else "manifest")


def test_tools_and_knowledge_take_the_capability_as_well() -> None:
    for without in ("tool_calling", "knowledge_retrieval"):
        snapshot = frozen(GRANTING, asked=asking(capabilities=CAPABILITIES - {without}))
        assert bool(snapshot.tools) == (without != "tool_calling")
        assert bool(snapshot.knowledge_bases) == (without != "knowledge_retrieval")


@pytest.mark.parametrize(
    ("selection", "shelf"),
    [
        (Selection("model", "gone", "model"), a_shelf()),
        (Selection("model", "small", "model"), a_shelf(a_model(enabled=False))),
        (Selection("tool", "files__delete", "tools"), a_shelf()),
        (Selection("tool", "files", "tools"), a_shelf()),
        (Selection("tool", "other__read", "tools"), a_shelf()),
        (Selection("tool", "files__read", "tools"), a_shelf(ToolServer(id="files", enabled=False))),
        (Selection("knowledge_base", "gone", "bases"), a_shelf()),
        (
            Selection("knowledge_base", "handbook", "bases"),
            a_shelf(KnowledgeBase(id="handbook", enabled=False)),
        ),
        (Selection("file", "artifact-9", "manual"), a_shelf()),
    ],
)
def test_what_is_not_there_any_more_is_left_out_and_told(
    selection: Selection, shelf: Shelf
) -> None:
    snapshot = frozen(None, selection, shelf=shelf)
    (lost,) = left_out(snapshot.trace)
    assert (lost.kind, lost.name, lost.granted) == (selection.kind, selection.name, False)
    assert lost.granted_by == f"config.{selection.field}"
    assert not snapshot.models | snapshot.tools | snapshot.knowledge_bases | snapshot.files


def test_server_without_a_choice_of_tools_offers_all_of_them() -> None:
    agent = an_agent(tools=("all__anything", "all__"))
    assert frozen(agent, shelf=a_shelf(ToolServer(id="all"))).tools == {"all__anything"}


def test_files_of_the_configuration_are_given_where_they_are_asked_for() -> None:
    file = GivenFile(artifact_id="artifact-1", name="manual.pdf", mime_type="application/pdf")
    selected = Selection("file", "artifact-1", "manual")
    snapshot = frozen(None, selected, files=[file])
    assert snapshot.files == {"artifact-1"}
    assert snapshot.resources.files == (file,)
    asked = asking({"files": frozenset({"knowledge"})})
    assert frozen(None, selected, files=[file], asked=asked).files == frozenset()


@pytest.mark.parametrize(
    ("limit", "kind", "name"),
    [
        ({"models": frozenset()}, "model", "small"),
        ({"tools": frozenset({"files__write"})}, "tool", "files__read"),
        ({"knowledge_bases": frozenset()}, "knowledge_base", "handbook"),
        ({"storage_areas": frozenset({"plugin"})}, "storage", "workspace"),
        ({"actions": frozenset({"message.recall"})}, "action", "message.send"),
        ({"state_scopes": frozenset({"conversation"})}, "state", "actor"),
        ({"history_beyond_conversation": False}, "history", "beyond conversation"),
    ],
)
@pytest.mark.parametrize("whose", ["workspace", "bot", "actor"])
def test_policy_cuts_exactly_what_it_does_not_let_through(
    limit: dict[str, Any], kind: str, name: str, whose: str
) -> None:
    identity, allowance = an_event().identity(), Allowance(**limit)
    policies = {
        "workspace": under(allowance=allowance),
        "bot": under(bots=((identity.bot, allowance), ("another", Allowance()))),
        "actor": under(actors=((identity.actor_id, allowance),)),
    }
    free, limited = frozen(GRANTING), frozen(GRANTING, shelf=policies[whose])
    assert grant(free, kind, name).granted
    cut = grant(limited, kind, name)
    assert not cut.granted
    ids = {"workspace": identity.workspace, "bot": identity.bot, "actor": identity.actor_id}
    assert cut.limited_by == f"policy of {whose} {ids[whose]}"
    others = [each for each in free.trace if (each.kind, each.name) != (kind, name)]
    assert [each for each in limited.trace if each != cut] == others


def test_snapshot_has_what_the_policy_leaves() -> None:
    nothing = Allowance(
        models=frozenset(),
        tools=frozenset(),
        knowledge_bases=frozenset(),
        storage_areas=frozenset(),
        actions=frozenset(),
        state_scopes=frozenset(),
        history_beyond_conversation=False,
    )
    free, bare = frozen(GRANTING), frozen(GRANTING, shelf=under(allowance=nothing))
    assert free.models
    assert free.wider_history
    assert not bare.models | bare.tools | bare.knowledge_bases | bare.storage | bare.actions
    assert bare.state_keys == {}
    assert not bare.wider_history
    assert (bare.resources.models, bare.resources.knowledge_bases) == ((), ())
    # Permissions are the manifest's: a call without anything to call is NOT_FOUND.
    assert bare.permissions == free.permissions


def test_policies_only_ever_take_away() -> None:
    generous = Allowance(models=frozenset({"small", "large"}), actions=frozenset({"group.kick"}))
    snapshot = frozen(an_agent(), shelf=under(allowance=generous))
    assert (snapshot.models, snapshot.actions) == (frozenset(), frozenset())


@pytest.mark.parametrize(
    "policy",
    [
        {"bots": (("another", Allowance(models=frozenset())),)},
        {"actors": (("another", Allowance(models=frozenset())),)},
        {"allowance": Allowance(models=frozenset()), "enabled": False},
    ],
)
def test_policy_of_somebody_else_or_that_is_off_limits_nothing(policy: dict[str, Any]) -> None:
    assert frozen(GRANTING, shelf=under(**policy)).models == {"small"}


def test_policy_of_another_workspace_limits_nothing() -> None:
    other = WorkspacePolicy(id="elsewhere", allowance=Allowance(models=frozenset()))
    assert frozen(GRANTING, shelf=a_shelf(a_model(), SERVER, BASE, other)).models == {"small"}


def test_event_that_names_no_bot_or_actor_is_under_no_ones_limit() -> None:
    limited = (("", Allowance(models=frozenset())),)
    event = an_event(bot_id="", actor=None)
    snapshot = freeze(
        run_id="run-1",
        plugin_id="acme/desk",
        agent=GRANTING,
        asked=asking(),
        identity=event.identity(),
        shelf=under(bots=limited, actors=limited),
    )
    assert snapshot.models == {"small"}


def test_catalogue_may_change_and_the_snapshot_does_not() -> None:
    before = a_shelf(a_model(base_url="https://one.example"))
    snapshot = frozen(an_agent(models=("small",)), shelf=before)
    after = frozen(an_agent(models=("small",)), shelf=a_shelf(a_model(base_url="https://two")))
    assert snapshot.resources.models[0].base_url == "https://one.example"
    assert after.resources.models[0].base_url == "https://two"


def test_instructions_are_those_of_a_policy_that_is_on() -> None:
    assert frozen(shelf=under(instructions="Speak up.")).instructions == "Speak up."
    assert frozen(shelf=under(instructions="Speak up.", enabled=False)).instructions == ""
    assert frozen().instructions == ""


def test_every_row_says_why() -> None:
    trace = frozen(an_agent(), shelf=under(allowance=Allowance(storage_areas=frozenset()))).trace
    told = {(each.kind, each.name): (each.granted_by, each.limited_by) for each in trace}
    assert told["permission", "history: page"] == ("manifest", "")
    assert told["storage", "workspace"] == ("", "agent")
    assert told["storage", "plugin"][1].startswith("policy of workspace")
    assert told["action", "message.send"] == ("", "agent")
    assert told["history", "beyond conversation"] == ("", "agent")
    assert all(each.granted == (not each.limited_by) for each in trace)
    assert len(told) == len(trace)


def test_state_without_an_identity_is_cut_by_the_event() -> None:
    agent = an_agent(state_scopes=frozenset(Scope))
    event = an_event(conversation_id="", thread_id="", actor=None)
    snapshot = freeze(
        run_id="run-1",
        plugin_id=agent.plugin_id,
        agent=agent,
        asked=asking(),
        identity=event.identity(),
    )
    for scope in ("conversation", "actor", "subject"):
        assert grant(snapshot, "state", scope).limited_by == "event"
    assert set(snapshot.state_keys) == {Scope.RUNNER, Scope.BINDING, Scope.WORKSPACE}


def test_policy_comes_back_from_its_document() -> None:
    policy = WorkspacePolicy(
        id="acme",
        allowance=Allowance(models=frozenset({"a", "b"}), actions=frozenset()),
        bots=(("b1", Allowance(history_beyond_conversation=False)),),
        actors=(("世界", Allowance(state_scopes=frozenset({"actor"}))),),
        instructions="Say 你好.",
        enabled=False,
    )
    assert WorkspacePolicy.from_item(item_of(policy)) == policy
