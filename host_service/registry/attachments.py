"""The streams that runners have opened to this host, each from its hello to its end.

::

    hello ── checked ──> instance in the registry ──> welcome
    reader: what the runner says ──> Attached; its health ──> registry
    writer: what Attached has to say ──> the runner
    ended by: the runner, its connection, its token, the host, or the same instance anew
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from runmesh.v1 import attach_pb2

from host_service.errors import (
    FieldFault,
    HostError,
    Incompatible,
    InvalidArgument,
    Unauthenticated,
    Unavailable,
)
from host_service.registry.attach_results import UpResults, read_up
from host_service.registry.attached import Attached
from host_service.registry.handshake import introduction_of
from host_service.registry.instance import Instance
from host_service.registry.records import PROTOCOL_VERSIONS, InstanceState, Introduction
from host_service.registry.registry import Registry
from host_service.validation.wire_texts import Malformed

_log = logging.getLogger("runmesh.registry")

#: Reads the next message of a stream; None at its end.
Read = Callable[[], Awaitable[bytes | None]]
#: Sends a message; returns when the transport has taken it.
Write = Callable[[attach_pb2.AttachResponse], Awaitable[None]]

# A message that the transport does not take within this time is for somebody who reads no more.
_WRITE_SECONDS = 30.0
# A token that is revoked by another host is noticed within this time.
_LOOK_SECONDS = 5.0
# So long an attempt that was refused is listed, unless another takes its place.
_REFUSED_SECONDS = 300.0
_REFUSED_LISTED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a runner attaches with.

    Attributes:
        token_id: Its attach token.
        plugin_id: The plugin that was issued for.
        seconds_left: How long it still works.
        is_unrevoked: Tells whether no host has revoked it.
    """

    token_id: str
    plugin_id: str
    seconds_left: float
    is_unrevoked: Callable[[], Awaitable[bool]]


class Attachments:
    """Serves streams of runners that attach.

    Args:
        registry: Where their instances are listed.
        initial_credit: Results of each run that a runner may send before any was read.
        expected_seconds: How long runs may wait for an instance whose stream has ended.
    """

    def __init__(self, *, registry: Registry, initial_credit: int, expected_seconds: float) -> None:
        self._registry = registry
        self._initial_credit = initial_credit
        self._expected_seconds = expected_seconds
        self._streams: set[AttachedStream] = set()
        # What is listed of those that were refused, by plugin, the oldest first.
        self._refused: dict[str, _Refused] = {}
        self._is_closing = False

    def __len__(self) -> int:
        return len(self._streams)

    def admit(self, ticket: Ticket, hello: attach_pb2.AttachHello) -> "AttachedStream":
        """Take in an instance; to be served at once.

        Args:
            ticket: What it attached with; its plugin is the hello's.
            hello: Who it is.

        Raises:
            PluginIncompatible, PluginRefused: It cannot be taken in.
            Unavailable: The host shuts down.
        """
        if self._is_closing:
            raise _shutting_down()
        introduction = _introduce(hello, ticket.plugin_id)
        self._forget_refused(ticket.plugin_id)
        return self._take_in(ticket, hello, introduction)

    def refuse(self, plugin_id: str, error: HostError) -> None:
        """List one that was not taken in, for a while: nobody else sees what its own log says.

        Args:
            plugin_id: The plugin that its token was issued for. The next attempt of that takes the
                place of this one.
            error: Why it was not.
        """
        if self._is_closing:
            return
        before = self._refused.pop(plugin_id, None)
        if before is not None:
            before.expiry.cancel()
        elif len(self._refused) >= _REFUSED_LISTED:
            self._forget_refused(next(iter(self._refused)))
        is_old = isinstance(error, Incompatible)
        instance = self._registry.refuse(
            plugin_id=plugin_id,
            state=InstanceState.INCOMPATIBLE if is_old else InstanceState.REFUSED,
            reason=f"it may not attach: {error.message}",
            replaces=before.instance if before is not None else None,
        )
        expiry = asyncio.get_running_loop().call_later(
            _REFUSED_SECONDS, self._forget_refused, plugin_id
        )
        self._refused[plugin_id] = _Refused(instance, expiry)

    def _forget_refused(self, plugin_id: str) -> None:
        refused = self._refused.pop(plugin_id, None)
        if refused is not None:
            refused.expiry.cancel()
            self._registry.remove(refused.instance)

    async def serve(self, stream: "AttachedStream", *, read: Read, write: Write) -> None:
        """Serve a stream; return when its runner has closed it.

        Args:
            stream: Of an instance that was admitted.
            read: Reads what it says next.
            write: Sends what the host says.

        Raises:
            HostError: The stream ends for a reason of the host, or what came is no message of it.
        """
        try:
            await stream.serve(read, write)
        finally:
            self._let_go(stream)

    def end_token(self, token_id: str) -> int:
        """End the streams that were opened with a token, which is revoked; return how many."""
        ended = [each for each in self._streams if each.ticket.token_id == token_id]
        for stream in ended:
            stream.end(_revoked())
        return len(ended)

    def renew(self, plugin_id: str) -> None:
        """Have a plugin's instances attach anew, each as soon as it has no run.

        What is handed over to them has changed, and is when they attach.
        """
        for stream in self._streams:
            if stream.ticket.plugin_id == plugin_id:
                stream.renews.set()

    async def close(self) -> None:
        """Tell all runners that the host shuts down, and end their streams."""
        self._is_closing = True
        for plugin_id in tuple(self._refused):
            self._forget_refused(plugin_id)
        for stream in tuple(self._streams):
            stream.end(_shutting_down())

    def _take_in(
        self, ticket: Ticket, hello: attach_pb2.AttachHello, introduction: Introduction
    ) -> "AttachedStream":
        for other in tuple(self._streams):
            same = other.instance.instance_id == introduction.instance_id
            if same and other.ticket.plugin_id == ticket.plugin_id:
                # Its old connection is gone, even if nobody has noticed: it would not dial twice.
                other.end(Unavailable("the same instance has attached again"))
                self._let_go(other)
        attached = Attached(initial_credit=self._initial_credit)
        # First of all that is said: the instance takes runs as soon as it is listed.
        attached.say(self._welcome(ticket.plugin_id))
        instance = self._registry.attach(
            plugin_id=ticket.plugin_id,
            introduction=introduction,
            reach=attached,
            development=hello.development,
            host_address=hello.host_address,
        )
        stream = AttachedStream(
            ticket=ticket, instance=instance, attached=attached, registry=self._registry
        )
        self._streams.add(stream)
        return stream

    def _welcome(self, plugin_id: str) -> attach_pb2.AttachResponse:
        welcome = attach_pb2.AttachWelcome(
            host=self._registry.greeting(plugin_id),
            protocol_version=PROTOCOL_VERSIONS[0],
            initial_credit=self._initial_credit,
        )
        return attach_pb2.AttachResponse(welcome=welcome)

    def _let_go(self, stream: "AttachedStream") -> None:
        if stream not in self._streams:
            return
        self._streams.discard(stream)
        stream.attached.lose(stream.why)
        comes_back = not self._is_closing and not isinstance(stream.ended_by, Unauthenticated)
        self._registry.detach(
            stream.instance, expected_seconds=self._expected_seconds if comes_back else 0.0
        )


@dataclass(frozen=True, slots=True)
class _Refused:
    """What is listed of an instance that was not taken in."""

    instance: Instance
    expiry: asyncio.TimerHandle


class AttachedStream:
    """One attached stream.

    Attributes:
        ticket: What it was opened with.
        instance: Whose it is.
        attached: What runs see of it.
        ended_by: Why the host has ended it, or None.
        renews: Set for it to be ended when its instance has no run.
    """

    def __init__(
        self, *, ticket: Ticket, instance: Instance, attached: Attached, registry: Registry
    ) -> None:
        self.ticket = ticket
        self.instance = instance
        self.attached = attached
        self.ended_by: HostError | None = None
        self.renews = asyncio.Event()
        self._registry = registry
        self._ended = asyncio.Event()
        self._closed_by_runner = False
        self._has_expired = False

    @property
    def why(self) -> str:
        """Why it has ended, for people."""
        if self.ended_by is not None:
            return self.ended_by.message
        if self.instance.development:
            # Whoever reads it should not look for a fault where somebody has saved a file.
            return "the development instance was reloaded or stopped"
        return "it closed its stream" if self._closed_by_runner else "its connection was lost"

    def end(self, error: HostError) -> None:
        """End it; the runner is told why."""
        self.ended_by = self.ended_by or error
        self._ended.set()

    async def serve(self, read: Read, write: Write) -> None:
        """Read and write until either side ends it."""
        tasks = [
            asyncio.create_task(work, name=f"{name} of {self.instance.plugin_id}")
            for name, work in (
                ("reader", self._read(read)),
                ("writer", self._write(write)),
                ("token", self._watch_token()),
                ("end", self._ended.wait()),
                ("renewal", self._renew()),
                ("closing", self.attached.closed.wait()),
            )
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        if self.ended_by is not None:
            raise self.ended_by
        for outcome in outcomes:
            if isinstance(outcome, HostError):
                self.ended_by = outcome
            if isinstance(outcome, Exception):
                raise outcome

    async def _read(self, read: Read) -> None:
        while (data := await read()) is not None:
            try:
                up = read_up(data)
            except Malformed as error:
                rule = "must be a runmesh.v1.AttachRequest on the wire"
                fault = FieldFault("request", rule, f"{len(data)} other bytes")
                raise InvalidArgument([fault]) from error
            if not isinstance(up, UpResults):
                self._heed(up)
            self.attached.take(up)
        self._closed_by_runner = True

    def _heed(self, up: attach_pb2.AttachRequest) -> None:
        if up.HasField("hello"):
            raise InvalidArgument([FieldFault("hello", "only the first message", "another one")])
        if up.HasField("health") and not self._has_expired:
            if up.health.serving:
                self._registry.mark(self.instance, InstanceState.SERVING)
            else:
                reason = "it says that it takes no more runs"
                self._registry.mark(self.instance, InstanceState.DRAINING, reason)

    async def _write(self, write: Write) -> None:
        while True:
            message = await self.attached.next_down()
            try:
                async with asyncio.timeout(_WRITE_SECONDS):
                    await write(message)
            except TimeoutError:
                raise Unavailable(
                    f"nothing of what the host sends was read for {_WRITE_SECONDS:g} s"
                ) from None

    async def _renew(self) -> None:
        await self.renews.wait()
        await self.instance.idle.wait()
        self.end(Unavailable("what is set for its plugin has changed; attach again"))

    async def _watch_token(self) -> None:
        """Return when the token holds no more, and what ran on then is done."""
        now = asyncio.get_running_loop().time
        expires_at = now() + self.ticket.seconds_left
        while (left := expires_at - now()) > 0:
            await asyncio.sleep(min(left, _LOOK_SECONDS))
            if not await self.ticket.is_unrevoked():
                self.end(_revoked())
                return
        # What it began with the token it may end.
        self._has_expired = True
        self._registry.drain(self.instance, "its attach token has expired")
        await self.instance.idle.wait()
        self.end(Unauthenticated("the attach token has expired"))


def _introduce(hello: attach_pb2.AttachHello, plugin_id: str) -> Introduction:
    spoken = set(hello.protocol_versions)
    common = next((version for version in PROTOCOL_VERSIONS if version in spoken), "")
    answer = type(hello.handshake)()
    answer.CopyFrom(hello.handshake)
    answer.protocol_version = common
    return introduction_of(answer, hello.runners, plugin_id=plugin_id)


def _revoked() -> Unauthenticated:
    return Unauthenticated("the attach token was revoked")


def _shutting_down() -> Unavailable:
    return Unavailable("the host is shutting down; attach again later", retry_after_seconds=1.0)
