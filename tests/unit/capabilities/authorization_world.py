"""HostAPI as it is served, over real stores, with runs of several owners that call it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc.aio
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from runmesh.v1 import host_api_pb2

from host_service.actions.desk import ActionDesk
from host_service.actions.executors import ActionExecutors
from host_service.agents.agent import Agent, Scope
from host_service.authorization.attach_tokens import AttachGrants
from host_service.authorization.callers import CallerDirectory
from host_service.authorization.snapshot import Asked, Snapshot, freeze
from host_service.authorization.tokens import RunTokens, Told
from host_service.capabilities.gate import Gate
from host_service.capabilities.offered import offer
from host_service.capabilities.transcript_pages import TranscriptPages
from host_service.capabilities.uploads import Uploads
from host_service.capabilities.whole_texts import WholeTexts
from host_service.catalogue.documents import item_of
from host_service.catalogue.knowledge_base import KnowledgeBase
from host_service.catalogue.model import Model
from host_service.catalogue.shelf import Shelf
from host_service.catalogue.tool_server import ToolServer
from host_service.grpc_serving import register_host_api
from host_service.host_api import HostAPIServicer
from host_service.interceptors import Authentication, EdgeInterceptor
from host_service.knowledge.retrieval import Retrieval
from host_service.knowledge.vectors import Embedding
from host_service.limits import Limits
from host_service.models.calls import ModelCalls
from host_service.models.endpoints import CatalogueEndpoints
from host_service.pages import PageTokens
from host_service.runs.asked import asked_by
from host_service.runs.event import Event
from host_service.runs.steering import SteeredItem, SteeringBox
from host_service.telemetry import Telemetry
from host_service.tools.servers import ToolServers
from host_service.validation import Validator
from stores import Stores
from stores.audit import AuditQuery, AuditRecord
from stores.records import ArtifactHeader
from tests.unit.capabilities.authorization_rows import ABSENT, FOREIGN, OWN, ROWS
from tests.unit.capabilities.rooms import Room
from tests.unit.runs.test_asked import ALL

SERVICE = host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"]
LIMITS = Limits(
    inline_artifact_bytes=1024,
    range_bytes=1024,
    chunk_bytes=1024,
    state_value_bytes=1024,
    storage_value_bytes=1024,
    action_bytes=1024,
    model_attempts=1,
    host_calls_burst=50,
)
#: Stands in everything that is another's, and so in no answer.
CANARY = "canary-of-others"

#: A port that nobody listens on: no program may have it unless it is told to.
NOWHERE = "http://127.0.0.1:1/v1"

_Metadata = tuple[tuple[str, str], ...]


def _model(id: str, kind: str = "chat") -> Model:
    return Model(id=id, kind=kind, provider="openai", model_name=id, base_url=NOWHERE)


SHELF = Shelf.of(
    item_of(each)
    for each in (
        _model("small"),
        _model("ranker", "rerank"),
        _model("embedder", "embedding"),
        _model(CANARY),
        ToolServer(id="files", command="c"),
        KnowledgeBase(id="handbook"),
        KnowledgeBase(id=CANARY),
    )
)
GRANTING = Agent(
    id="helper",
    runner_id="plugin:acme/desk/default",
    models=("small", "ranker", "embedder"),
    tools=("files__read",),
    knowledge_bases=("handbook",),
    storage_areas=frozenset({"plugin", "workspace", "binding"}),
    actions=frozenset({"message.send"}),
    approval="always",
    state_scopes=frozenset(Scope),
)
EVERYTHING = asked_by(ALL)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a runner calls with; empty leaves one out."""

    run: str
    instance: str

    def metadata(self) -> _Metadata:
        """Return them as they are sent."""
        pairs = (
            ("authorization", f"Bearer {self.run}" if self.run else ""),
            ("runmesh-instance", self.instance),
        )
        return tuple(pair for pair in pairs if pair[1])


class World:
    """A served HostAPI, and the runs that call it.

    Attributes:
        stores: What is behind it.
        tokens: Those in force.
        mine: The event of the run that the table is about.
        neighbours: One of another conversation of the same workspace, bot and agent.
        strangers: One of another workspace, with another agent and plugin.
    """

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.room = Room(stores)
        self.tokens = RunTokens(limits=LIMITS, monotonic=self._monotonic)
        self.mine: Event
        self.neighbours: Event
        self.strangers: Event
        self.while_checked: Any = None
        self._boxes: dict[str, SteeringBox] = {}
        self._own: dict[str, str] = {}
        self._foreign: dict[str, str] = {}
        self._channel: grpc.aio.Channel

    def _monotonic(self) -> float:
        """Tell no time; a test may let something happen while a call's rate is looked at."""
        then, self.while_checked = self.while_checked, None
        if then is not None:
            then()
        return 0.0

    @asynccontextmanager
    async def served(self) -> AsyncIterator["World"]:
        """Serve it, with something in it."""
        gate = Gate(
            audit=self.stores.audit,
            validator=Validator(LIMITS.as_mapping()),
            clock=lambda: datetime.now(UTC),
        )
        telemetry = Telemetry(service_version="0", host_id="host")
        callers = CallerDirectory(keys=self.stores.keys, clock=lambda: datetime.now(UTC))
        edge = EdgeInterceptor(
            authentication=Authentication(
                callers=callers,
                tokens=self.tokens,
                attach=AttachGrants(
                    tokens=self.stores.attach_tokens, clock=lambda: datetime.now(UTC)
                ),
                gate=gate,
            ),
            telemetry=telemetry,
        )
        server = grpc.aio.server(interceptors=(edge,))
        models = ModelCalls(
            shelf=lambda: SHELF,
            endpoints=CatalogueEndpoints(secrets=self.stores.secrets),
            limits=LIMITS,
            telemetry=telemetry,
        )
        offered = self._capabilities(models, telemetry)
        host_api = HostAPIServicer(gate=gate, capabilities=offered, over=lambda _: offered)
        register_host_api(server, host_api)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as self._channel:
                await self._fill()
                yield self
        finally:
            await server.stop(None)
            await models.close()
            telemetry.close()

    def _capabilities(self, models: ModelCalls, telemetry: Telemetry) -> Any:
        return offer(
            stores=self.stores,
            transcript=TranscriptPages(
                transcript=self.stores.transcript,
                texts=WholeTexts(artifacts=self.stores.artifacts, limits=LIMITS),
                limits=LIMITS,
            ),
            uploads=Uploads(
                artifacts=self.stores.artifacts, limits=LIMITS, clock=lambda: datetime.now(UTC)
            ),
            pages=PageTokens(limits=LIMITS),
            limits=LIMITS,
            steering_of=self._boxes.get,
            desk=ActionDesk(
                store=self.stores.actions,
                executors=ActionExecutors(),
                audit=self.stores.audit,
                clock=lambda: datetime.now(UTC),
                host_id="host",
                host_incarnation="start",
            ),
            models=models,
            tool_servers=ToolServers(
                secrets=self.stores.secrets,
                folder=Path("/"),
                limits=LIMITS,
                clock=lambda: datetime.now(UTC),
            ),
            telemetry=telemetry,
            retrieval=Retrieval(
                store=self.stores.knowledge,
                embedding=Embedding(embedder=models),
                shelf=lambda: SHELF,
                limits=LIMITS,
            ),
            clock=lambda: datetime.now(UTC),
        )

    async def _fill(self) -> None:
        """Let everybody have something of each kind."""
        await self.room.hears("marmalade")
        self.mine = await self.room.hears("marmalade again")
        self.neighbours = await self.room.hears(f"marmalade {CANARY}", conversation_id=CANARY)
        self.strangers = await self.room.hears(
            f"marmalade {CANARY}", workspace_id="elsewhere", conversation_id="room"
        )
        for event, ids, name in (
            (self.mine, self._own, "mine"),
            (self.neighbours, self._foreign, CANARY),
        ):
            artifact, steered = f"artifact-{name}", f"steered-{name}"
            ids |= {
                "artifact_id": artifact,
                "steering_ids": steered,
                "event_id": event.envelope.event_id,
                "model_id": name,
                "tool_name": "files__write",
                "knowledge_base_ids": name,
                "conversation_id": event.envelope.conversation_id,
                "key": name,
            }
            await self._write_artifact(artifact, event)
            self._steer(steered, event)
        others = self.open(self.neighbours)
        await self.call("SetState", others, {"scope": 1, "key": CANARY, "value_json": "1"})
        others = self.open(
            self.strangers, agent=replace(GRANTING, id="x", runner_id="plugin:acme/other/default")
        )
        await self.call("SetStorage", others, {"area": 1, "key": CANARY, "value": b"1"})
        own = self.open(self.mine)
        await self.call("SetState", own, {"scope": 1, "key": "mine", "value_json": "1"})
        await self.call("SetStorage", own, {"area": 1, "key": "mine", "value": b"1"})

    async def _write_artifact(self, artifact_id: str, event: Event) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield artifact_id.encode()

        identity = event.identity()
        header = ArtifactHeader(
            artifact_id=artifact_id,
            workspace=identity.workspace,
            bot=identity.bot,
            conversation_key=identity.conversation_key,
            type="file",
            created_at=datetime.now(UTC),
        )
        await self.stores.artifacts.write(header, chunks())

    def _steer(self, steering_id: str, event: Event) -> None:
        box = SteeringBox(warn=lambda _code, _message: None)
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ended.set_result(None)
        box.hand(SteeredItem(steering_id, event, ended))
        self._boxes[f"run of {event.envelope.event_id}"] = box

    def open(self, event: Event, *, agent: Agent = GRANTING, **lacking: Any) -> Tokens:
        """Return tokens of the run of an event; what lacks is said as the table has it."""
        instance = f"rmi_of_{agent.plugin_id}"
        token = self.tokens.issue(
            snapshot=self._snapshot(event, agent, **lacking),
            instance_token=instance,
            told=Told(latest_cursor=str),
        )
        return Tokens(token, instance)

    def _snapshot(self, event: Event, agent: Agent, **lacking: Any) -> Snapshot:
        asked, agent, identity = _asked(lacking), _agent(agent, lacking), event.identity()
        if lacking.get("without_conversation"):
            identity = replace(identity, conversation_key="", conversation_id="")
        return freeze(
            run_id=f"run of {event.envelope.event_id}",
            plugin_id=agent.plugin_id,
            agent=agent,
            asked=asked,
            identity=identity,
            shelf=SHELF,
        )

    def filled(self, value: Any) -> Any:
        """Return a request with ids in the places that the table left for them."""
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        return {name: self._fill_in(name, each) for name, each in value.items()}

    def _fill_in(self, name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._fill_in(name, each) for each in value]
        if value == OWN:
            return self._own[name]
        if value == FOREIGN:
            return self._foreign["key" if name == "prefix" else name]
        return "never-was" if value == ABSENT else value

    async def call(self, rpc: str, tokens: Tokens, fields: Any) -> Any:
        """Call, and return the response; of a stream all of them, of an endless one the first."""
        method, call = SERVICE.methods_by_name[rpc], self._open_call(rpc, tokens, fields)
        if not method.server_streaming:
            return await call
        if not ROWS[rpc].endless:
            return [response async for response in call]
        try:
            return await call.read()
        finally:
            call.cancel()

    def stream(self, rpc: str, tokens: Tokens) -> Any:
        """Return a stream that is to be read."""
        return self._open_call(rpc, tokens, {})

    def _open_call(self, rpc: str, tokens: Tokens, fields: Any) -> Any:
        method: MethodDescriptor = SERVICE.methods_by_name[rpc]
        request_type: Any = message_factory.GetMessageClass(method.input_type)
        response_type: Any = message_factory.GetMessageClass(method.output_type)
        kinds: Mapping[tuple[bool, bool], Any] = {
            (False, False): self._channel.unary_unary,
            (False, True): self._channel.unary_stream,
            (True, False): self._channel.stream_unary,
        }
        opened = kinds[method.client_streaming, method.server_streaming](
            f"/{SERVICE.full_name}/{rpc}",
            request_serializer=request_type.SerializeToString,
            response_deserializer=response_type.FromString,
        )
        request = (
            [request_type(**each) for each in fields]
            if method.client_streaming
            else request_type(**fields)
        )
        return opened(request, metadata=tokens.metadata())

    async def audited(self) -> list[AuditRecord]:
        """Return all rows, oldest first."""
        items = (await self.stores.audit.page(AuditQuery(), limit=1000)).items
        return sorted(items, key=lambda row: row.position)


def _asked(lacking: Mapping[str, Any]) -> Asked:
    group, name = lacking.get("without", ("", ""))
    permissions = dict(EVERYTHING.permissions)
    if group:
        permissions[group] -= {name}
    return Asked(
        permissions=permissions,
        storage=EVERYTHING.storage - {lacking.get("unasked_area", "")},
        actions=EVERYTHING.actions - {lacking.get("unasked_action", "")},
        capabilities=EVERYTHING.capabilities - {lacking.get("incapable", "")},
    )


def _agent(agent: Agent, lacking: Mapping[str, Any]) -> Agent:
    return replace(
        agent,
        storage_areas=agent.storage_areas - {lacking.get("without_area", "")},
        actions=agent.actions - {lacking.get("without_action", "")},
        state_scopes=frozenset(
            scope for scope in agent.state_scopes if scope != lacking.get("without_scope")
        ),
        state_enabled=not lacking.get("without_state", False),
    )
