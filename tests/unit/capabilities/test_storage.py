"""Tests of `host_service.capabilities.storage`: areas, their owners, pages and sizes."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from runmesh.v1 import host_api_pb2, manifest_pb2

from host_service.authorization.tokens import RunAccess, RunTokens
from host_service.capabilities.gate import Gate
from host_service.capabilities.storage import Storage
from host_service.errors import InvalidArgument, NotFound, PayloadTooLarge, Unauthorized
from host_service.limits import Limits
from host_service.pages import PageTokens
from host_service.validation import Validator
from stores import Stores
from tests.unit.capabilities.test_gate import rights

PLUGIN = manifest_pb2.STORAGE_AREA_PLUGIN
WORKSPACE = manifest_pb2.STORAGE_AREA_WORKSPACE
BINDING = manifest_pb2.STORAGE_AREA_BINDING
ALL = frozenset({"plugin", "workspace", "binding"})


class Desk:
    """Storage behind the gate, and the access of a run that was granted all areas."""

    def __init__(self, stores: Stores, **limits: Any) -> None:
        self.limits = Limits(**limits)
        self._storage = Storage(store=stores.storage, pages=PageTokens(limits=self.limits))
        self._gate = Gate(
            audit=stores.audit,
            validator=Validator(self.limits.as_mapping()),
            clock=lambda: datetime.now(UTC),
        )
        self.access = self.open()

    def open(self, *, workspace: str = "acme", **changes: Any) -> RunAccess:
        tokens = RunTokens(limits=self.limits)
        snapshot = rights(**({"storage": ALL} | changes))
        snapshot = replace(snapshot, identity=replace(snapshot.identity, workspace=workspace))
        token = tokens.issue(snapshot=snapshot, instance_token="i")
        return tokens.check(authorization=f"Bearer {token}", instance_token="i")

    async def call(self, verb: str, access: RunAccess | None = None, /, **fields: Any) -> Any:
        request = getattr(host_api_pb2, f"{verb}StorageRequest")(**fields)
        work = getattr(self._storage, verb.lower())
        return await self._gate.answer(f"{verb}Storage", access or self.access, request, work)

    async def sees(self, access: RunAccess, area: int) -> bool:
        try:
            await self.call("Get", access, area=area, key="k")
        except NotFound:
            assert not (await self.call("List", access, area=area)).entries
            return False
        return True


@pytest.fixture
def desk(stores: Stores) -> Desk:
    return Desk(stores)


async def test_bytes_come_back_and_go(desk: Desk) -> None:
    for value in (b"", bytes(range(256))):
        await desk.call("Set", area=PLUGIN, key="k", value=value)
        read = await desk.call("Get", area=PLUGIN, key="k")
        assert read.value == value
        (entry,) = (await desk.call("List", area=PLUGIN)).entries
        assert (entry.key, entry.size_bytes) == ("k", len(value))
        assert entry.updated_at == read.updated_at
        assert read.updated_at.seconds
    assert (await desk.call("Delete", area=PLUGIN, key="k")).existed
    assert not (await desk.call("Delete", area=PLUGIN, key="k")).existed
    with pytest.raises(NotFound):
        await desk.call("Get", area=PLUGIN, key="k")


async def test_each_area_is_seen_by_those_it_belongs_to_and_nobody_else(desk: Desk) -> None:
    for area in (PLUGIN, WORKSPACE, BINDING):
        await desk.call("Set", area=area, key="k", value=b"mine")
    another_plugin = {"plugin_id": "acme/other", "runner_id": "plugin:acme/other/default"}
    beside: dict[str, tuple[RunAccess, set[int]]] = {
        "another run": (desk.open(run_id="run-2"), {PLUGIN, WORKSPACE, BINDING}),
        "another workspace": (desk.open(workspace="other"), {PLUGIN, BINDING}),
        "another agent": (desk.open(agent_id="other"), {PLUGIN, WORKSPACE}),
        "another runner": (desk.open(runner_id="plugin:acme/desk/b"), {PLUGIN, WORKSPACE}),
        "another plugin": (desk.open(**another_plugin), {WORKSPACE}),
        "nobody": (desk.open(**another_plugin, workspace="other", agent_id="x"), set()),
        # Ids that would meet if parts were only put one behind the other.
        "alike": (
            desk.open(runner_id="plugin:acme/desk/defaultdefault", agent_id=""),
            {PLUGIN, WORKSPACE},
        ),
    }
    for name, (access, expected) in beside.items():
        seen = {area for area in (PLUGIN, WORKSPACE, BINDING) if await desk.sees(access, area)}
        assert seen == expected, name


async def test_area_that_was_not_granted_is_refused_whatever_the_key(desk: Desk) -> None:
    access = desk.open(storage=frozenset({"plugin"}))
    for area in (WORKSPACE, BINDING):
        for verb, fields in (
            ("Get", {"key": "k"}),
            ("Set", {"key": "k"}),
            ("Delete", {"key": "k"}),
            ("List", {}),
        ):
            with pytest.raises(Unauthorized):
                await desk.call(verb, access, area=area, **fields)


async def test_largest_value_is_stored_and_one_byte_more_is_not(desk: Desk) -> None:
    largest = b"x" * (3 * 1024 * 1024)
    await desk.call("Set", area=PLUGIN, key="k", value=largest)
    with pytest.raises(PayloadTooLarge) as told:
        await desk.call("Set", area=PLUGIN, key="k", value=largest + b"x")
    assert told.value.facts == {"size": "3145729", "limit": "3145728"}
    assert (await desk.call("Get", area=PLUGIN, key="k")).value == largest


async def test_pages_go_through_all_keys_once_and_tokens_stay_with_their_owner(
    desk: Desk,
) -> None:
    keys = sorted([f"n{number}" for number in range(5)] + ["n🦉" * 51], key=str.encode)
    for key in [*keys, "other"]:
        await desk.call("Set", area=WORKSPACE, key=key, value=b"1")
    found, token = [], ""
    while True:
        page = await desk.call("List", area=WORKSPACE, prefix="n", page_size=2, page_token=token)
        found += [entry.key for entry in page.entries]
        if not page.next_page_token:
            break
        token = page.next_page_token
    assert found == keys
    elsewhere = desk.open(workspace="other")
    with pytest.raises(InvalidArgument):
        await desk.call(
            "List", elsewhere, area=WORKSPACE, prefix="n", page_size=2, page_token=token
        )
