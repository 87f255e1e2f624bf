"""Tests of `host_service.capabilities.gate`: the order of its checks, and what it writes down."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from runmesh.v1 import host_api_pb2, manifest_pb2, result_pb2

from host_service.agents.agent import Scope
from host_service.authorization.snapshot import EventIdentity, Snapshot
from host_service.authorization.tokens import RunAccess, RunTokens
from host_service.capabilities.gate import Gate
from host_service.capabilities.needs import NEEDS
from host_service.errors import (
    DeadlineExceeded,
    HostError,
    InvalidArgument,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    Unauthenticated,
    Unauthorized,
    Unavailable,
)
from host_service.limits import Limits
from host_service.validation import Validator
from stores import Stores
from stores.audit import AuditOutcome, AuditQuery, AuditRecord
from stores.errors import BlobLost, StoreClosed, StoreOverloaded, StoreUnavailable
from stores.records import Acceptance
from tests.conformance.stores.samples import a_run

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
INSTANCE = "rmi_instance"
CONVERSATION = result_pb2.STATE_SCOPE_CONVERSATION
ACTOR = result_pb2.STATE_SCOPE_ACTOR


def rights(**changes: Any) -> Snapshot:
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "plugin_id": "acme/desk",
        "runner_id": "plugin:acme/desk/default",
        "agent_id": "default",
        "identity": EventIdentity(
            workspace="acme",
            bot="",
            source="api",
            event_id="event-1",
            conversation_id="room",
            thread_id="",
            conversation_key="acme/room",
            actor_type="",
            actor_id="",
            subject_type="",
            subject_id="",
        ),
        "permissions": {"history": frozenset({"page"}), "artifacts": frozenset({"create"})},
        "storage": frozenset({"plugin"}),
        "actions": frozenset({"message.send"}),
        "capabilities": frozenset({"platform_api"}),
        "state_keys": {Scope.CONVERSATION: "conversation-key"},
        "wider_history": False,
    }
    return Snapshot(**(fields | changes))


class World:
    """A gate, and a run that calls through it."""

    def __init__(self, stores: Stores, **limits: Any) -> None:
        self.now = 0.0
        self.limits = Limits(**limits)
        self.tokens = RunTokens(limits=self.limits, monotonic=lambda: self.now)
        self.audit = stores.audit
        self.gate = Gate(
            audit=stores.audit,
            validator=Validator(self.limits.as_mapping()),
            clock=lambda: NOON,
        )
        self.token, self.access = self.open()
        self.done: list[object] = []

    def open(self, **changes: Any) -> tuple[str, RunAccess]:
        token = self.tokens.issue(snapshot=rights(**changes), instance_token=INSTANCE)
        opened = self.tokens.check(authorization=f"Bearer {token}", instance_token=INSTANCE)
        return token, opened

    async def call(self, rpc: str, request: Any, access: RunAccess | None = None) -> object:
        return await self.gate.answer(rpc, access or self.access, request, self._work)

    async def _work(self, access: RunAccess, request: object) -> str:
        self.done.append(request)
        return access.snapshot.run_id

    async def rows(self) -> list[AuditRecord]:
        return list((await self.audit.page(AuditQuery())).items)


@pytest.fixture
def world(stores: Stores) -> World:
    return World(stores)


def set_state(**changes: Any) -> host_api_pb2.SetStateRequest:
    fields: dict[str, Any] = {"scope": CONVERSATION, "key": "k", "value_json": "1"}
    return host_api_pb2.SetStateRequest(**(fields | changes))


def test_every_call_of_the_service_has_its_need_and_no_other() -> None:
    service = host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"]
    assert set(NEEDS) == set(service.methods_by_name)


def test_what_a_need_names_of_a_request_is_there() -> None:
    service = host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"]
    for rpc, need in NEEDS.items():
        request = getattr(host_api_pb2, service.methods_by_name[rpc].input_type.name)()
        assert need.resource_of(request) == ""
        assert isinstance(need.scope_of(request), str)


async def test_granted_call_is_done_and_written_down(world: World) -> None:
    request = set_state()
    assert await world.call("SetState", request) == "run-1"
    assert world.done == [request]
    (row,) = await world.rows()
    assert (row.rpc, row.outcome, row.reason) == ("SetState", AuditOutcome.DONE, "")
    assert (row.run_id, row.runner_id) == ("run-1", "plugin:acme/desk/default")
    assert (row.resource, row.scope, row.at) == ("k", "conversation", NOON)
    assert 0 <= row.duration_seconds < 5


@pytest.mark.parametrize(
    ("rpc", "request_message", "refusal"),
    [
        ("SearchHistory", host_api_pb2.SearchHistoryRequest(query="x"), Unauthorized),
        ("PullSteering", host_api_pb2.PullSteeringRequest(), Unauthorized),
        ("SetState", set_state(scope=ACTOR), Unauthorized),
        ("SetState", set_state(scope=99), InvalidArgument),
        ("SetState", set_state(scope=0), InvalidArgument),
        ("SetState", set_state(key=""), InvalidArgument),
        ("SetState", set_state(value_json="{"), InvalidArgument),
        ("SetState", set_state(value_json=f'"{"x" * 300_000}"'), PayloadTooLarge),
        (
            "GetStorage",
            host_api_pb2.GetStorageRequest(area=manifest_pb2.STORAGE_AREA_WORKSPACE, key="k"),
            Unauthorized,
        ),
        ("GetStorage", host_api_pb2.GetStorageRequest(key="k"), InvalidArgument),
        (
            "RequestAction",
            host_api_pb2.RequestActionRequest(
                action=result_pb2.ActionRequested(action="member.ban", idempotency_key="k")
            ),
            Unauthorized,
        ),
    ],
)
async def test_refused_call_is_not_done_and_written_down(
    world: World, rpc: str, request_message: Any, refusal: type[HostError]
) -> None:
    with pytest.raises(refusal):
        await world.call(rpc, request_message)
    assert world.done == []
    (row,) = await world.rows()
    assert (row.rpc, row.outcome, row.reason) == (rpc, AuditOutcome.REFUSED, refusal.reason)


async def test_checks_come_in_their_order(world: World) -> None:
    """Each request breaks all that is left; what is told is what comes first."""
    huge, unknown = f'"{"x" * 300_000}"', set_state(scope=ACTOR, key="")
    world.access.rate._left = 0
    with pytest.raises(RateLimited):
        await world.call("SetState", unknown)
    world.now += 60
    with pytest.raises(InvalidArgument):
        await world.call("SetState", unknown)
    with pytest.raises(Unauthorized):
        await world.call("SetState", set_state(scope=ACTOR, value_json=huge))
    world.access.ended = DeadlineExceeded("the run is at its deadline")
    with pytest.raises(PayloadTooLarge):
        await world.call("SetState", set_state(value_json=huge))
    with pytest.raises(DeadlineExceeded):
        await world.call("SetState", set_state())
    with pytest.raises(Unauthorized):
        await world.call("SearchHistory", host_api_pb2.SearchHistoryRequest())


async def test_burst_is_let_through_and_what_is_faster_waits_as_long_as_it_is_told(
    stores: Stores,
) -> None:
    world = World(stores, host_calls_per_second=10.0, host_calls_burst=3)
    for _ in range(3):
        await world.call("SetState", set_state())
    with pytest.raises(RateLimited) as told:
        await world.call("SetState", set_state())
    assert told.value.facts == {
        "run_id": "run-1",
        "host_calls_per_second": "10",
        "host_calls_burst": "3",
    }
    assert "10 a second and 3 at once" in told.value.message
    wait_seconds = told.value.retry_after_seconds
    assert wait_seconds == pytest.approx(0.1)
    world.now += wait_seconds or 0
    await world.call("SetState", set_state())
    # A run that rests gets its burst back, and no more.
    world.now += 3_600
    for _ in range(3):
        await world.call("SetState", set_state())
    with pytest.raises(RateLimited):
        await world.call("SetState", set_state())


async def test_run_that_is_too_fast_costs_no_other_run_anything(stores: Stores) -> None:
    world = World(stores, host_calls_per_second=1.0, host_calls_burst=1)
    _, other = world.open(run_id="run-2")
    await world.call("SetState", set_state())
    with pytest.raises(RateLimited):
        await world.call("SetState", set_state())
    assert await world.call("SetState", set_state(), other) == "run-2"


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (NotFound("state", "k"), AuditOutcome.REFUSED, "NOT_FOUND"),
        (Unavailable("away"), AuditOutcome.FAILED, "UNAVAILABLE"),
        (RuntimeError("broken"), AuditOutcome.FAILED, "RUNTIME_ERROR"),
        (StoreUnavailable("away"), AuditOutcome.FAILED, "UNAVAILABLE"),
        (StoreClosed(), AuditOutcome.FAILED, "UNAVAILABLE"),
        (StoreOverloaded("full"), AuditOutcome.REFUSED, "OVERLOADED"),
        (BlobLost("b", "is gone"), AuditOutcome.FAILED, "RUNTIME_ERROR"),
    ],
)
async def test_what_a_capability_ends_with_is_written_down(
    world: World, error: Exception, outcome: AuditOutcome, reason: str
) -> None:
    async def fail(_access: RunAccess, _request: object) -> None:
        raise error

    with pytest.raises(type(error)):
        await world.gate.answer("SetState", world.access, set_state(), fail)
    (row,) = await world.rows()
    assert (row.outcome, row.reason) == (outcome, reason)


@pytest.mark.parametrize(("too_late", "told"), [(False, Unauthenticated), (True, DeadlineExceeded)])
async def test_call_under_way_ends_with_its_run(
    world: World, too_late: bool, told: type[HostError]
) -> None:
    began = asyncio.Event()

    async def wait(_access: RunAccess, _request: object) -> None:
        began.set()
        await asyncio.Event().wait()

    call = asyncio.create_task(world.gate.answer("SetState", world.access, set_state(), wait))
    await began.wait()
    world.tokens.revoke(world.token, too_late=too_late)
    with pytest.raises(told):
        await call
    assert not call.cancelled()
    assert not world.access.calls
    (row,) = await world.rows()
    assert (row.outcome, row.reason) == (AuditOutcome.REFUSED, told.reason)


async def test_call_that_its_runner_gives_up_is_written_down_and_stays_cancelled(
    world: World,
) -> None:
    began = asyncio.Event()

    async def wait(_access: RunAccess, _request: object) -> None:
        began.set()
        await asyncio.Event().wait()

    call = asyncio.create_task(world.gate.answer("SetState", world.access, set_state(), wait))
    await began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    (row,) = await world.rows()
    assert (row.outcome, row.reason) == (AuditOutcome.FAILED, "CANCELLED")


async def test_stream_ends_its_capability_when_the_reader_leaves(world: World) -> None:
    ended: list[str] = []

    async def numbers(_access: RunAccess, _request: object) -> AsyncGenerator[int, None]:
        try:
            for number in range(10):
                yield number
        finally:
            ended.append("ended")

    written: list[int] = []

    async def write(number: int) -> None:
        written.append(number)
        if number == 2:
            raise asyncio.CancelledError

    _, steered = world.open(capabilities=frozenset({"steering"}))
    request = host_api_pb2.PullSteeringRequest()
    with pytest.raises(asyncio.CancelledError):
        await world.gate.stream("PullSteering", steered, request, numbers, write)
    assert (written, ended) == ([0, 1, 2], ["ended"])
    assert (await world.rows())[0].reason == "CANCELLED"


async def test_each_message_of_an_upload_is_checked(world: World) -> None:
    taken: list[object] = []

    async def requests() -> AsyncIterator[host_api_pb2.CreateArtifactRequest]:
        yield host_api_pb2.CreateArtifactRequest(header=host_api_pb2.ArtifactHeader(type="file"))
        yield host_api_pb2.CreateArtifactRequest(chunk=b"x" * (1024 * 1024 + 1))

    async def take(
        _access: RunAccess, items: AsyncIterator[host_api_pb2.CreateArtifactRequest]
    ) -> None:
        taken.extend([item async for item in items])

    with pytest.raises(PayloadTooLarge):
        await world.gate.take_in("CreateArtifact", world.access, requests(), take)
    assert taken == []
    (row,) = await world.rows()
    assert (row.rpc, row.reason) == ("CreateArtifact", "PAYLOAD_TOO_LARGE")


async def test_flood_of_like_refusals_is_one_row_with_a_count(world: World) -> None:
    for _ in range(50):
        with pytest.raises(Unauthorized):
            await world.call("SetState", set_state(scope=ACTOR))
    (row,) = await world.rows()
    assert (row.count, row.reason) == (50, "UNAUTHORIZED")


async def test_calls_of_a_run_wait_until_it_is_accepted_for_good(world: World) -> None:
    accepted: asyncio.Future[Acceptance] = asyncio.get_running_loop().create_future()
    world.tokens.hold(world.token, accepted)
    calling = asyncio.create_task(world.call("SetState", set_state()))
    await asyncio.sleep(0.02)
    assert world.done == []

    accepted.set_result(Acceptance(a_run(), duplicate=False))
    await calling
    assert len(world.done) == 1
    await world.call("SetState", set_state())


@pytest.mark.parametrize("how", ["duplicate", "failed", "cancelled"])
async def test_calls_of_a_run_that_is_not_accepted_are_refused(world: World, how: str) -> None:
    accepted: asyncio.Future[Acceptance] = asyncio.get_running_loop().create_future()
    world.tokens.hold(world.token, accepted)
    calling = asyncio.create_task(world.call("SetState", set_state()))
    await asyncio.sleep(0.02)
    if how == "duplicate":
        accepted.set_result(Acceptance(a_run(), duplicate=True))
    elif how == "failed":
        accepted.set_exception(OSError("no space"))
    else:
        accepted.cancel()
    with pytest.raises(Unauthenticated):
        await calling
    assert world.done == []
