"""The composition root: builds the host, wires it, serves, and takes it down.

The only place that knows everybody.

Start: lock the data folder, bind, open the stores while plugins start, take care of runs of hosts
    that are gone, serve.
Stop: take no more events, let runs finish, end calls, end plugins, flush and close the stores.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc.aio
import uvloop
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from runmesh.admin.v1 import admin_pb2, admin_pb2_grpc
from runmesh.v1 import attach_pb2_grpc, discovery_pb2_grpc, gateway_pb2_grpc, host_api_pb2_grpc

from host_service import __version__, wire
from host_service.admin import AdminServicer
from host_service.agents.directory import AgentDirectory
from host_service.attach import AttachServicer
from host_service.authorization.callers import CallerDirectory, Role
from host_service.authorization.secrets import API_KEY_PREFIX, hash_secret, new_secret
from host_service.authorization.tokens import RunTokens
from host_service.configuration import Configuration, ConfigurationError, load_configuration
from host_service.console.http import HttpServer
from host_service.data_folder import DataFolder, HostAddresses
from host_service.discovery import DiscoveryServicer
from host_service.errors import HostError, StartupError
from host_service.gateway import GatewayServicer
from host_service.host_api import HostAPIServicer
from host_service.identity import new_id
from host_service.interceptors import Authentication, EdgeInterceptor
from host_service.limits import Limits
from host_service.listening import bind_grpc, bind_http
from host_service.logs import set_up_logging
from host_service.registry.channel import SERVER_OPTIONS
from host_service.registry.errors import AddressInvalid
from host_service.registry.records import HostIdentity
from host_service.registry.registry import Registry
from host_service.registry.static_runners import StaticRunners
from host_service.requests import PageTokens, RequestCheck
from host_service.runs.admission import Admission
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.recovery import Recovery
from host_service.runs.run import RunServices
from host_service.runs.watching import RunWatcher
from host_service.settings import Settings
from host_service.supervisor.sockets import SocketFolder
from host_service.supervisor.supervisor import Supervisor
from host_service.telemetry import Telemetry
from host_service.validation import Validator
from stores import Stores, open_stores
from stores.errors import StoreError
from stores.records import ApiKeyRecord

_log = logging.getLogger("runmesh.host")

SHIPPED_RUNNER = "plugin:runmesh/echo/default"

_SERVICES = (
    "runmesh.v1.AttachService",
    "runmesh.v1.DiscoveryService",
    "runmesh.v1.GatewayService",
    "runmesh.v1.HostAPIService",
    "runmesh.admin.v1.AdminService",
)
# How long calls that were ended may take to clean up after themselves.
_CLEAN_UP_SECONDS = 5.0
# How long plugins may take to start before the host says that it is ready all the same.
_SETTLE_SECONDS = 15.0


def now() -> datetime:
    """Return the time now, in UTC."""
    return datetime.now(UTC)


def run_host(settings: Settings) -> int:
    """Run a host until it is told to stop; return the exit code of its process.

    Raises:
        StartupError: It cannot start.
    """
    set_up_logging(settings.log_level)
    return uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    stop, hurry = asyncio.Event(), asyncio.Event()
    _listen_for_signals(stop, hurry)
    async with running_host(settings, hurry=hurry) as host:
        if settings.quit_with_stdin:
            _stop_with_stdin(stop)
        lost = asyncio.create_task(host.lost.wait())
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({lost, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (lost, stopped):
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
        lost: Set when another start of the same host took over.
    """

    addresses: HostAddresses
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
    configuration = _read_configuration(settings.config_file)
    limits = _limits(settings.limits, configuration)
    async with AsyncExitStack() as stack:
        folder = DataFolder.open(settings.data_folder)
        stack.callback(folder.close)
        host = await _build(
            stack, settings, folder, limits, configuration, hurry or asyncio.Event()
        )
        yield host


def _read_configuration(path: Path | None) -> Configuration | None:
    if path is None:
        return None
    try:
        return load_configuration(path)
    except (ConfigurationError, OSError) as error:
        raise StartupError(
            f"the configuration cannot be used: {error}", "mend it, or start without --config"
        ) from error


def _limits(limits: Limits, configuration: Configuration | None) -> Limits:
    if configuration is None:
        return limits
    try:
        return limits.with_overrides(configuration.limits)
    except ValueError as error:
        raise StartupError(str(error), "mend the configuration file") from error


async def _build(
    stack: AsyncExitStack,
    settings: Settings,
    folder: DataFolder,
    limits: Limits,
    configuration: Configuration | None,
    hurry: asyncio.Event,
) -> Host:
    host_id, incarnation = folder.host_id(), new_id()
    sockets = stack.enter_context(SocketFolder.create())
    telemetry = Telemetry(service_version=__version__, host_id=host_id)
    stack.callback(telemetry.close)

    registry = Registry(identity=HostIdentity(host_id, "runmesh", __version__))
    stack.push_async_callback(registry.close)
    supervisor = _supervisor(settings, folder, registry, sockets)
    stack.push_async_callback(supervisor.stop)
    static = StaticRunners(registry=registry, insecure=settings.insecure)
    stack.push_async_callback(static.close)
    _dial(static, settings.static_runners)
    # Plugins take longer to start than the database to open: neither waits for the other.
    await supervisor.start()

    stores = await _open_stores(settings.database_url or folder.database_url)
    stack.push_async_callback(stores.close)
    callers = CallerDirectory(keys=stores.keys, clock=now)
    await _ensure_operator_key(stores, folder)
    await callers.reload()

    tokens = RunTokens()
    edge = EdgeInterceptor(
        authentication=Authentication(callers=callers, tokens=tokens), telemetry=telemetry
    )
    server = grpc.aio.server(interceptors=(edge,), options=SERVER_OPTIONS)
    grpc_address, claim = bind_grpc(server, settings.grpc_address, insecure=settings.insecure)
    if claim is not None:
        stack.callback(claim.release)
    socket_path = sockets.new_path()
    server.add_insecure_port(f"unix:{socket_path}")
    socket_path.chmod(0o600)
    http_listener = (
        bind_http(settings.http_address, insecure=settings.insecure)
        if settings.http_address
        else None
    )

    services = RunServices(
        ledger=stores.ledger,
        registry=registry,
        tokens=tokens,
        limits=limits,
        telemetry=telemetry,
        clock=now,
        host_id=host_id,
        host_incarnation=incarnation,
        host_version=__version__,
        host_api_address=f"unix:{socket_path}",
    )
    directory = AgentDirectory(catalogue=stores.catalogue)
    orchestrator = Orchestrator(
        stores=stores,
        directory=directory,
        services=services,
        admission=Admission(active=limits.active_runs, waiting=limits.waiting_runs),
    )
    recovery = Recovery(
        stores=stores,
        orchestrator=orchestrator,
        host_id=host_id,
        incarnation=incarnation,
        limits=limits,
        clock=now,
    )
    check = RequestCheck(validator=Validator(limits.as_mapping()))
    pages = PageTokens(limits=limits)
    serving = health.aio.HealthServicer()
    _register(
        server,
        gateway=GatewayServicer(
            orchestrator=orchestrator,
            watcher=RunWatcher(orchestrator=orchestrator, ledger=stores.ledger, limits=limits),
            ledger=stores.ledger,
            check=check,
            pages=pages,
            limits=limits,
            clock=now,
        ),
        admin=AdminServicer(
            directory=directory,
            keys=stores.keys,
            callers=callers,
            registry=registry,
            orchestrator=orchestrator,
            check=check,
            pages=pages,
            limits=limits,
            clock=now,
            host_id=host_id,
            version=__version__,
        ),
        discovery=DiscoveryServicer(registry=registry),
        health=serving,
    )

    await directory.ensure_default(SHIPPED_RUNNER)
    if configuration is not None:
        await _apply(configuration, directory, check)
    await directory.reload()
    await recovery.register()
    stack.push_async_callback(recovery.release)
    await recovery.recover()

    await server.start()
    stack.push_async_callback(_end_calls, server, edge)
    lost = asyncio.Event()
    lease = asyncio.create_task(recovery.keep(lost.set))
    stack.callback(lease.cancel)
    stack.push_async_callback(orchestrator.drain, limits.shutdown_grace_seconds, hurry)
    stack.push_async_callback(_say_not_serving, serving)

    readiness = _Readiness(stores=stores, supervisor=supervisor)
    settled = asyncio.create_task(readiness.settle(serving))
    stack.callback(settled.cancel)
    http_address = ""
    if http_listener is not None:
        name = http_listener.getsockname()
        http_address = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        http = HttpServer(listener=http_listener, readiness=readiness.missing)
        http.start()
        stack.push_async_callback(http.stop)
    addresses = HostAddresses(
        pid=os.getpid(),
        host_id=host_id,
        version=__version__,
        grpc=grpc_address,
        socket=f"unix:{socket_path}",
        http=http_address,
        started_at=now().isoformat(),
    )
    folder.announce(addresses)
    _log.info(
        "listening grpc=%s socket=%s http=%s", grpc_address, addresses.socket, http_address or "off"
    )
    # What was built stays until the end: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    return Host(addresses=addresses, lost=lost)


def _dial(static: StaticRunners, runners: Iterable[tuple[str, str]]) -> None:
    for plugin_id, address in runners:
        try:
            static.add(plugin_id, address)
        except AddressInvalid as error:
            raise StartupError(str(error), "give --runner author/name=ADDRESS") from error


def _supervisor(
    settings: Settings, folder: DataFolder, registry: Registry, sockets: SocketFolder
) -> Supervisor:
    shipped = _shipped_plugins() if settings.shipped_plugins else None
    folders = [
        each for each in (shipped, folder.plugins, *settings.plugin_folders) if each is not None
    ]
    return Supervisor(
        registry=registry,
        folders=folders,
        runtime_folder=folder.path / "plugin-homes",
        sockets=sockets,
    )


def _shipped_plugins() -> Path | None:
    """Return the folder of the plugins that ship: in the package, or beside it in a source tree."""
    here = Path(__file__).parent
    return next(
        (each for each in (here / "shipped_plugins", here.parent / "plugins") if each.is_dir()),
        None,
    )


async def _open_stores(url: str) -> Stores:
    try:
        return await open_stores(url)
    except StoreError as error:
        raise StartupError(f"the database cannot be used: {error}", "check --database") from error


async def _ensure_operator_key(stores: Stores, folder: DataFolder) -> None:
    """On the first start with no keys, make one for the operator and keep it in the data folder."""
    if await stores.keys.list():
        return
    secret = folder.operator_key(lambda: new_secret(API_KEY_PREFIX))
    await stores.keys.create(
        ApiKeyRecord(
            key_id=new_id(),
            name="operator",
            hash=hash_secret(secret),
            role=Role.OPERATOR,
            created_at=now(),
        )
    )


async def _apply(
    configuration: Configuration, directory: AgentDirectory, check: RequestCheck
) -> None:
    request = admin_pb2.ApplyRequest(agents=configuration.agents, bindings=configuration.bindings)
    try:
        check.require(request)
        await directory.apply(
            [wire.agent_from_message(message) for message in request.agents],
            [wire.binding_from_message(message) for message in request.bindings],
        )
    except HostError as error:
        raise StartupError(
            f"the configuration cannot be used: {error}", "mend it, or start without --config"
        ) from error


def _register(
    server: grpc.aio.Server,
    *,
    gateway: GatewayServicer,
    admin: AdminServicer,
    discovery: DiscoveryServicer,
    health: health.aio.HealthServicer,
) -> None:
    registered: Any = _ResultsAsTheyAre(server)
    gateway_pb2_grpc.add_GatewayServiceServicer_to_server(gateway, registered)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
    discovery_pb2_grpc.add_DiscoveryServiceServicer_to_server(discovery, server)
    host_api_pb2_grpc.add_HostAPIServiceServicer_to_server(HostAPIServicer(), server)
    attach_pb2_grpc.add_AttachServiceServicer_to_server(AttachServicer(), server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    channelz.add_channelz_servicer(server)
    reflection.enable_server_reflection(
        (
            *_SERVICES,
            health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
            "grpc.channelz.v1.Channelz",
            reflection.SERVICE_NAME,
        ),
        server,
    )


class _ResultsAsTheyAre:
    """A server to register with, whose responses may be bytes that are encoded already."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Registered again by name below; generated code does both."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Register handlers whose serializer lets bytes pass."""
        passing = {
            name: handler._replace(response_serializer=_encode)
            for name, handler in handlers.items()
        }
        generic = grpc.method_handlers_generic_handler(service, passing)
        self._server.add_generic_rpc_handlers((generic,))


def _encode(response: Any) -> bytes:
    return response if type(response) is bytes else response.SerializeToString()


class _Readiness:
    """Tells whether the host would take an event now.

    Args:
        stores: They must answer.
        supervisor: Its plugins must have started, or failed to.
    """

    def __init__(self, *, stores: Stores, supervisor: Supervisor) -> None:
        self._stores = stores
        self._supervisor = supervisor
        self._settled = False

    async def settle(self, serving: health.aio.HealthServicer) -> None:
        """Say SERVING once plugins have started."""
        await self._supervisor.settled(_SETTLE_SECONDS)
        self._settled = True
        for service in ("", *_SERVICES):
            await serving.set(service, health_pb2.HealthCheckResponse.SERVING)

    async def missing(self) -> dict[str, str]:
        """Return what is not ready, by name."""
        missing = {}
        if not self._settled:
            missing["plugins"] = "starting"
        try:
            await self._stores.ping()
        except StoreError as error:
            missing["database"] = type(error).__name__
        return missing


async def _say_not_serving(serving: health.aio.HealthServicer) -> None:
    await serving.enter_graceful_shutdown()


async def _end_calls(server: grpc.aio.Server, edge: EdgeInterceptor) -> None:
    """End calls, and wait until each has cleaned up after itself, which `stop` does not."""
    await server.stop(1.0)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLEAN_UP_SECONDS):
            await edge.idle()
