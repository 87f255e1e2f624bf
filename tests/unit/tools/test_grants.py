"""What `server__*` grants: what a server offers, as far as every layer lets it through."""

from host_service.agents.agent import Agent
from host_service.authorization.policy import Allowance
from host_service.authorization.snapshot import Asked, EventIdentity, Snapshot, freeze
from host_service.catalogue.shelf import Shelf
from host_service.catalogue.tool import Tool, Toolset
from host_service.catalogue.tool_server import ToolServer

ASKED = Asked(
    permissions={"tools": frozenset({"call"})},
    storage=frozenset(),
    actions=frozenset(),
    capabilities=frozenset({"tool_calling"}),
)
IDENTITY = EventIdentity(
    workspace="",
    bot="",
    source="",
    event_id="",
    conversation_id="",
    thread_id="",
    conversation_key="",
    actor_type="",
    actor_id="",
    subject_type="",
    subject_id="",
)


def offered(*names: str) -> Toolset:
    tools = tuple(
        Tool(name=f"files__{name}", server_id="files", own_name=name, description=name)
        for name in names
    )
    return Toolset({"files": tools})


def frozen(
    *tools: str, toolset: Toolset | None = None, asked: Asked = ASKED, **server: object
) -> Snapshot:
    found = ToolServer(id="files", command="x", **server)  # type: ignore[arg-type]
    return freeze(
        run_id="r",
        plugin_id="a/b",
        agent=Agent(id="a", runner_id="plugin:a/b/c", tools=tools),
        asked=asked,
        identity=IDENTITY,
        shelf=Shelf(tool_servers={"files": found}),
        toolset=toolset or Toolset(),
    )


def test_star_stands_for_what_is_offered_and_says_so() -> None:
    snapshot = frozen("files__*", toolset=offered("read", "write"))
    assert snapshot.tools == {"files__read", "files__write"}
    assert [each.name for each in snapshot.resources.tools] == ["files__read", "files__write"]
    assert {each.granted_by for each in snapshot.trace if each.kind == "tool"} == {
        "resources.tools: files__*"
    }


def test_tool_that_is_named_too_is_granted_by_its_name() -> None:
    for names in (("files__read", "files__*"), ("files__*", "files__read")):
        snapshot = frozen(*names, toolset=offered("read", "write"))
        by = {each.name: each.granted_by for each in snapshot.trace if each.kind == "tool"}
        assert by == {
            "files__read": "resources.tools",
            "files__write": "resources.tools: files__*",
        }


def test_star_of_a_server_that_offers_nothing_is_left_out_and_told() -> None:
    snapshot = frozen("files__*")
    assert snapshot.tools == frozenset()
    grant = next(each for each in snapshot.trace if each.kind == "tool")
    assert (grant.name, grant.limited_by) == ("files__*", "catalogue")


def test_named_tool_is_there_until_its_server_says_otherwise() -> None:
    assert frozen("files__gone").tools == {"files__gone"}
    assert frozen("files__gone", toolset=offered("read")).tools == frozenset()


def test_disabled_servers_and_tools_are_not_granted() -> None:
    assert frozen("files__*", toolset=offered("read"), enabled=False).tools == frozenset()
    some = frozen("files__*", toolset=offered("read", "write"), enabled_tools=("read",))
    assert some.tools == {"files__read"}


def test_runner_that_asks_for_no_tools_gets_none() -> None:
    nothing = Asked(
        permissions={}, storage=frozenset(), actions=frozenset(), capabilities=frozenset()
    )
    assert frozen("files__*", toolset=offered("read"), asked=nothing).tools == frozenset()


def test_allowance_lets_tools_through_by_their_names_or_by_a_star() -> None:
    allowance = Allowance(tools=frozenset({"files__*", "web__get"}), models=frozenset({"a__*"}))
    assert allowance.lets("tools", "files__read")
    assert allowance.lets("tools", "web__get")
    assert not allowance.lets("tools", "web__post")
    assert not allowance.lets("models", "a__b")
