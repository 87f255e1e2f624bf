"""The promises of the catalogue."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime

import pytest

from stores import Stores, open_stores
from stores.errors import InvalidRecord, MissingReference, RevisionConflict, StillReferenced
from tests.conformance.stores.samples import NOON, a_binding, an_agent, at


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stores(database_url: str, clock: Clock) -> AsyncIterator[Stores]:
    opened = await open_stores(database_url, clock=clock)
    yield opened
    await opened.close()


async def test_put_agent_comes_back_with_revision_and_times(stores: Stores) -> None:
    document = '{ "big": 9007199254740993, "text": "世界 \\u0000", "a": 1.0 }'
    given = an_agent(document=document, enabled=False)
    put = await stores.catalogue.put_agent(given)
    assert put == replace(given, revision=1, created_at=NOON, updated_at=NOON)
    assert await stores.catalogue.get_agent("agent") == put


async def test_change_grows_the_revision(stores: Stores, clock: Clock) -> None:
    await stores.catalogue.put_agent(an_agent())
    clock.now = at(5)
    put = await stores.catalogue.put_agent(an_agent(name="Other"))
    assert put == an_agent(name="Other", revision=2, created_at=NOON, updated_at=at(5))
    assert await stores.catalogue.get_agent("agent") == put
    assert await stores.catalogue.revision() == 2


async def test_putting_the_same_again_changes_nothing(stores: Stores, clock: Clock) -> None:
    await stores.catalogue.apply([an_agent()], [a_binding()])
    before = await stores.catalogue.revision()
    clock.now = at(5)
    applied = await stores.catalogue.apply([an_agent()], [a_binding()])
    assert applied.agents[0].updated_at == NOON
    assert applied.bindings[0].revision == 1
    assert await stores.catalogue.revision() == before


async def test_expected_revision_must_hold(stores: Stores) -> None:
    put = stores.catalogue.put_agent
    await put(an_agent(name="1"), expected_revision=0)
    await put(an_agent(name="2"), expected_revision=1)
    for expected in (0, 1, 3):
        with pytest.raises(RevisionConflict) as caught:
            await put(an_agent(name="3"), expected_revision=expected)
        assert (caught.value.expected, caught.value.actual) == (expected, 2)
    with pytest.raises(RevisionConflict):
        await put(an_agent("unknown"), expected_revision=1)
    stored = await stores.catalogue.get_agent("agent")
    assert stored is not None
    assert stored.name == "2"


async def test_of_two_that_read_the_same_revision_one_is_refused(stores: Stores) -> None:
    await stores.catalogue.put_agent(an_agent())
    puts = [stores.catalogue.put_agent(an_agent(name=name), expected_revision=1) for name in "ab"]
    first, second = await asyncio.gather(*puts, return_exceptions=True)
    assert not isinstance(first, BaseException)
    assert isinstance(second, RevisionConflict)


async def test_binding_needs_its_agent(stores: Stores) -> None:
    with pytest.raises(MissingReference, match="binding 'binding' names agent 'agent'"):
        await stores.catalogue.put_binding(a_binding())
    await stores.catalogue.put_agent(an_agent())
    put = await stores.catalogue.put_binding(a_binding(), expected_revision=0)
    assert await stores.catalogue.get_binding("binding") == put
    assert put == a_binding(revision=1, created_at=NOON, updated_at=NOON)


async def test_apply_stores_all_or_none(stores: Stores) -> None:
    agents = [an_agent("a"), an_agent("b")]
    bindings = [a_binding("x", agent_id="a"), a_binding("y", agent_id="unknown")]
    with pytest.raises(MissingReference):
        await stores.catalogue.apply(agents, bindings)
    assert await stores.catalogue.list_agents() == []
    assert await stores.catalogue.revision() == 0
    applied = await stores.catalogue.apply(agents, bindings[:1])
    assert [agent.id for agent in applied.agents] == ["a", "b"]
    assert [binding.id for binding in applied.bindings] == ["x"]
    assert await stores.catalogue.revision() == 1


@pytest.mark.parametrize(
    ("agents", "bindings"),
    [([an_agent(), an_agent()], []), ([an_agent()], [a_binding(), a_binding()])],
)
async def test_apply_of_one_id_twice_is_refused_at_once(
    stores: Stores, agents: list[object], bindings: list[object]
) -> None:
    with pytest.raises(InvalidRecord, match="must be given once"):
        _ = stores.catalogue.apply(agents, bindings)  # type: ignore[arg-type]


async def test_lists_are_by_id(stores: Stores) -> None:
    ids = ["b", "a", "C", "ä", "a-1"]
    await stores.catalogue.apply([an_agent(each) for each in ids], [])
    await stores.catalogue.apply([], [a_binding(each, agent_id=each) for each in ids])
    in_order = sorted(ids, key=str.encode)
    assert [agent.id for agent in await stores.catalogue.list_agents()] == in_order
    assert [binding.id for binding in await stores.catalogue.list_bindings()] == in_order
    assert [one.id for one in await stores.catalogue.list_bindings("a")] == ["a"]
    assert await stores.catalogue.list_bindings("unknown") == []


async def test_agent_is_deleted_when_nothing_names_it(stores: Stores) -> None:
    await stores.catalogue.apply([an_agent()], [a_binding("x"), a_binding("y")])
    with pytest.raises(StillReferenced, match="binding x, y") as caught:
        await stores.catalogue.delete_agent("agent")
    assert caught.value.by == ("x", "y")
    assert await stores.catalogue.delete_binding("x") is True
    assert await stores.catalogue.delete_binding("x") is False
    assert await stores.catalogue.delete_binding("y") is True
    assert await stores.catalogue.delete_agent("agent") is True
    assert await stores.catalogue.delete_agent("agent") is False
    assert await stores.catalogue.get_agent("agent") is None
    assert await stores.catalogue.get_binding("x") is None


async def test_every_change_grows_the_catalogues_revision(stores: Stores) -> None:
    assert await stores.catalogue.revision() == 0
    await stores.catalogue.put_agent(an_agent())
    await stores.catalogue.put_binding(a_binding())
    await stores.catalogue.put_binding(a_binding(enabled=False))
    await stores.catalogue.delete_binding("unknown")
    assert await stores.catalogue.revision() == 3
    await stores.catalogue.delete_binding("binding")
    await stores.catalogue.delete_agent("agent")
    assert await stores.catalogue.revision() == 5
