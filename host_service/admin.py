"""AdminService: what operators change and look at."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from runmesh.admin.v1 import admin_pb2

from host_service import wire
from host_service.actions.desk import ActionDesk
from host_service.admin_actions import ActionCalls
from host_service.admin_attach import AttachCalls
from host_service.admin_audit import AdminAudit
from host_service.admin_knowledge import KnowledgeCalls
from host_service.admin_models import ModelCalls
from host_service.admin_plugins import PluginCalls
from host_service.admin_runs import RunCalls
from host_service.admin_tools import ToolServerCalls
from host_service.agents.agent import Agent
from host_service.agents.directory import AgentDirectory
from host_service.authorization.attach_tokens import AttachGrants
from host_service.authorization.callers import CallerDirectory
from host_service.authorization.secrets import API_KEY_PREFIX, hash_secret, new_secret
from host_service.capabilities.tool_calls import ToolCalls
from host_service.declarations import apply_request
from host_service.errors import NotFound
from host_service.host_models import HostModels
from host_service.identity import new_id
from host_service.interceptors import Context, EdgeInterceptor, refuse_missing
from host_service.knowledge.desk import KnowledgeDesk
from host_service.limits import Limits
from host_service.model_trials import ModelTrials
from host_service.pages import PageTokens, descending, page_of
from host_service.registry.attachments import Attachments
from host_service.registry.registry import Registry
from host_service.registry.schemas import ConfigSchemas
from host_service.requests import RequestCheck
from host_service.runs.explaining import Explaining
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.replaying import Replaying
from host_service.supervisor.supervisor import Supervisor
from host_service.tools.servers import ToolServers
from stores.actions import Actions
from stores.keys import ApiKeys
from stores.records import ApiKeyRecord
from stores.secrets import Secrets


@refuse_missing
class AdminServicer(
    KnowledgeCalls, ModelCalls, RunCalls, ActionCalls, AttachCalls, PluginCalls, ToolServerCalls
):
    """Decodes, does one thing, encodes.

    Args:
        directory: Agents, bindings and whatever else is declared.
        own_models: Knows the models that the host offers of itself.
        trials: Tries models.
        secrets: Knows which secrets are stored.
        audit: Where changes are written down.
        keys: Where API keys are stored.
        callers: Must hear of changed keys.
        grants: Issues and knows attach tokens.
        attachments: Ends what is attached with a token that is revoked.
        schemas: Know which configuration fields are secret.
        orchestrator: Knows which runs are active, and who reads them.
        explaining: Explains runs.
        desk: Decides actions, and executes them.
        actions: Where actions are.
        replaying: Replays runs.
        registry: Knows the instances.
        supervisor: Starts and replaces processes of plugins.
        tool_servers: The tool servers of this host.
        tool_calls: Calls their tools.
        knowledge: Takes documents in, and searches them.
        edge: Knows how many calls are being served.
        check: Refuses bad requests.
        pages: Makes page tokens.
        limits: Limits in force.
        clock: Tells the time.
        host_id: This host.
        version: Its version.
    """

    def __init__(
        self,
        *,
        directory: AgentDirectory,
        own_models: HostModels,
        trials: ModelTrials,
        secrets: Secrets,
        audit: AdminAudit,
        keys: ApiKeys,
        callers: CallerDirectory,
        grants: AttachGrants,
        attachments: Attachments,
        schemas: ConfigSchemas,
        orchestrator: Orchestrator,
        explaining: Explaining,
        desk: ActionDesk,
        actions: Actions,
        replaying: Replaying,
        registry: Registry,
        supervisor: Supervisor,
        tool_servers: ToolServers,
        tool_calls: ToolCalls,
        knowledge: KnowledgeDesk,
        edge: EdgeInterceptor,
        check: RequestCheck,
        pages: PageTokens,
        limits: Limits,
        clock: Callable[[], datetime],
        host_id: str,
        version: str,
    ) -> None:
        super().__init__(
            directory=directory, secrets=secrets, check=check, pages=pages, audit=audit
        )
        self._own_models = own_models
        self._trials = trials
        self._keys = keys
        self._callers = callers
        self._grants = grants
        self._attachments = attachments
        self._schemas = schemas
        self._orchestrator = orchestrator
        self._explaining = explaining
        self._desk = desk
        self._actions = actions
        self._replaying = replaying
        self._registry = registry
        self._supervisor = supervisor
        self._tool_servers = tool_servers
        self._tool_calls = tool_calls
        self._knowledge = knowledge
        self._edge = edge
        self._limits = limits
        self._clock = clock
        self._host_id = host_id
        self._version = version
        self._started_at = clock()

    async def Apply(
        self, request: admin_pb2.ApplyRequest, context: Context
    ) -> admin_pb2.ApplyResponse:
        """Create and update whatever is declared."""
        runners = self._runners_of(request)
        with self._audit.watched("Apply") as changed:
            outcome = await apply_request(request, directory=self._directory, check=self._check)
            if not request.dry_run:
                changed += [
                    f"{change.object.replace('_', ' ')} {change.id}"
                    for change in outcome.changes
                    if change.kind != "unchanged"
                ]
        if request.keys and not request.dry_run:
            await self._callers.reload()
        return admin_pb2.ApplyResponse(
            changes=[
                wire.change_message(
                    change, is_secret=self._secrecy(runners.get(change.id, frozenset()))
                )
                for change in outcome.changes
            ],
            warnings=outcome.warnings,
        )

    def _runners_of(self, request: admin_pb2.ApplyRequest) -> Mapping[str, frozenset[str]]:
        """Return, by agent, the runners it is to have and has: both know what is secret in it."""
        runners = {agent.id: {agent.runner_id} for agent in self._directory.agents.values()}
        for agent in request.agents:
            runners.setdefault(agent.id, set()).add(agent.runner_id)
        return {agent_id: frozenset(names) for agent_id, names in runners.items()}

    async def GetAgent(
        self, request: admin_pb2.GetAgentRequest, context: Context
    ) -> admin_pb2.GetAgentResponse:
        """Read one agent."""
        self._check.require(request)
        agent = self._directory.agents.get(request.agent_id)
        if agent is None:
            raise NotFound("agent", request.agent_id)
        return admin_pb2.GetAgentResponse(
            agent=self._shown(agent), model_ids=self._directory.models_of(agent)
        )

    async def ListAgents(
        self, request: admin_pb2.ListAgentsRequest, context: Context
    ) -> admin_pb2.ListAgentsResponse:
        """List agents by id."""
        self._check.require(request)
        ids = sorted(self._directory.agents)
        page, cursor = page_of(
            ids,
            cursor=self._pages.read(request),
            size=self._pages.size(request.page_size),
            keys=ids,
        )
        return admin_pb2.ListAgentsResponse(
            agents=[self._shown(self._directory.agents[each]) for each in page],
            next_page_token=self._pages.issue(request, cursor),
        )

    async def DeleteAgent(
        self, request: admin_pb2.DeleteAgentRequest, context: Context
    ) -> admin_pb2.DeleteAgentResponse:
        """Remove an agent and its bindings."""
        self._check.require(request)
        with self._audit.watched("DeleteAgent", f"agent {request.agent_id}"):
            existed = await self._directory.delete_agent(request.agent_id)
        return admin_pb2.DeleteAgentResponse(existed=existed)

    async def ListBindings(
        self, request: admin_pb2.ListBindingsRequest, context: Context
    ) -> admin_pb2.ListBindingsResponse:
        """List bindings by id."""
        self._check.require(request)
        bindings = self._directory.bindings
        ids = sorted(
            each.id for each in bindings.values() if request.agent_id in {"", each.agent_id}
        )
        page, cursor = page_of(
            ids,
            cursor=self._pages.read(request),
            size=self._pages.size(request.page_size),
            keys=ids,
        )
        return admin_pb2.ListBindingsResponse(
            bindings=[wire.binding_message(bindings[each]) for each in page],
            next_page_token=self._pages.issue(request, cursor),
        )

    async def DeleteBinding(
        self, request: admin_pb2.DeleteBindingRequest, context: Context
    ) -> admin_pb2.DeleteBindingResponse:
        """Remove a binding."""
        self._check.require(request)
        with self._audit.watched("DeleteBinding", f"binding {request.binding_id}"):
            existed = await self._directory.delete_binding(request.binding_id)
        return admin_pb2.DeleteBindingResponse(existed=existed)

    async def CreateApiKey(
        self, request: admin_pb2.CreateApiKeyRequest, context: Context
    ) -> admin_pb2.CreateApiKeyResponse:
        """Make an API key."""
        self._check.require(request)
        now, secret = self._clock(), new_secret(API_KEY_PREFIX)
        lifetime = timedelta(microseconds=request.lifetime.ToMicroseconds())
        record = ApiKeyRecord(
            key_id=new_id(),
            name=request.name,
            hash=hash_secret(secret),
            role=wire.role_from(request.role),
            workspace=request.workspace_id if request.HasField("workspace_id") else None,
            bot=request.bot_id if request.HasField("bot_id") else None,
            created_at=now,
            expires_at=now + lifetime if request.HasField("lifetime") else None,
        )
        with self._audit.watched("CreateApiKey", f"key {record.key_id}"):
            await self._keys.create(record)
        await self._callers.reload()
        return admin_pb2.CreateApiKeyResponse(key=wire.key_message(record), secret=secret)

    async def ListApiKeys(
        self, request: admin_pb2.ListApiKeysRequest, context: Context
    ) -> admin_pb2.ListApiKeysResponse:
        """List API keys, newest first."""
        self._check.require(request)
        # Ids are UUIDv7: in reverse order they are newest first.
        records = sorted(await self._keys.list(), key=lambda record: record.key_id, reverse=True)
        keys = [descending(record.key_id) for record in records]
        page, cursor = page_of(
            records,
            cursor=self._pages.read(request),
            size=self._pages.size(request.page_size),
            keys=keys,
        )
        return admin_pb2.ListApiKeysResponse(
            keys=[wire.key_message(record) for record in page],
            next_page_token=self._pages.issue(request, cursor),
        )

    async def RevokeApiKey(
        self, request: admin_pb2.RevokeApiKeyRequest, context: Context
    ) -> admin_pb2.RevokeApiKeyResponse:
        """Revoke an API key."""
        self._check.require(request)
        with self._audit.watched("RevokeApiKey", f"key {request.key_id}"):
            await self._keys.revoke(request.key_id, self._clock())
            record = await self._keys.get(request.key_id)
            if record is None:
                raise NotFound("API key", request.key_id)
        await self._callers.reload()
        return admin_pb2.RevokeApiKeyResponse(key=wire.key_message(record))

    async def GetHost(
        self, request: admin_pb2.GetHostRequest, context: Context
    ) -> admin_pb2.GetHostResponse:
        """Say what host this is and how busy."""
        admission = self._orchestrator.admission
        limits = {
            name: int(value)
            for name, value in self._limits.as_mapping().items()
            if float(value).is_integer()
        }
        limits |= {
            f"{name.removesuffix('_seconds')}_milliseconds": round(value * 1000)
            for name, value in self._limits.as_mapping().items()
            if not float(value).is_integer()
        }
        return admin_pb2.GetHostResponse(
            host_id=self._host_id,
            version=self._version,
            started_at=wire.timestamp(self._started_at),
            active_runs=admission.active,
            waiting_runs=admission.waiting,
            limits=limits,
            active_calls=self._edge.active,
            readers=self._orchestrator.readers,
            tasks=len(asyncio.all_tasks()),
        )

    def _shown(self, agent: Agent) -> admin_pb2.Agent:
        """Return an agent without the values of its secret configuration fields."""
        is_secret = self._secrecy({agent.runner_id})
        config = json.loads(agent.config_json)
        shown = {name: value for name, value in config.items() if not is_secret(name)}
        same = len(shown) == len(config)
        return wire.agent_message(
            agent,
            config_json=agent.config_json if same else json.dumps(shown, ensure_ascii=False),
        )

    def _secrecy(self, runner_ids: Iterable[str]) -> Callable[[str], bool]:
        """Return what tells whether a configuration field is secret to any of some runners.

        As long as a runner is not known, each field may be.
        """
        schemas = [self._schemas.of(runner_id) for runner_id in runner_ids]
        return lambda name: any(schema is None or name in schema.secret_names for schema in schemas)
