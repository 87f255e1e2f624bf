"""The server of a runner's process: its services, its health, and its draining."""

import asyncio
import inspect
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc import aio
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from runmesh.v1 import discovery_pb2, run_pb2

import runner_sdk
from runner_sdk._attach import Attach, Attachment
from runner_sdk._listen import listen_address, private_files
from runner_sdk._reflection import serve_reflection
from runner_sdk._run import RELOADED, SHUT_DOWN
from runner_sdk._servicer import DiscoveryServicer, Identity, RunServicer, Served
from runner_sdk._settings import HostSettings
from runner_sdk._tls import Tls
from runner_sdk._transport import Channels, server_options
from runner_sdk.errors import ManifestError, ServeError
from runner_sdk.manifest import Manifest
from runner_sdk.runner import AgentRunner, FunctionRunner

_logger = logging.getLogger("runner_sdk.serve")

_DISCOVERY = discovery_pb2.DESCRIPTOR.services_by_name["DiscoveryService"].full_name
_RUN = run_pb2.DESCRIPTOR.services_by_name["RunService"].full_name

# How long cancelled runs get to clean up.
_CLEANUP_SECONDS = 5.0
# How long the last frames and statuses get to leave.
_FLUSH_SECONDS = 0.2


class RunnerServer:
    """Serves runners until it is told to drain."""

    def __init__(
        self,
        runners: Sequence[AgentRunner],
        *,
        manifest: Manifest | str | Path | None = None,
        listen: str | None = None,
        tls: Tls | None = None,
        attach: Attach | None = None,
        max_concurrent_runs: int = 0,
    ) -> None:
        self._tls = tls
        self._listen = ""
        if attach is None:
            self._listen = listen_address(listen, tls=tls is not None and tls.can_listen)
        self.manifest = manifest_of(runners, manifest)
        served = _match(runners, self.manifest)
        self._channels = Channels(tls.host_credentials() if tls else None)
        settings = HostSettings()
        self._runs = RunServicer(
            served=served,
            max_concurrent_runs=max_concurrent_runs,
            channels=self._channels,
            settings=settings,
        )
        self._discovery = DiscoveryServicer(
            identity=Identity(
                plugin_id=self.manifest.plugin_id,
                plugin_version=self.manifest.version,
                sdk_version=runner_sdk.__version__,
                max_concurrent_runs=max_concurrent_runs,
            ),
            served=served,
            settings=settings,
        )
        self._attachment: Attachment | None = None
        if attach is not None:
            self._attachment = Attachment(
                attach=attach, runs=self._runs, discovery=self._discovery, channels=self._channels
            )
        self._health = health.aio.HealthServicer()
        self._server: aio.Server | None = None
        self._hurry = asyncio.Event()
        self._ending = SHUT_DOWN
        if attach is not None and attach.development:
            # Whoever has saved a file waits for what it does now, not for runs of what was there.
            self._ending = RELOADED
            self.hurry()

    @property
    def active_runs(self) -> int:
        """How many runs are under way."""
        return self._runs.active

    @property
    def attaches(self) -> bool:
        """Whether it attaches to a host instead of listening for some."""
        return self._attachment is not None

    async def refused(self) -> ServeError:
        """Waits until the host to attach to will not have this process, and returns why."""
        never: asyncio.Future[ServeError] = asyncio.get_running_loop().create_future()
        return await (asyncio.shield(self._attachment.refused) if self._attachment else never)

    async def start(self) -> str:
        """Starts listening, or attaching, and returns the address to listen on or attach to.

        Raises:
            ServeError: The address cannot be listened on.
        """
        if self._attachment is not None:
            return self._attachment.start()
        return await self._listen_now()

    async def _listen_now(self) -> str:
        server = aio.server(options=server_options())
        _add_services(server, runs=self._runs, discovery=self._discovery, status=self._health)
        for service in ("", _DISCOVERY, _RUN):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        try:
            with private_files():
                if self._tls and self._tls.can_listen and not self._listen.startswith("unix:"):
                    credentials = self._tls.server_credentials()
                    port = server.add_secure_port(self._listen, credentials)
                else:
                    port = server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise ServeError(f"cannot listen on {self._listen}: {error}") from error
        await server.start()
        self._server = server
        if self._listen.startswith("unix:"):
            return self._listen
        return f"{self._listen.rpartition(':')[0]}:{port}"

    async def drain(self, grace_seconds: float) -> bool:
        """Stops: no new runs, a grace for those under way, then they are cancelled.

        Returns:
            Whether all runs ended. One that ignores cancellation does not.
        """
        self._runs.drain()
        if self._attachment is not None:
            self._attachment.drain()
        await self._health.enter_graceful_shutdown()
        ended = asyncio.create_task(self._runs.ended())
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait(
            {ended, hurry}, timeout=grace_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        hurry.cancel()
        if not ended.done():
            self._runs.stop_all(self._ending)
            await asyncio.wait({ended}, timeout=_CLEANUP_SECONDS)
        all_ended = ended.done()
        ended.cancel()
        if self._attachment is not None:
            await self._attachment.close(_FLUSH_SECONDS)
        if self._server is not None:
            await self._server.stop(_FLUSH_SECONDS)
        await self._channels.close()
        return all_ended

    def hurry(self) -> None:
        """Ends the grace of a drain that is under way, or of one to come."""
        self._hurry.set()


def manifest_of(runners: Sequence[AgentRunner], manifest: Manifest | str | Path | None) -> Manifest:
    """Returns the manifest of runners: the one given, or the nearest above their source.

    Raises:
        ManifestError, ServeError: There is none, or none that can be used.
    """
    if isinstance(manifest, Manifest):
        return manifest
    if manifest is not None:
        return Manifest.load(manifest)
    if not runners:
        raise ServeError("there is no runner to serve: serve(MyRunner())")
    return Manifest.find(_source_of(runners[0]))


def _source_of(runner: AgentRunner) -> str:
    code = runner.function if isinstance(runner, FunctionRunner) else type(runner)
    try:
        return inspect.getfile(inspect.unwrap(code))
    except TypeError as error:
        raise ServeError(
            f"the file of {code!r} is not known: name the manifest, serve(..., manifest=PATH)"
        ) from error


def _match(runners: Sequence[AgentRunner], manifest: Manifest) -> dict[str, Served]:
    """Finds each runner's manifest, by its name."""
    served: dict[str, Served] = {}
    for runner in runners:
        if not isinstance(runner, AgentRunner):
            raise ServeError(
                f"{runner!r} is no runner: serve an object of a class derived from AgentRunner, or "
                "a function decorated with @agent_runner"
            )
        found = manifest.runners.get(runner.name)
        if found is None:
            raise ManifestError(
                file=manifest.file,
                field="components",
                rule=f"has no AgentRunner named {runner.name!r}; "
                f"there are {', '.join(manifest.runners) or 'none'}",
            )
        if found.id in served:
            raise ServeError(f"two runners are named {runner.name!r}: give each a name of its own")
        served[found.id] = Served(runner, found)
    for name in manifest.runners:
        if f"plugin:{manifest.plugin_id}/{name}" not in served:
            _logger.warning("%s lists the runner %s, which is not served", manifest.file, name)
    return served


def _add_services(
    server: aio.Server,
    *,
    runs: RunServicer,
    discovery: DiscoveryServicer,
    status: health.aio.HealthServicer,
) -> None:
    # By hand instead of the generated function: frames leave as the bytes they already are.
    _add(
        server,
        _RUN,
        {
            "Run": grpc.unary_stream_rpc_method_handler(
                runs.run, request_deserializer=run_pb2.RunRequest.FromString
            ),
            "Interrupt": _unary(runs.interrupt, run_pb2.InterruptRequest),
        },
    )
    _add(
        server,
        _DISCOVERY,
        {
            "Handshake": _unary(discovery.handshake, discovery_pb2.HandshakeRequest),
            "ListRunners": _unary(discovery.list_runners, discovery_pb2.ListRunnersRequest),
        },
    )
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    channelz.add_channelz_servicer(server)
    names = (_DISCOVERY, _RUN, health.SERVICE_NAME, "grpc.channelz.v1.Channelz")
    serve_reflection(names, server)


def _unary(handler: Any, request: type[Message]) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        handler,
        request_deserializer=request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


def _add(server: aio.Server, service: str, handlers: dict[str, Any]) -> None:
    # Not registered by method: gRPC would keep a task for each, and look at all of them for each
    # call.
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
