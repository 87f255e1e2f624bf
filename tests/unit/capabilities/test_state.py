"""Tests of `host_service.capabilities.state`: a run's scopes, versions, pages and sizes."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from runmesh.v1 import host_api_pb2, result_pb2

from host_service.agents.agent import Scope
from host_service.authorization.tokens import RunAccess, RunTokens
from host_service.capabilities.gate import Gate
from host_service.capabilities.state import State
from host_service.errors import Conflict, InvalidArgument, NotFound, PayloadTooLarge, Unauthorized
from host_service.limits import Limits
from host_service.pages import PageTokens
from host_service.validation import Validator
from stores import Stores
from tests.unit.capabilities.test_gate import rights

CONVERSATION = result_pb2.STATE_SCOPE_CONVERSATION
ACTOR = result_pb2.STATE_SCOPE_ACTOR
BINDING = result_pb2.STATE_SCOPE_BINDING
KEYS = {Scope.CONVERSATION: "talk", Scope.BINDING: "agent", Scope.RUNNER: "runner"}


class Desk:
    """State behind the gate, and the access of a run."""

    def __init__(self, stores: Stores, **limits: Any) -> None:
        self.limits = Limits(**limits)
        self.stores = stores
        self._state = State(
            store=stores.state, pages=PageTokens(limits=self.limits), limits=self.limits
        )
        self._gate = Gate(
            audit=stores.audit,
            validator=Validator(self.limits.as_mapping()),
            clock=lambda: datetime.now(UTC),
        )
        self.access = self.open()

    def open(self, **changes: Any) -> RunAccess:
        tokens = RunTokens(limits=self.limits)
        snapshot = rights(**({"state_keys": KEYS} | changes))
        token = tokens.issue(snapshot=snapshot, instance_token="i")
        return tokens.check(authorization=f"Bearer {token}", instance_token="i")

    async def call(self, verb: str, access: RunAccess | None = None, /, **fields: Any) -> Any:
        request = getattr(host_api_pb2, f"{verb}StateRequest")(**fields)
        work = getattr(self._state, verb.lower())
        return await self._gate.answer(f"{verb}State", access or self.access, request, work)


@pytest.fixture
def desk(stores: Stores) -> Desk:
    return Desk(stores)


async def test_value_is_read_as_it_was_written_with_all_its_digits(desk: Desk) -> None:
    text = '{"id": 9223372036854775807, "text": "\\u00e9 🦉", "n": 1.10}'
    written = await desk.call("Set", scope=CONVERSATION, key="k", value_json=text)
    assert written.version == 1
    entry = (await desk.call("Get", scope=CONVERSATION, key="k")).entry
    assert (entry.key, entry.value_json, entry.version) == ("k", text, 1)
    assert abs(entry.updated_at.ToDatetime(UTC).timestamp() - datetime.now(UTC).timestamp()) < 60


async def test_stale_version_is_a_conflict_that_names_the_one_that_holds(desk: Desk) -> None:
    place = {"scope": CONVERSATION, "key": "k"}
    await desk.call("Set", **place, value_json="1", expected_version=0)
    await desk.call("Set", **place, value_json="2", expected_version=1)
    for verb, fields in (("Set", {"value_json": "3"}), ("Delete", {})):
        for stale in (0, 1, 7):
            with pytest.raises(Conflict) as told:
                await desk.call(verb, **place, **fields, expected_version=stale)
            assert told.value.facts == {"resource": "k", "version": "2"}
    assert (await desk.call("Get", **place)).entry.value_json == "2"
    assert (await desk.call("Delete", **place, expected_version=2)).existed
    assert not (await desk.call("Delete", **place)).existed
    with pytest.raises(Conflict):
        await desk.call("Delete", **place, expected_version=2)
    with pytest.raises(NotFound):
        await desk.call("Get", **place)
    # What comes again is another value, and has another version.
    assert (await desk.call("Set", **place, value_json="4", expected_version=0)).version == 3


async def test_scope_is_the_runs_own_and_one_that_was_not_granted_is_refused(desk: Desk) -> None:
    other = desk.open(state_keys={Scope.CONVERSATION: "another talk", Scope.ACTOR: "ann"})
    await desk.call("Set", scope=CONVERSATION, key="k", value_json='"mine"')
    with pytest.raises(NotFound):
        await desk.call("Get", other, scope=CONVERSATION, key="k")
    await desk.call("Set", other, scope=CONVERSATION, key="k", value_json='"theirs"')
    assert (await desk.call("Get", scope=CONVERSATION, key="k")).entry.value_json == '"mine"'
    for verb, fields in (
        ("Get", {"key": "k"}),
        ("Set", {"key": "k", "value_json": "1"}),
        ("Delete", {"key": "k"}),
        ("List", {}),
    ):
        with pytest.raises(Unauthorized):
            await desk.call(verb, scope=ACTOR, **fields)


async def test_sizes_are_those_in_force_to_the_byte(stores: Stores) -> None:
    largest = json.dumps("x" * (256 * 1024 - 2))
    desk = Desk(stores)
    await desk.call("Set", scope=CONVERSATION, key="k", value_json=largest)
    with pytest.raises(PayloadTooLarge) as told:
        await desk.call("Set", scope=CONVERSATION, key="k", value_json=largest + " ")
    assert told.value.facts == {"size": "262145", "limit": "262144"}


async def test_what_is_no_json_is_refused_before_the_store(desk: Desk) -> None:
    for bad in ("", "{", "NaN", '{"a": 1, "a": 2}', '"\\u0000"', "[" * 65 + "]" * 65):
        with pytest.raises(InvalidArgument):
            await desk.call("Set", scope=CONVERSATION, key="k", value_json=bad)


async def test_pages_go_through_all_keys_of_a_prefix_once(desk: Desk) -> None:
    # Keys whose JSON is many times as long as they are: a page token has room for 1,024 bytes.
    keys = sorted(
        [f"n{number}" for number in range(7)] + ["n🦉" * 51, "n" + "\x01" * 254], key=str.encode
    )
    for key in [*keys, "other"]:
        await desk.call("Set", scope=CONVERSATION, key=key, value_json="1")
    found, token = [], ""
    while True:
        page = await desk.call(
            "List", scope=CONVERSATION, prefix="n", page_size=1, page_token=token
        )
        found += [entry.key for entry in page.entries]
        token = page.next_page_token
        if not token:
            break
    assert found == keys


async def test_page_ends_at_its_bytes_and_one_value_always_fits(stores: Stores) -> None:
    desk = Desk(stores, page_bytes=1000)
    for number in range(4):
        await desk.call(
            "Set", scope=CONVERSATION, key=f"k{number}", value_json=json.dumps("x" * 400)
        )
    await desk.call("Set", scope=CONVERSATION, key="k4", value_json=json.dumps("x" * 5000))
    sizes, token = [], ""
    while True:
        page = await desk.call("List", scope=CONVERSATION, page_token=token)
        sizes.append(len(page.entries))
        token = page.next_page_token
        if not token:
            break
    assert sizes == [2, 2, 1]


async def test_page_token_is_good_for_its_scope_and_run_alone(desk: Desk) -> None:
    for scope in (CONVERSATION, BINDING):
        for key in ("a", "b"):
            await desk.call("Set", scope=scope, key=key, value_json="1")
    token = (await desk.call("List", scope=CONVERSATION, page_size=1)).next_page_token
    other = desk.open(state_keys={Scope.CONVERSATION: "another talk"})
    for access, scope in ((None, BINDING), (other, CONVERSATION)):
        with pytest.raises(InvalidArgument):
            await desk.call("List", access, scope=scope, page_size=1, page_token=token)


async def test_what_an_agent_keeps_for_all_workspaces_is_under_no_workspaces_retention(
    desk: Desk,
) -> None:
    await desk.call("Set", scope=BINDING, key="k", value_json="1")
    assert "acme" not in await desk.stores.retention.workspaces()
    await desk.call("Set", scope=CONVERSATION, key="k", value_json="1")
    assert "acme" in await desk.stores.retention.workspaces()
