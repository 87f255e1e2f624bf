"""Tests of `host_service.capabilities.steering`: what a run is handed while it is under way."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from runmesh.v1 import event_pb2, host_api_pb2, types_pb2

from host_service.authorization.tokens import RunAccess, RunTokens
from host_service.capabilities.gate import Gate
from host_service.capabilities.steering import Steering
from host_service.errors import InvalidArgument, NotFound, Unauthorized, Unavailable
from host_service.limits import Limits
from host_service.runs.steering import SteeredItem, SteeringBox
from host_service.validation import Validator
from stores import Stores
from stores.records import RunRecord
from tests.unit.capabilities.test_gate import rights
from tests.unit.runs.samples import NOON, an_event


class Desk:
    """Steering behind the gate, for one run under way."""

    def __init__(self, stores: Stores) -> None:
        self.limits = Limits()
        self.warnings: list[str] = []
        self.box: SteeringBox | None = SteeringBox(
            warn=lambda code, _message: self.warnings.append(code)
        )
        self._steering = Steering(
            box_of=lambda _run_id: self.box, clock=lambda: NOON + timedelta(seconds=2)
        )
        self._gate = Gate(
            audit=stores.audit,
            validator=Validator(self.limits.as_mapping()),
            clock=lambda: datetime.now(UTC),
        )
        self.access = self.open()

    def open(self, *capabilities: str) -> RunAccess:
        tokens = RunTokens(limits=self.limits)
        snapshot = rights(capabilities=frozenset(capabilities or ("steering",)))
        token = tokens.issue(snapshot=snapshot, instance_token="i")
        return tokens.check(authorization=f"Bearer {token}", instance_token="i")

    def hand(self, text: str, **changes: Any) -> SteeredItem:
        fields: dict[str, Any] = {"input": event_pb2.EventInput(text=text)}
        ended: asyncio.Future[RunRecord] = asyncio.get_running_loop().create_future()
        item = SteeredItem(f"run-{text}", an_event(**(fields | changes)), ended)
        assert self.box is not None
        self.box.hand(item)
        return item

    def pull(
        self, access: RunAccess | None = None
    ) -> AsyncGenerator[host_api_pb2.PullSteeringResponse, None]:
        return self._steering.pull(access or self.access, host_api_pb2.PullSteeringRequest())

    async def acknowledge(self, *ids: str, access: RunAccess | None = None) -> Any:
        request = host_api_pb2.AcknowledgeSteeringRequest(steering_ids=ids)
        return await self._gate.answer(
            "AcknowledgeSteering",
            access or self.access,
            request,
            self._steering.acknowledge,
        )

    async def pull_through_the_gate(self, access: RunAccess) -> list[Any]:
        written: list[Any] = []

        async def write(response: Any) -> None:
            written.append(response)

        request = host_api_pb2.PullSteeringRequest()
        await self._gate.stream("PullSteering", access, request, self._steering.pull, write)
        return written


@pytest.fixture
def desk(stores: Stores) -> Desk:
    return Desk(stores)


async def test_item_says_what_was_said_by_whom_and_how_long_ago(desk: Desk) -> None:
    desk.hand("and 你?", data_json='{"id": 9223372036854775807}')
    async with aclosing(desk.pull()) as pulled:
        item = await anext(pulled)
    assert item.steering_id == "run-and 你?"
    assert item.input.text == "and 你?"
    assert (item.event.event_id, item.event.type) == ("event-1", "message.received")
    assert item.event.data_json == '{"id": 9223372036854775807}'
    assert (item.actor.type, item.actor.id) == ("user", "ann")
    assert item.waited.seconds == 2


async def test_items_come_in_their_order_and_as_they_come(desk: Desk) -> None:
    desk.hand("a")
    desk.hand("b")
    async with aclosing(desk.pull()) as pulled:
        assert [(await anext(pulled)).input.text for _ in range(2)] == ["a", "b"]
        waiting = asyncio.ensure_future(anext(pulled))
        await asyncio.sleep(0)
        assert not waiting.done()
        desk.hand("c")
        assert (await asyncio.wait_for(waiting, 1)).input.text == "c"


async def test_what_was_not_acknowledged_comes_again_and_the_rest_does_not(desk: Desk) -> None:
    items = [desk.hand(text) for text in "abc"]
    async with aclosing(desk.pull()) as broken:
        for _ in range(3):
            await anext(broken)
    items[1].ended.set_result(None)  # type: ignore[arg-type]
    await desk.acknowledge("run-b")
    async with aclosing(desk.pull()) as pulled:
        assert [(await anext(pulled)).input.text for _ in range(2)] == ["a", "c"]


async def test_new_stream_ends_the_one_before_it(desk: Desk) -> None:
    desk.hand("a")
    older, newer = desk.pull(), desk.pull()
    await anext(older)
    waiting = asyncio.ensure_future(anext(older))
    await asyncio.sleep(0)
    assert (await anext(newer)).input.text == "a"
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 1)
    desk.hand("b")
    assert (await anext(newer)).input.text == "b"
    await newer.aclose()


async def test_stream_ends_with_the_run_and_what_is_left_goes_by_itself(desk: Desk) -> None:
    item = desk.hand("a")
    pulled = desk.pull()
    await anext(pulled)
    waiting = asyncio.ensure_future(anext(pulled))
    await asyncio.sleep(0)
    assert desk.box is not None
    desk.box.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 1)
    assert item.fate.result() is False
    # What is handed over too late goes by itself as well.
    assert desk.hand("b").fate.result() is False


async def test_acknowledgement_is_answered_when_the_items_run_has_ended(desk: Desk) -> None:
    item = desk.hand("a")
    asked = asyncio.create_task(desk.acknowledge("run-a"))
    again = asyncio.create_task(desk.acknowledge("run-a"))
    await asyncio.sleep(0)
    assert item.fate.result() is True
    assert not asked.done()
    assert not again.done()
    item.ended.set_result(None)  # type: ignore[arg-type]
    await asyncio.wait_for(asyncio.gather(asked, again), 1)
    # It may be repeated at any time.
    await asyncio.wait_for(desk.acknowledge("run-a", "run-a"), 1)


async def test_acknowledgement_that_could_not_be_stored_is_told(desk: Desk) -> None:
    item = desk.hand("a")
    asked = asyncio.create_task(desk.acknowledge("run-a"))
    await asyncio.sleep(0)
    item.ended.set_exception(OSError("no disk"))
    with pytest.raises(Unavailable):
        await asked


async def test_item_of_another_run_is_not_found_and_nothing_is_taken_out(desk: Desk) -> None:
    item = desk.hand("a")
    with pytest.raises(NotFound):
        await desk.acknowledge("run-a", "run-of-another")
    assert not item.fate.done()
    desk.box = None
    with pytest.raises(NotFound):
        await desk.acknowledge("run-a")
    assert await desk.pull_through_the_gate(desk.access) == []


async def test_run_without_the_capability_is_handed_nothing(desk: Desk) -> None:
    desk.hand("a")
    other = desk.open("streaming")
    with pytest.raises(Unauthorized):
        await desk.pull_through_the_gate(other)
    with pytest.raises(Unauthorized):
        await desk.acknowledge("run-a", access=other)


async def test_acknowledgement_of_nothing_is_refused_by_its_field(desk: Desk) -> None:
    with pytest.raises(InvalidArgument, match="steering_ids"):
        await desk.acknowledge()


async def test_images_are_left_out_for_a_runner_that_takes_text_and_it_is_said(desk: Desk) -> None:
    picture = types_pb2.ContentPart(url=types_pb2.UrlContent(url="https://example.org/a.png"))
    content = event_pb2.EventInput(text="look", parts=[picture])
    desk.hand("look", input=content)
    async with aclosing(desk.pull()) as pulled:
        assert not (await anext(pulled)).input.parts
    assert desk.warnings == ["input_left_out"]
    seeing = desk.open("steering", "multimodal_input")
    async with aclosing(desk.pull(seeing)) as pulled:
        assert list((await anext(pulled)).input.parts) == [picture]
