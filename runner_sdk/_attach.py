"""Attaching to a host instead of listening for one: a stream that is opened again when it ends.

::

    Attachment.keep ── dial, hello, welcome ──> AttachedStream.serve ── ended ──> pause ──> again
         ^                                            |
         |  refused for good: the process ends        └── runs, as if they were called
"""

import asyncio
import logging
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc.aio import AioRpcError
from runmesh.v1 import attach_pb2

from runner_sdk._attached_stream import AttachedStream
from runner_sdk._servicer import DiscoveryServicer, RunServicer
from runner_sdk._status import host_call_error
from runner_sdk._transport import Channels, Options
from runner_sdk.errors import ServeError
from runner_sdk.manifest import PROTOCOL_VERSION

_logger = logging.getLogger("runner_sdk.serve")

_METHOD = "/runmesh.v1.AttachService/Attach"
_HOST, _TOKEN = "RUNMESH_ATTACH", "RUNMESH_ATTACH_TOKEN"
_INSECURE, _DEVELOPMENT = "RUNMESH_ATTACH_INSECURE", "RUNMESH_DEVELOPMENT"

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_WELCOME_SECONDS = 15.0
# Another try changes nothing about these.
_FOR_GOOD = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
_OPTIONS: Options = (
    # A stream of its own connection: what runs up- and download does not come in its way.
    ("grpc.use_local_subchannel_pool", 1),
    # A host that is gone without a word, or a router that forgot us, is noticed so.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(frozen=True, slots=True)
class Attach:
    """The host to attach to.

    Attributes:
        host: Its address: `host:port` or `unix:/path`.
        token: Secret. The attach token that was issued for the plugin.
        development: Whether the plugin is being worked on: its instance then takes the runs of the
            plugin's others.
        insecure: Whether token and runs may go without TLS to an address that others can listen in
            on.
    """

    host: str
    token: str = field(repr=False)
    development: bool = False
    insecure: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Attach | None":
        """Reads `RUNMESH_ATTACH` and `RUNMESH_ATTACH_TOKEN`; None without the first.

        `RUNMESH_DEVELOPMENT=1` and `RUNMESH_ATTACH_INSECURE=1` say the rest.
        """
        host = environment.get(_HOST)
        if not host:
            return None
        return cls(
            host=host,
            token=environment.get(_TOKEN, ""),
            development=environment.get(_DEVELOPMENT) == "1",
            insecure=environment.get(_INSECURE) == "1",
        )


class Attachment:
    """Keeps the runners of this process attached to a host, until it is closed.

    Args:
        attach: Which host.
        runs: Runs runs.
        discovery: Says who is there.
        channels: Open connections.

    Attributes:
        refused: Done, with why, when the host will not have this process.

    Raises:
        ServeError: It cannot be attached to so.
    """

    def __init__(
        self,
        *,
        attach: Attach,
        runs: RunServicer,
        discovery: DiscoveryServicer,
        channels: Channels,
    ) -> None:
        if not attach.token:
            raise ServeError(
                f"there is no token to attach with: `runmesh runners token` makes one; "
                f"put it into {_TOKEN}"
            )
        if not (channels.are_private(attach.host) or attach.insecure):
            raise ServeError(
                f"attach: {attach.host!r} can be listened in on, and there is no TLS: set "
                f"RUNMESH_TLS_HOST_CA or serve(tls=Tls(host_ca=...)), or {_INSECURE}=1"
            )
        self.refused: asyncio.Future[ServeError] = asyncio.get_running_loop().create_future()
        self._attach = attach
        self._runs = runs
        self._discovery = discovery
        self._channels = channels
        self._stream: AttachedStream | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_draining = False

    def start(self) -> str:
        """Begins to attach; returns the host's address at once."""
        self._keeping = asyncio.create_task(self._keep(), name="attach")
        return self._attach.host

    def drain(self) -> None:
        """Tells the host that no more runs are taken; what ends the stream is not dialled again."""
        self._is_draining = True
        if self._stream is not None:
            self._stream.say_draining()

    async def close(self, flush_seconds: float) -> None:
        """Sends what is still to be said, and leaves."""
        self._is_draining = True
        if self._stream is not None:
            await self._stream.finish(flush_seconds)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def _keep(self) -> None:
        pause_seconds = _FIRST_PAUSE_SECONDS
        while not self._has_to_go():
            was_welcome, problem = await self._attach_once()
            if self._has_to_go():
                return
            if was_welcome:
                pause_seconds = _FIRST_PAUSE_SECONDS
            _logger.warning("not attached to %s: %s", self._attach.host, problem)
            # All that lost the same host shall not come back in the same moment.
            await asyncio.sleep(pause_seconds * random.uniform(0.5, 1.5))  # noqa: S311
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _has_to_go(self) -> bool:
        return self._is_draining or self.refused.done()

    async def _attach_once(self) -> tuple[bool, str]:
        """Attaches for as long as it lasts; returns whether it did, and why it ended."""
        channel = self._channels.open(self._attach.host, _OPTIONS)
        was_welcome = False
        try:
            open_call: Any = channel.stream_stream(_METHOD)
            call = open_call(metadata=(("authorization", f"Bearer {self._attach.token}"),))
            stream = AttachedStream(call=call, runs=self._runs)
            async with asyncio.timeout(_WELCOME_SECONDS):
                welcome = await stream.greet(self._hello())
            was_welcome = True
            self._discovery.welcomed(welcome)
            self._stream = stream
            _logger.info(
                "%s is attached to %s", self._discovery.introduction().plugin_id, welcome.host_id
            )
            await stream.serve()
        except AioRpcError as error:
            return was_welcome, self._explain(error)
        except TimeoutError:
            return was_welcome, "the host does not answer"
        except ServeError as error:
            return was_welcome, str(error)
        finally:
            self._stream = None
            await channel.close()
        return was_welcome, "the host has closed the stream"

    def _hello(self) -> attach_pb2.AttachHello:
        return attach_pb2.AttachHello(
            protocol_versions=[PROTOCOL_VERSION],
            handshake=self._discovery.introduction(),
            runners=self._discovery.manifests,
            development=self._attach.development,
            host_address=self._attach.host,
        )

    def _explain(self, error: AioRpcError) -> str:
        told = host_call_error("Attach", error)
        if error.code() in _FOR_GOOD and not self.refused.done():
            self.refused.set_result(
                ServeError(f"{self._attach.host} refuses: {told.reason}: {told.message}")
            )
        return f"{told.reason}: {told.message}"
