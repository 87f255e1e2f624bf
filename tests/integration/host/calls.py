"""A caller of a host: its stubs with a key, its events, and what comes back."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
from google.protobuf.duration_pb2 import Duration
from runmesh.admin.v1 import admin_pb2, admin_pb2_grpc
from runmesh.v1 import (
    discovery_pb2_grpc,
    event_pb2,
    gateway_pb2,
    gateway_pb2_grpc,
    host_api_pb2_grpc,
    result_pb2,
)

ECHO = "plugin:runmesh/echo/default"

Metadata = tuple[tuple[str, str], ...]
Item = gateway_pb2.DispatchResponse | gateway_pb2.WatchRunResponse


@dataclass(slots=True)
class Answer:
    """All that a stream of Dispatch or WatchRun said.

    Attributes:
        items: What came, in order, by the names of the contract.
        accepted: The run as it came first.
        ended: The run as it came last.
        results: The results between.
        bookmarks: The bookmarks between.
    """

    items: list[str] = field(default_factory=list)
    accepted: gateway_pb2.Run = field(default_factory=gateway_pb2.Run)
    ended: gateway_pb2.Run = field(default_factory=gateway_pb2.Run)
    results: list[result_pb2.RunResult] = field(default_factory=list)
    bookmarks: list[int] = field(default_factory=list)

    def take(self, item: Item) -> None:
        """Takes in one item."""
        kind = item.WhichOneof("item")
        assert kind is not None
        self.items.append(kind)
        match kind:
            case "accepted":
                self.accepted = item.accepted
            case "ended":
                self.ended = item.ended
            case "bookmark":
                self.bookmarks.append(item.bookmark)
            case "results":
                self.results += item.results.results

    @property
    def run_id(self) -> str:
        """The run."""
        return self.accepted.run_id

    @property
    def kinds(self) -> list[str]:
        """What the results are, deltas in a row once."""
        kinds: list[str] = []
        for result in self.results:
            kind = result.WhichOneof("payload") or ""
            if kind != "message_delta" or kinds[-1:] != [kind]:
                kinds.append(kind)
        return kinds

    @property
    def shown(self) -> str:
        """The text of all deltas."""
        return "".join(each.message_delta.text for each in self.results)

    @property
    def messages(self) -> list[str]:
        """The texts of the completed messages."""
        return [
            "".join(part.text for part in each.message_completed.message.parts)
            for each in self.results
            if each.HasField("message_completed")
        ]

    @property
    def text(self) -> str:
        """What a reader sees at the end: completed messages, and deltas that none replaced."""
        text, pending = "", ""
        for each in self.results:
            if each.HasField("message_delta"):
                pending += each.message_delta.text
            elif each.HasField("message_completed"):
                text += "".join(part.text for part in each.message_completed.message.parts)
                pending = ""
        return text + pending

    @property
    def failure(self) -> str:
        """The code of the run's failure; empty when it ended well."""
        return self.ended.failure.code

    @property
    def warnings(self) -> list[str]:
        """The codes of the run's warnings."""
        return [each.code for each in self.ended.warnings]

    def check_numbers(self, after: int = 0) -> None:
        """Fails unless delivered numbers strictly increase and none is covered twice."""
        for result in self.results:
            assert after < result.first_sequence <= result.sequence, (after, result)
            after = result.sequence


async def collect(call: Any, answer: Answer | None = None) -> Answer:
    """Reads a stream to its end."""
    answer = answer or Answer()
    while (item := await call.read()) is not grpc.aio.EOF:
        answer.take(item)
    return answer


async def collect_until(
    call: Any, condition: Callable[[Answer], bool], answer: Answer | None = None
) -> Answer:
    """Reads a stream until what it said so far meets a condition."""
    answer = answer or Answer()
    while not condition(answer):
        item = await call.read()
        assert item is not grpc.aio.EOF, f"the stream ended early: {answer}"
        answer.take(item)
    return answer


def message(text: str | None = "hello", **fields: Any) -> event_pb2.EventEnvelope:
    """An event of somebody saying something; fields by the names of the contract."""
    given = {"type": "message.received"} | fields
    if text is not None and "input" not in given:
        given["input"] = event_pb2.EventInput(text=text)
    return event_pb2.EventEnvelope(**given)


def scripted(
    *steps: dict[str, Any],
    note: Any = None,
    on_interrupt: Sequence[dict[str, Any]] = (),
    **fields: Any,
) -> event_pb2.EventEnvelope:
    """An event that tells the scripted runner what to do; see runners/scripted.py."""
    script: dict[str, Any] = {"steps": steps, "on_interrupt": on_interrupt}
    if note is not None:
        script["note"] = str(note)
    return message(data_json=json.dumps(script), **fields)


def delta(text: str, **fields: Any) -> dict[str, Any]:
    """A result for a script: a piece of text."""
    return {"messageDelta": {"text": text}, **fields}


def whole(text: str, id: str = "") -> dict[str, Any]:
    """A result for a script: a whole message."""
    content = {"role": "CHAT_ROLE_ASSISTANT", "messageId": id, "parts": [{"text": text}]}
    return {"messageCompleted": {"message": content}}


def completed(**fields: Any) -> dict[str, Any]:
    """A result for a script: the good end."""
    return {"runCompleted": {"finishReason": "stop"}, **fields}


def say(text: str) -> dict[str, Any]:
    """A step of a script: a frame with one delta."""
    return {"send": [delta(text)]}


END = {"send": [completed()]}


def agent(id: str, *, timeout_seconds: float | None = None, **fields: Any) -> admin_pb2.Agent:
    """An agent; on the echo runner unless another is named. `config` is an object."""
    config = fields.pop("config", None)
    made = admin_pb2.Agent(**({"id": id, "runner_id": ECHO} | fields))
    if config is not None:
        made.config_json = json.dumps(config)
    if timeout_seconds is not None:
        duration = Duration()
        duration.FromNanoseconds(round(timeout_seconds * 1e9))
        made.timeout.CopyFrom(duration)
    return made


class Caller:
    """Somebody with an API key and a connection to a host.

    Attributes:
        gateway, admin, discovery, host_api: Stubs of the host's services.
        metadata: The key, as calls carry it.
    """

    def __init__(self, channel: grpc.aio.Channel, key: str) -> None:
        self.channel = channel
        self.metadata: Metadata = (("authorization", f"Bearer {key}"),)
        self.gateway = gateway_pb2_grpc.GatewayServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)
        self.discovery = discovery_pb2_grpc.DiscoveryServiceStub(channel)
        self.host_api = host_api_pb2_grpc.HostAPIServiceStub(channel)

    def with_key(self, key: str) -> "Caller":
        """The same connection with another key."""
        return Caller(self.channel, key)

    def open(self, event: event_pb2.EventEnvelope, agent_id: str = "", **fields: Any) -> Any:
        """Dispatches an event; returns the call."""
        timeout = fields.pop("timeout", None)
        request = gateway_pb2.DispatchRequest(event=event, agent_id=agent_id, **fields)
        return self.gateway.Dispatch(request, metadata=self.metadata, timeout=timeout)

    async def dispatch(
        self, event: event_pb2.EventEnvelope, agent_id: str = "", **fields: Any
    ) -> Answer:
        """Dispatches an event, and returns all that came of it."""
        return await collect(self.open(event, agent_id, **fields))

    async def submit(self, event: event_pb2.EventEnvelope, agent_id: str = "") -> gateway_pb2.Run:
        """Submits an event, and returns its run."""
        request = gateway_pb2.SubmitEventRequest(event=event, agent_id=agent_id)
        return (await self.gateway.SubmitEvent(request, metadata=self.metadata)).run

    def watching(self, run_id: str, after: int = 0) -> Any:
        """Watches a run; returns the call."""
        request = gateway_pb2.WatchRunRequest(run_id=run_id, after_sequence=after)
        return self.gateway.WatchRun(request, metadata=self.metadata)

    async def watch(self, run_id: str, after: int = 0) -> Answer:
        """Watches a run to its end."""
        return await collect(self.watching(run_id, after))

    async def get(self, run_id: str) -> gateway_pb2.Run:
        """Reads a run."""
        request = gateway_pb2.GetRunRequest(run_id=run_id)
        return (await self.gateway.GetRun(request, metadata=self.metadata)).run

    async def list(self, **fields: Any) -> gateway_pb2.ListRunsResponse:
        """Lists runs."""
        request = gateway_pb2.ListRunsRequest(**fields)
        return await self.gateway.ListRuns(request, metadata=self.metadata)

    async def cancel(self, run_id: str, reason: str = "") -> gateway_pb2.Run:
        """Cancels a run, and returns it when it has ended."""
        request = gateway_pb2.CancelRunRequest(run_id=run_id, reason=reason)
        return (await self.gateway.CancelRun(request, metadata=self.metadata)).run

    async def apply(
        self,
        *agents: admin_pb2.Agent,
        bindings: Sequence[admin_pb2.Binding] = (),
    ) -> admin_pb2.ApplyResponse:
        """Applies agents and bindings."""
        request = admin_pb2.ApplyRequest(agents=agents, bindings=bindings)
        return await self.admin.Apply(request, metadata=self.metadata)

    async def new_key(self, role: admin_pb2.Role.ValueType, **fields: Any) -> tuple[str, str]:
        """Makes an API key; returns its id and the key itself."""
        request = admin_pb2.CreateApiKeyRequest(name="test", role=role, **fields)
        made = await self.admin.CreateApiKey(request, metadata=self.metadata)
        return made.key.key_id, made.secret


@asynccontextmanager
async def calling(address: str, key: str, **options: int) -> AsyncIterator[Caller]:
    """A caller of the host at an address; options are gRPC's, without their `grpc.`.

    A double underscore in a name stands for a dot.
    """
    settings = [(f"grpc.{name.replace('__', '.')}", value) for name, value in options.items()]
    async with grpc.aio.insecure_channel(
        address,
        # Each test has a connection of its own.
        options=[("grpc.use_local_subchannel_pool", 1), *settings],
    ) as channel:
        yield Caller(channel, key)
