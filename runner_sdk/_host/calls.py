"""Calls of HostAPIService: what goes with each of them, and what comes back when one fails.

::

    a client (models, history ...) --> HostCalls.call / stream / upload --> gRPC

Every call carries the run's two tokens, its trace and its remaining time. A call that the contract
lets be repeated waits when the host says that it comes too fast; nothing else is ever repeated.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from grpc.aio import AioRpcError
from runmesh.v1 import host_api_pb2
from runmesh.v1.run_pb2 import HostAccess

from runner_sdk._host.metadata import CallMetadata, checked_metadata
from runner_sdk._host.streams import HostStream
from runner_sdk._status import host_call_error
from runner_sdk._trace import RunTrace
from runner_sdk._transport import Channels
from runner_sdk.errors import HostUnavailable, RateLimited

StreamT = TypeVar("StreamT", bound=HostStream[Any])

_SERVICE = host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"]

REPEATABLE: Final = frozenset(
    {
        "AcknowledgeSteering",
        "DeleteState",
        "DeleteStorage",
        "EmbedTexts",
        "GetArtifactMetadata",
        "GetEvent",
        "GetPrompt",
        "GetState",
        "GetStorage",
        "GetToolDetail",
        "ListKnowledgeBases",
        "ListState",
        "ListStorage",
        "PageEvents",
        "PageHistory",
        "ReadArtifact",
        "RequestAction",
        "RerankDocuments",
        "RetrieveKnowledge",
        "SearchHistory",
        "SetState",
        "SetStorage",
        "StreamArtifact",
    }
)
"""The calls that the contract lets be repeated."""

PATIENCE_SECONDS: Final = 10.0
"""How long a call that comes too fast waits, all its waits together, before it is an error."""

_SHORTEST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 1.0


class HostCalls:
    """Makes calls to the host that a run came from."""

    __slots__ = ("_access", "_channels", "_remaining_seconds", "_trace")

    def __init__(
        self,
        *,
        access: HostAccess,
        channels: Channels,
        trace: RunTrace,
        remaining_seconds: Callable[[], float | None],
    ) -> None:
        self._access = access
        self._channels = channels
        self._trace = trace
        self._remaining_seconds = remaining_seconds

    @property
    def access(self) -> HostAccess:
        """Where the host is, and the tokens for it."""
        return self._access

    def remaining_seconds(self, timeout_seconds: float | None = None) -> float | None:
        """Returns how long a call may take: its own time, and never more than the run's."""
        remaining = self._remaining_seconds()
        if timeout_seconds is None:
            return remaining
        return timeout_seconds if remaining is None else min(timeout_seconds, remaining)

    async def call(
        self,
        method: str,
        request: Message,
        *,
        timeout_seconds: float | None = None,
        metadata: CallMetadata | None = None,
    ) -> Any:
        """Makes a call that is answered once, and returns its response."""
        start = self._starter(_method(method, streams=False))
        loop = asyncio.get_running_loop()
        began = loop.time()
        patience = _Patience(method)
        while True:
            options = self._options(method, _left(timeout_seconds, loop.time() - began), metadata)
            try:
                return await start(request, **options)
            except AioRpcError as error:
                failure = host_call_error(method, error)
                wait_seconds = patience.wait_seconds(failure, options["timeout"])
                if wait_seconds is None:
                    raise failure from error
            await asyncio.sleep(wait_seconds)

    def stream(
        self,
        kind: type[StreamT],
        method: str,
        request: Message,
        *,
        timeout_seconds: float | None = None,
        metadata: CallMetadata | None = None,
    ) -> StreamT:
        """Makes a call whose answer is a stream, and returns that."""
        found = _method(method, streams=True)
        patience = _Patience(method)

        def begin() -> Any:
            # Only here, on the loop: plain code may have asked for the stream in its thread.
            return self._starter(found)(request, **self._options(method, timeout_seconds, metadata))

        def wait_seconds(failure: Exception) -> float | None:
            return patience.wait_seconds(failure, self.remaining_seconds(timeout_seconds))

        return kind(method, begin=begin, wait_seconds=wait_seconds)

    def upload(self, method: str, *, timeout_seconds: float | None = None) -> Any:
        """Begins a call whose request is a stream, and returns gRPC's own object for it."""
        found = _SERVICE.methods_by_name[method]
        return self._starter(found)(**self._options(method, timeout_seconds, None))

    def _starter(self, method: Any) -> Any:
        if not self._access.address:
            raise HostUnavailable(
                method=method.name,
                reason="UNAVAILABLE",
                message="the host has no address that this runner could reach: it is to be started "
                "with --advertise HOST:PORT",
            )
        if not self._channels.are_private(self._access.address):
            raise HostUnavailable(
                method=method.name,
                reason="UNAVAILABLE",
                message=f"host_access.address {self._access.address!r} is on another machine, and "
                "the run's tokens would travel in the clear: give serve(tls=...) a host_ca, "
                "or set RUNMESH_TLS_HOST_CA",
            )
        return self._channels.call(self._access.address, method)

    def _options(
        self, method: str, timeout_seconds: float | None, metadata: CallMetadata | None
    ) -> dict[str, Any]:
        own = checked_metadata(method, metadata) if metadata else ()
        entries = (
            ("authorization", f"Bearer {self._access.run_token}"),
            ("runmesh-instance", self._access.instance_token),
            *self._trace.outgoing(),
            *own,
        )
        return {"metadata": entries, "timeout": self.remaining_seconds(timeout_seconds)}


class _Patience:
    """Decides whether a call that was refused waits and is made again."""

    def __init__(self, method: str) -> None:
        self._repeatable = method in REPEATABLE
        self._waited_seconds = 0.0
        self._refusals = 0

    def wait_seconds(self, failure: Exception, remaining_seconds: float | None) -> float | None:
        """Returns how long to wait before the next try; None: it failed."""
        if not self._repeatable or not isinstance(failure, RateLimited):
            return None
        if failure.retry_after_seconds is None:
            return None
        # Calls that were refused together are told the same moment: spread them out, more each
        # time.
        spread = min(2.0**self._refusals * _SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
        wait = failure.retry_after_seconds + random.uniform(0, spread)  # noqa: S311 - no secret
        self._refusals += 1
        self._waited_seconds += wait
        if self._waited_seconds > PATIENCE_SECONDS:
            return None
        if remaining_seconds is not None and wait >= remaining_seconds:
            return None
        return wait


def _left(timeout_seconds: float | None, spent_seconds: float) -> float | None:
    return None if timeout_seconds is None else max(0.0, timeout_seconds - spent_seconds)


def _method(name: str, *, streams: bool) -> Any:
    found = _SERVICE.methods_by_name.get(name)
    if found is None:
        known = ", ".join(_SERVICE.methods_by_name)
        raise ValueError(f"HostAPIService has no call {name!r}; it has {known}")
    if found.client_streaming:
        raise ValueError(f"{name} takes a stream: use artifacts.create()")
    if found.server_streaming != streams:
        raise ValueError(
            f"{name} is answered {'once: use call()' if streams else 'by a stream: use stream()'}"
        )
    return found
