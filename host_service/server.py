"""The composition root: builds the host, wires it, serves, and takes it down.

The only place that knows everybody. Start: lock the data folder, open the stores, start plugins,
bind meanwhile, take care of runs of hosts that are gone, serve. Stop, in the reverse order: take no
more events, let runs finish, end calls, end plugins, close the stores.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import grpc.aio
import uvloop
from grpc_health.v1 import health

from host_service import __version__
from host_service.actions.desk import ActionDesk
from host_service.admin import AdminServicer
from host_service.admin_audit import AdminAudit
from host_service.agents.directory import AgentDirectory
from host_service.attach import AttachServicer
from host_service.authorization.attach_tokens import AttachGrants
from host_service.authorization.callers import CallerDirectory
from host_service.authorization.tokens import RunTokens
from host_service.caller_files import CallerFiles
from host_service.caller_transcript import CallerTranscript
from host_service.capabilities.gate import Gate
from host_service.capabilities.offered import Capabilities, offer
from host_service.capabilities.tool_calls import ToolCalls
from host_service.capabilities.transcript_pages import TranscriptPages
from host_service.capabilities.uploads import Uploads
from host_service.capabilities.whole_texts import WholeTexts
from host_service.certificates.files import ListenFiles
from host_service.certificates.watched import keep_watched
from host_service.collecting import keep_collected, keep_documents_collected
from host_service.configuration import Configuration
from host_service.console.http import HttpServer
from host_service.data_folder import DataFolder, HostAddresses
from host_service.discovery import DiscoveryServicer
from host_service.environments.interpreters import interpreters_of
from host_service.environments.shelf import EnvironmentShelf
from host_service.errors import StartupError
from host_service.gateway import GatewayServicer
from host_service.grpc_serving import end_calls, make_health_servicer, register, say_serving
from host_service.host_api import HostAPIServicer
from host_service.host_models import HostModels, is_for_people
from host_service.host_tls import HostTls, warn_of_unreachable_host
from host_service.identity import new_id
from host_service.interceptors import Authentication, EdgeInterceptor
from host_service.knowledge.desk import KnowledgeDesk
from host_service.limits import Limits
from host_service.listening import bind_grpc, bind_http, bind_socket, probe_grpc
from host_service.logs import set_up_logging
from host_service.model_trials import ModelTrials
from host_service.models.calls import ModelCalls
from host_service.models.client import load_client
from host_service.models.endpoints import CatalogueEndpoints
from host_service.pages import PageTokens
from host_service.plugin_regime import PluginRegime, keep_in_force
from host_service.readiness import Readiness
from host_service.refreshing import keep_refreshed
from host_service.registry.attachments import Attachments
from host_service.registry.channel import SERVER_OPTIONS
from host_service.registry.errors import AddressInvalid
from host_service.registry.records import FoundBy, HostIdentity
from host_service.registry.registry import Registry
from host_service.registry.schemas import ConfigSchemas
from host_service.registry.static_runners import StaticRunners
from host_service.rehearsal.server import RehearsalServer
from host_service.requests import RequestCheck
from host_service.runs.admission import Admission
from host_service.runs.asked import kind_of
from host_service.runs.explaining import Explaining
from host_service.runs.host_addresses import HostApiAddresses
from host_service.runs.intake import EventIntake
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.recovery import Recovery
from host_service.runs.replaying import Replaying
from host_service.runs.services import RunServices
from host_service.runs.watching import RunWatcher
from host_service.settings import Settings, shipped_plugins_folder
from host_service.start_up import (
    apply_configuration,
    effective_limits,
    ensure_operator_key,
    make_executors,
    open_database,
    read_configuration,
    rehearsal_script,
    renew_secrets,
)
from host_service.supervisor.cgroups import CgroupUse, DelegatedCgroup, enter_cgroup
from host_service.supervisor.errors import CgroupUnusable
from host_service.supervisor.sockets import SocketFolder
from host_service.supervisor.supervisor import Supervisor
from host_service.telemetry import Telemetry
from host_service.tools.servers import ToolServers, keep_tool_servers
from host_service.validation import Validator
from stores import Stores
from stores import artifacts as store_artifacts
from stores.errors import StoreError

_log = logging.getLogger("runmesh.host")

#: The runner of the agent that the first start creates.
SHIPPED_RUNNER = "plugin:runmesh/local-agent/default"

# The journal's thread makes many short calls into the database, and asks for the interpreter back
# after each. With Python's 5 ms it waits longer for that than for the disk as soon as the event
# loop is busy, and every run waits for it.
_SWITCH_SECONDS = 0.0005


def now() -> datetime:
    """Return the time now, in UTC."""
    return datetime.now(UTC)


def run_host(settings: Settings) -> int:
    """Run a host until it is told to stop; return the exit code of its process.

    Raises:
        StartupError: It cannot start.
    """
    # What the database makes beside what we make ourselves is nobody else's to read either.
    os.umask(0o077)
    set_up_logging(settings.log_level)
    sys.setswitchinterval(_SWITCH_SECONDS)
    return uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    stop, hurry = asyncio.Event(), asyncio.Event()
    _listen_for_signals(stop, hurry)
    async with running_host(settings, hurry=hurry) as host:
        # What was built stays until the process ends: the collector need not look at it again and
        # again.
        gc.collect()
        gc.freeze()
        if settings.quit_with_stdin:
            _stop_with_stdin(stop)
        waiting = [asyncio.create_task(event.wait()) for event in (stop, host.lost)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        return 1 if host.lost.is_set() else 0


def _listen_for_signals(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    """The first SIGTERM or SIGINT stops the host, the second cancels what still runs."""
    loop = asyncio.get_running_loop()

    def told() -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)


def _stop_with_stdin(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 65536):
            loop.remove_reader(descriptor)
            stop.set()

    loop.add_reader(descriptor, readable)


@dataclass(slots=True)
class Host:
    """A host that runs.

    Attributes:
        addresses: Where it listens.
        stores: What it keeps.
        lost: Set when another start of the same host took over.
    """

    addresses: HostAddresses
    stores: Stores
    lost: asyncio.Event


@asynccontextmanager
async def running_host(
    settings: Settings, *, hurry: asyncio.Event | None = None
) -> AsyncIterator[Host]:
    """Run a host inside an event loop; leaving the context stops it with grace.

    Args:
        settings: How it is set up.
        hurry: Ends the grace of a stop that is under way.

    Raises:
        StartupError: It cannot start.
    """
    configuration = read_configuration(settings.config_file)
    limits = effective_limits(settings.limits, configuration)
    async with AsyncExitStack() as stack:
        folder = DataFolder.open(settings.data_folder)
        stack.callback(folder.close)
        builder = _Builder(
            stack=stack,
            settings=settings,
            folder=folder,
            limits=limits,
            configuration=configuration,
            hurry=hurry or asyncio.Event(),
        )
        yield await builder.build()


class _Builder:
    """Builds one host. Whatever it opens is closed by the stack, in the reverse order."""

    def __init__(
        self,
        *,
        stack: AsyncExitStack,
        settings: Settings,
        folder: DataFolder,
        limits: Limits,
        configuration: Configuration | None,
        hurry: asyncio.Event,
    ) -> None:
        self._stack = stack
        self._settings = settings
        self._folder = folder
        self._limits = limits
        self._configuration = configuration
        self._hurry = hurry
        self._host_id = folder.host_id()
        self._incarnation = new_id()
        self._lost = asyncio.Event()
        self._sockets = stack.enter_context(SocketFolder.create())
        self._pages = PageTokens(limits=limits)
        self._validator = Validator(limits.as_mapping())
        self._check = RequestCheck(validator=self._validator)
        self._tls = HostTls.of(settings)
        self._telemetry = Telemetry(service_version=__version__, host_id=self._host_id)
        stack.callback(self._telemetry.close)

    async def build(self) -> Host:
        probe_grpc(
            self._settings.grpc_address,
            insecure=self._settings.insecure or self._tls.certificates is not None,
        )
        http = self._bind_http()
        stores = await self._open_stores()
        regime = PluginRegime(secrets=stores.secrets)
        registry = self._registry(regime)
        self._watch_certificates()
        self._desk = self._action_desk(stores)
        self._tool_servers = self._servers_of_tools(stores)
        callers = CallerDirectory(keys=stores.keys, clock=now)
        await callers.reload()
        schemas = ConfigSchemas(registry=registry)
        declared, tools_declared = asyncio.Event(), asyncio.Event()
        vectors_wanted = asyncio.Event()

        def reloaded() -> None:
            declared.set()
            tools_declared.set()
            vectors_wanted.set()

        own_models = self._host_models(stores)
        directory = AgentDirectory(
            catalogue=stores.catalogue,
            secrets=stores.secrets,
            keys=stores.keys,
            clock=now,
            schema_of=schemas.of,
            kind_of=lambda runner_id: kind_of(registry.manifest(runner_id)),
            on_reload=reloaded,
            offered=own_models.offered,
        )
        self._models = self._model_calls(own_models, directory)
        self._knowledge = self._knowledge_desk(stores, directory, vectors_wanted)
        await self._prepare_agents(directory, callers)
        # What operators set for plugins is known before the first of them starts.
        await regime.learn(directory.shelf.plugins)
        registry.set_disabled(regime.disabled)
        supervisor = await self._start_plugins(registry, regime)
        tokens = RunTokens(limits=self._limits)
        grants = AttachGrants(tokens=stores.attach_tokens, clock=now)
        gate = Gate(audit=stores.audit, validator=self._validator, clock=now)
        edge = EdgeInterceptor(
            authentication=Authentication(callers=callers, tokens=tokens, attach=grants, gate=gate),
            telemetry=self._telemetry,
        )
        server = grpc.aio.server(interceptors=(edge,), options=SERVER_OPTIONS)
        grpc_address, socket_address = self._bind(server)
        reached = self._host_api_addresses(grpc_address, socket_address, registry)
        services = self._run_services(stores, registry, schemas, tokens, reached, directory)
        orchestrator = Orchestrator(
            stores=stores,
            directory=directory,
            services=services,
            admission=Admission(active=self._limits.active_runs, waiting=self._limits.waiting_runs),
        )
        health_servicer = await make_health_servicer()
        register(
            server,
            gateway=self._gateway(orchestrator, stores),
            admin=self._admin(
                directory,
                own_models,
                stores,
                callers,
                services,
                orchestrator,
                edge,
                grants,
                supervisor,
            ),
            discovery=DiscoveryServicer(registry=registry),
            host_api=HostAPIServicer(
                gate=gate,
                capabilities=self._capabilities(stores, orchestrator, texts_in=stores.artifacts),
                over=lambda others: self._capabilities(
                    others, orchestrator, texts_in=stores.artifacts
                ),
            ),
            attach=AttachServicer(
                attachments=self._attachments,
                grants=grants,
                check=self._check,
                audit=stores.audit,
                clock=now,
            ),
            health_servicer=health_servicer,
        )
        await self._tool_servers.recall(directory.shelf.tool_servers.values())
        await self._serve(server, edge, orchestrator, stores, health_servicer)
        self._knowledge.start()
        refreshing = asyncio.create_task(
            keep_refreshed(directory=directory, callers=callers, catalogue=stores.catalogue)
        )
        self._stack.callback(refreshing.cancel)
        in_force = asyncio.create_task(
            keep_in_force(
                regime=regime,
                directory=directory,
                changed=declared,
                registry=registry,
                attachments=self._attachments,
                supervisor=supervisor,
            )
        )
        self._stack.callback(in_force.cancel)
        tools_kept = asyncio.create_task(
            keep_tool_servers(
                servers=self._tool_servers,
                shelf=lambda: directory.shelf,
                changed=tools_declared,
            )
        )
        self._stack.callback(tools_kept.cancel)
        collecting = asyncio.create_task(
            keep_collected(artifacts=stores.artifacts, limits=self._limits)
        )
        self._stack.callback(collecting.cancel)
        documents_collecting = asyncio.create_task(
            keep_documents_collected(knowledge=stores.knowledge, limits=self._limits)
        )
        self._stack.callback(documents_collecting.cancel)
        readiness = Readiness(stores=stores, supervisor=supervisor)
        self._settle(readiness, health_servicer, directory)
        naming = asyncio.create_task(own_models.learn_name(directory.reload))
        self._stack.callback(naming.cancel)
        http_address = self._serve_http(http, readiness)
        return self._announce(grpc_address, socket_address, http_address, stores)

    def _registry(self, regime: PluginRegime) -> Registry:
        registry = Registry(
            identity=HostIdentity(self._host_id, "runmesh", __version__),
            settings_of=regime.settings_of,
            remembered_sessions=self._limits.remembered_sessions,
        )
        self._stack.push_async_callback(registry.close)
        self._attachments = Attachments(
            registry=registry,
            initial_credit=self._limits.attach_credit_results,
            expected_seconds=self._limits.instance_wait_seconds,
        )
        return registry

    async def _start_plugins(self, registry: Registry, regime: PluginRegime) -> Supervisor:
        static = StaticRunners(
            registry=registry, insecure=self._settings.insecure, tls=self._tls.dialling
        )
        self._stack.push_async_callback(static.close)
        _dial(static, self._settings.static_runners)
        cgroups = await asyncio.to_thread(_enter_cgroup, self._settings)
        shipped = [shipped_plugins_folder()] if self._settings.shipped_plugins else []
        supervisor = Supervisor(
            registry=registry,
            folders=[*shipped, self._folder.plugins, *self._settings.plugin_folders],
            runtime_folder=self._folder.path / "plugin-homes",
            find_interpreter=interpreters_of(EnvironmentShelf(self._folder.path)),
            disabled=regime.disabled,
            sockets=self._sockets,
            cgroups=cgroups,
        )
        self._stack.push_async_callback(supervisor.stop)
        await supervisor.start()
        return supervisor

    async def _open_stores(self) -> Stores:
        stores = await open_database(
            self._settings.database_url or self._folder.database_url,
            secret_key_file=self._folder.path / "secret.key",
            blobs_url=self._settings.blobs_url
            or self._folder.blobs_url(self._settings.database_url),
            limits=self._limits,
        )
        self._stack.push_async_callback(stores.close)
        await renew_secrets(stores.secrets)
        await ensure_operator_key(stores.keys, self._folder, at=now())
        return stores

    def _watch_certificates(self) -> None:
        if self._tls.certificates is not None:
            watching = asyncio.create_task(keep_watched(self._tls.certificates.watched))
            self._stack.callback(watching.cancel)

    def _bind(self, server: grpc.aio.Server) -> tuple[str, str]:
        address, claim = bind_grpc(
            server,
            self._settings.grpc_address,
            insecure=self._settings.insecure,
            certificates=self._tls.certificates,
        )
        if claim is not None:
            self._stack.callback(claim.release)
        return address, bind_socket(server, self._sockets.new_path())

    def _host_api_addresses(
        self, grpc_address: str, socket_address: str, registry: Registry
    ) -> HostApiAddresses:
        chosen = self._settings.advertise_address
        addresses = HostApiAddresses(
            socket=socket_address,
            advertised=self._tls.advertised(grpc_address, chosen),
            is_chosen=bool(chosen),
        )
        unreached = [
            each
            for each in registry.instances()
            if each.found_by is not FoundBy.ATTACHED and not addresses.for_instance(each)
        ]
        if unreached:
            warn_of_unreachable_host(len(unreached))
        return addresses

    def _run_services(
        self,
        stores: Stores,
        registry: Registry,
        schemas: ConfigSchemas,
        tokens: RunTokens,
        host_api_addresses: HostApiAddresses,
        directory: AgentDirectory,
    ) -> RunServices:
        return RunServices(
            ledger=stores.ledger,
            state=stores.state,
            artifacts=stores.artifacts,
            actions=self._desk,
            registry=registry,
            schemas=schemas,
            tokens=tokens,
            limits=self._limits,
            validator=self._validator,
            telemetry=self._telemetry,
            clock=now,
            host_id=self._host_id,
            host_incarnation=self._incarnation,
            host_version=__version__,
            host_api_addresses=host_api_addresses,
            shelf=lambda: directory.shelf,
            toolset=lambda: self._tool_servers.toolset,
        )

    def _action_desk(self, stores: Stores) -> ActionDesk:
        desk = ActionDesk(
            store=stores.actions,
            executors=make_executors(self._configuration, limits=self._limits, clock=now),
            most_executing=self._limits.executing_actions,
            audit=stores.audit,
            clock=now,
            host_id=self._host_id,
            host_incarnation=self._incarnation,
        )
        self._stack.push_async_callback(desk.close)
        return desk

    def _servers_of_tools(self, stores: Stores) -> ToolServers:
        servers = ToolServers(
            secrets=stores.secrets,
            folder=self._folder.path / "tool-servers",
            limits=self._limits,
            clock=now,
        )
        self._stack.push_async_callback(servers.close)
        return servers

    def _gateway(self, orchestrator: Orchestrator, stores: Stores) -> GatewayServicer:
        return GatewayServicer(
            orchestrator=orchestrator,
            intake=EventIntake(
                artifacts=stores.artifacts, events=stores.events, limits=self._limits, clock=now
            ),
            files=CallerFiles(
                artifacts=stores.artifacts,
                uploads=self._uploads(stores),
                check=self._check,
                limits=self._limits,
            ),
            transcript=CallerTranscript(
                transcript=self._transcript_pages(stores, texts_in=stores.artifacts),
                pages=self._pages,
            ),
            watcher=RunWatcher(
                orchestrator=orchestrator, ledger=stores.ledger, limits=self._limits
            ),
            ledger=stores.ledger,
            check=self._check,
            pages=self._pages,
            limits=self._limits,
        )

    def _admin(
        self,
        directory: AgentDirectory,
        own_models: HostModels,
        stores: Stores,
        callers: CallerDirectory,
        services: RunServices,
        orchestrator: Orchestrator,
        edge: EdgeInterceptor,
        grants: AttachGrants,
        supervisor: Supervisor,
    ) -> AdminServicer:
        return AdminServicer(
            registry=services.registry,
            supervisor=supervisor,
            tool_servers=self._tool_servers,
            tool_calls=ToolCalls(
                servers=self._tool_servers,
                artifacts=stores.artifacts,
                limits=self._limits,
                telemetry=self._telemetry,
                clock=now,
            ),
            grants=grants,
            attachments=self._attachments,
            directory=directory,
            own_models=own_models,
            trials=ModelTrials(calls=self._models),
            knowledge=self._knowledge,
            secrets=stores.secrets,
            audit=AdminAudit(audit=stores.audit, clock=now),
            keys=stores.keys,
            callers=callers,
            schemas=services.schemas,
            orchestrator=orchestrator,
            desk=self._desk,
            actions=stores.actions,
            explaining=Explaining(
                stores=stores, orchestrator=orchestrator, schemas=services.schemas
            ),
            replaying=Replaying(
                stores=stores,
                orchestrator=orchestrator,
                services=services,
                insecure=self._settings.insecure,
                dialling=self._tls.dialling,
            ),
            edge=edge,
            check=self._check,
            pages=self._pages,
            limits=self._limits,
            clock=now,
            host_id=self._host_id,
            version=__version__,
        )

    def _host_models(self, stores: Stores) -> HostModels:
        rehearsal = RehearsalServer(script=rehearsal_script(self._settings.rehearsal_script))
        self._stack.push_async_callback(rehearsal.close)
        return HostModels(
            environment=self._settings.environment_model,
            rehearsal=rehearsal,
            catalogue=CatalogueEndpoints(secrets=stores.secrets),
            limits=self._limits,
        )

    def _model_calls(self, own_models: HostModels, directory: AgentDirectory) -> ModelCalls:
        models = ModelCalls(
            shelf=lambda: directory.shelf,
            endpoints=own_models,
            limits=self._limits,
            telemetry=self._telemetry,
        )
        self._stack.push_async_callback(models.close)
        return models

    def _knowledge_desk(
        self, stores: Stores, directory: AgentDirectory, vectors_wanted: asyncio.Event
    ) -> KnowledgeDesk:
        desk = KnowledgeDesk(
            store=stores.knowledge,
            embedder=self._models,
            shelf=lambda: directory.shelf,
            limits=self._limits,
            vectors_wanted=vectors_wanted,
        )
        self._stack.push_async_callback(desk.close)
        return desk

    def _uploads(self, stores: Stores) -> Uploads:
        return Uploads(artifacts=stores.artifacts, limits=self._limits, clock=now)

    def _transcript_pages(
        self, stores: Stores, *, texts_in: store_artifacts.Artifacts
    ) -> TranscriptPages:
        return TranscriptPages(
            transcript=stores.transcript,
            texts=WholeTexts(artifacts=texts_in, limits=self._limits),
            limits=self._limits,
        )

    def _capabilities(
        self,
        stores: Stores,
        orchestrator: Orchestrator,
        *,
        texts_in: store_artifacts.Artifacts,
    ) -> Capabilities:
        return offer(
            stores=stores,
            # Whole texts are the conversation's, whoever first asks for one.
            transcript=self._transcript_pages(stores, texts_in=texts_in),
            uploads=self._uploads(stores),
            pages=self._pages,
            limits=self._limits,
            desk=self._desk.over(stores.actions),
            models=self._models,
            tool_servers=self._tool_servers,
            retrieval=self._knowledge.retrieval,
            telemetry=self._telemetry,
            steering_of=orchestrator.steering_of,
            clock=now,
        )

    async def _prepare_agents(self, directory: AgentDirectory, callers: CallerDirectory) -> None:
        await directory.settle()
        await directory.ensure_default(SHIPPED_RUNNER)
        if self._configuration is not None:
            await apply_configuration(self._configuration, directory, self._check)
            await callers.reload()
        await directory.reload()

    async def _serve(
        self,
        server: grpc.aio.Server,
        edge: EdgeInterceptor,
        orchestrator: Orchestrator,
        stores: Stores,
        health_servicer: health.aio.HealthServicer,
    ) -> None:
        recovery = Recovery(
            stores=stores,
            orchestrator=orchestrator,
            actions=self._desk,
            host_id=self._host_id,
            incarnation=self._incarnation,
            limits=self._limits,
            clock=now,
        )
        await recovery.register()
        self._stack.push_async_callback(recovery.release)
        await recovery.recover()
        await server.start()
        self._stack.push_async_callback(end_calls, server, edge)
        # Behind the grace of their runs, and ahead of the end of all calls: they are told why.
        self._stack.push_async_callback(self._attachments.close)
        lease = asyncio.create_task(recovery.keep(self._lost.set))
        self._stack.callback(lease.cancel)
        self._stack.push_async_callback(
            orchestrator.drain, self._limits.shutdown_grace_seconds, self._hurry
        )
        self._stack.push_async_callback(health_servicer.enter_graceful_shutdown)

    def _settle(
        self,
        readiness: Readiness,
        health_servicer: health.aio.HealthServicer,
        directory: AgentDirectory,
    ) -> None:
        async def settle() -> None:
            await readiness.settle()
            await say_serving(health_servicer)
            try:
                await directory.fill_default()
                await directory.settle()
            except StoreError as error:
                _log.warning("agents could not be brought up to what their runners say: %s", error)
            # Only now: it takes a processor for half a second, which a start should not wait for.
            if is_for_people(directory.shelf.models.values()):
                await asyncio.to_thread(load_client)

        task = asyncio.create_task(settle())
        self._stack.callback(task.cancel)

    def _bind_http(self) -> tuple[socket.socket, str] | None:
        address = self._settings.http_address
        if not address:
            return None
        certificates = self._tls.certificates
        listener, bound = bind_http(
            address, insecure=self._settings.insecure or certificates is not None
        )
        self._stack.callback(listener.close)
        return listener, bound

    def _serve_http(self, http: tuple[socket.socket, str] | None, readiness: Readiness) -> str:
        if http is None:
            return ""
        listener, address = http
        certificates = self._tls.certificates
        server = HttpServer(
            listener=listener,
            readiness=readiness.missing,
            context=certificates.ssl_context() if certificates else None,
        )
        server.start()
        self._stack.push_async_callback(server.stop)
        return address

    def _announce(
        self, grpc_address: str, socket_address: str, http_address: str, stores: Stores
    ) -> Host:
        addresses = HostAddresses(
            pid=os.getpid(),
            host_id=self._host_id,
            version=__version__,
            grpc=grpc_address,
            socket=socket_address,
            http=http_address,
            started_at=now().isoformat(),
            **_told_files(self._settings.tls),
        )
        self._folder.announce(addresses)
        _log.info(
            "listening grpc=%s socket=%s http=%s",
            grpc_address,
            socket_address,
            http_address or "off",
        )
        return Host(addresses=addresses, stores=stores, lost=self._lost)


def _told_files(files: ListenFiles | None) -> dict[str, str]:
    if files is None:
        return {}
    return {
        "tls_certificate": str(files.certificate),
        "tls_key": str(files.key),
        "tls_client_ca": str(files.client_ca or ""),
    }


def _enter_cgroup(settings: Settings) -> DelegatedCgroup | None:
    try:
        return enter_cgroup(CgroupUse(settings.cgroups))
    except CgroupUnusable as error:
        advice = "delegate one (systemd: Delegate=yes), or leave --cgroups"
        raise StartupError(f"plugins cannot have cgroups: {error}", advice) from error


def _dial(static: StaticRunners, runners: Iterable[tuple[str, str]]) -> None:
    for plugin_id, address in runners:
        try:
            static.add(plugin_id, address)
        except AddressInvalid as error:
            raise StartupError(str(error), "give --runner author/name=ADDRESS") from error
