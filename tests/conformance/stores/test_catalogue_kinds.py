"""The promises of the catalogue for what it keeps beside agents and bindings."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from stores import Stores, open_stores
from stores.errors import InvalidRecord, MissingReference, RevisionConflict
from stores.records import CatalogueItem, CatalogueKind
from tests.conformance.stores.samples import NOON, a_binding, an_agent, at


class Clock:
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


def an_item(kind: CatalogueKind = CatalogueKind.MODEL, id: str = "gpt", **changes: Any) -> Any:
    item = CatalogueItem(kind=kind, id=id, document='{"a": 1}')
    return replace(item, **changes)


@pytest.mark.parametrize("kind", CatalogueKind)
async def test_item_comes_back_with_revision_and_times(stores: Stores, kind: CatalogueKind) -> None:
    document = '{ "big": 9007199254740993, "text": "世界 \\\\u0000", "a": 1.0 }'
    given = an_item(kind, document=document, enabled=False)
    put = await stores.catalogue.put_item(given)
    assert put == replace(given, revision=1, created_at=NOON, updated_at=NOON)
    assert await stores.catalogue.get_item(kind, "gpt") == put
    assert (await stores.catalogue.list_items(kind), await stores.catalogue.list_items()) == (
        [put],
        [put],
    )


async def test_change_grows_the_revision_and_the_same_again_changes_nothing(
    stores: Stores, clock: Clock
) -> None:
    await stores.catalogue.put_item(an_item())
    clock.now = at(5)
    assert (await stores.catalogue.put_item(an_item())).updated_at == NOON
    assert await stores.catalogue.revision() == 1
    changed = await stores.catalogue.put_item(an_item(document="{}"))
    assert changed == an_item(document="{}", revision=2, created_at=NOON, updated_at=at(5))
    disabled = await stores.catalogue.put_item(an_item(document="{}", enabled=False))
    assert (disabled.revision, disabled.enabled) == (3, False)
    assert await stores.catalogue.revision() == 3


async def test_kinds_have_ids_of_their_own(stores: Stores) -> None:
    for number, kind in enumerate(CatalogueKind):
        await stores.catalogue.put_item(an_item(kind, "one", document=str(number)))
    for number, kind in enumerate(CatalogueKind):
        item = await stores.catalogue.get_item(kind, "one")
        assert item is not None
        assert (item.document, item.revision) == (str(number), 1)
    assert await stores.catalogue.delete_item(CatalogueKind.PLUGIN, "one") is True
    assert await stores.catalogue.delete_item(CatalogueKind.PLUGIN, "one") is False
    kinds = [item.kind for item in await stores.catalogue.list_items()]
    assert kinds == sorted(set(CatalogueKind) - {CatalogueKind.PLUGIN})
    assert await stores.catalogue.revision() == 6


async def test_items_are_listed_by_the_bytes_of_their_ids(stores: Stores) -> None:
    ids = ["b", "a", "C", "ä", "a-1", "acme/helper"]
    await stores.catalogue.apply([], [], [an_item(id=each) for each in ids])
    found = await stores.catalogue.list_items(CatalogueKind.MODEL)
    assert [item.id for item in found] == sorted(ids, key=str.encode)


async def test_stale_revision_is_refused(stores: Stores) -> None:
    await stores.catalogue.put_item(an_item(), expected_revision=0)
    for expected in (0, 2):
        with pytest.raises(RevisionConflict, match=f"model 'gpt' has revision 1, not {expected}"):
            await stores.catalogue.put_item(an_item(document="{}"), expected_revision=expected)
    with pytest.raises(RevisionConflict, match="plugin 'gpt' has revision 0, not 1"):
        await stores.catalogue.put_item(an_item(CatalogueKind.PLUGIN), expected_revision=1)
    assert (await stores.catalogue.put_item(an_item(document="{}"), expected_revision=1)).revision


async def test_one_of_several_writers_at_one_revision_wins(stores: Stores) -> None:
    await stores.catalogue.put_item(an_item())
    outcomes = await asyncio.gather(
        *(
            stores.catalogue.put_item(an_item(document=str(number)), expected_revision=1)
            for number in range(10)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, CatalogueItem) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, RevisionConflict) for outcome in outcomes) == 9


async def test_apply_stores_all_or_nothing(stores: Stores) -> None:
    items = [an_item(), an_item(CatalogueKind.POLICY, "acme")]
    with pytest.raises(MissingReference):
        await stores.catalogue.apply([an_agent()], [a_binding(agent_id="unknown")], items)
    assert await stores.catalogue.list_items() == []
    assert await stores.catalogue.revision() == 0
    applied = await stores.catalogue.apply([an_agent()], [a_binding()], items)
    assert [(item.kind, item.id, item.revision) for item in applied.items] == [
        ("model", "gpt", 1),
        ("policy", "acme", 1),
    ]
    assert (len(applied.agents), len(applied.bindings)) == (1, 1)
    assert await stores.catalogue.revision() == 1


async def test_one_id_twice_is_refused_at_once(stores: Stores) -> None:
    with pytest.raises(InvalidRecord, match="model: field id must be given once"):
        _ = stores.catalogue.apply([], [], [an_item(), an_item()])
    await stores.catalogue.apply([], [], [an_item(), an_item(CatalogueKind.PLUGIN)])


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"document": "{"}, "document must be JSON: it cannot be read"),
        ({"document": '{"a": NaN}'}, "NaN and Infinity"),
        ({"document": '{"a": 1, "a": 2}'}, "two members"),
        ({"document": '"\\u0000"'}, "U\\+0000"),
        ({"document": "a\0"}, "document must not contain U\\+0000"),
        ({"id": "a\0"}, "id must not contain U\\+0000"),
        ({"id": "x" * 256}, "id must be at most 255 bytes"),
        ({"id": ""}, "id must not be empty"),
    ],
)
async def test_item_that_cannot_be_stored_is_refused(
    stores: Stores, changes: dict[str, str], rule: str
) -> None:
    with pytest.raises(InvalidRecord, match=rule) as caught:
        _ = stores.catalogue.put_item(an_item(CatalogueKind.TOOL_SERVER, **changes))
    assert caught.value.record == "tool_server"
    assert await stores.catalogue.get_item(CatalogueKind.TOOL_SERVER, "a\0") is None
