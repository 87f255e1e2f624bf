"""Keeps one tool server reachable: connects, watches, tries again, and takes its calls.

::

                    +-------------- renewed: the server forgot the session ---------------+
                    v                                                                     |
    connecting --> ready --> lost --> waits, longer each time --> connecting --> ... --> ready
                              |
                              +--> too often: held, and tried again rarely

All of it happens in one task, since a session must be left by the task that entered it. Calls come
from anywhere, and each is a task of its own: one that its caller gives up is cancelled, and tells
the server so, without anybody waiting for that.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host_service.catalogue.tool import Tool
from host_service.limits import Limits
from host_service.supervisor.output import LineBudget
from host_service.supervisor.restart import CrashHistory, RestartPolicy
from host_service.tools.errors import CallTimedOut, ServerFailed, SessionLost
from host_service.tools.listing import LeftOut, Listing, listing_of
from host_service.tools.plan import Plan
from host_service.tools.remembered import RememberedListings

if TYPE_CHECKING:
    from host_service.tools.session import Answer, Session
    from host_service.tools.transport import Transport

_log = logging.getLogger("runmesh.tools")

_HELD_SECONDS = 60.0
_STOP_SECONDS = 5.0
# Notices that tools have changed come in bursts: they are listed once for all of them.
_GATHER_SECONDS = 0.1
_POLICY = RestartPolicy()


class State(enum.Enum):
    """How it is with a server."""

    CONNECTING = "connecting"
    READY = "ready"
    RETRYING = "retrying"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How it is with a server, for people.

    Attributes:
        plan: How it is reached.
        state: How it is.
        trouble: What is wrong; empty: nothing.
        last_words: The last that it wrote to its standard error output, where it failed.
        tools: Its tools; while it is away, those that it had.
        left_out: What it offers beside.
        protocol_version: What is spoken with it.
        server_name: What it calls itself.
        next_try_at: When it is tried again.
    """

    plan: Plan
    state: State
    trouble: str
    last_words: str
    tools: tuple[Tool, ...]
    left_out: tuple[LeftOut, ...]
    protocol_version: str
    server_name: str
    next_try_at: datetime | None


class ServerKeeper:
    """Keeps one server reachable.

    Args:
        plan: How it is reached.
        folder: Where programs have their folders.
        limits: How much is too much.
        clock: Tells the time.
        on_listing: Called when other tools are offered.
        remembered: Keeps what is offered over a restart of the host.
        listing: What it was known to offer before.
        before: What must be over before it is started.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        folder: Path,
        limits: Limits,
        clock: Callable[[], datetime],
        on_listing: Callable[[], None],
        remembered: RememberedListings,
        listing: Listing | None = None,
        before: asyncio.Task[None] | None = None,
    ) -> None:
        self.plan = plan
        self.listing = listing
        self._folder = folder
        self._limits = limits
        self._clock = clock
        self._on_listing = on_listing
        self._remembered = remembered
        self._state = State.CONNECTING
        self._trouble = plan.trouble
        self._last_words = ""
        self._version = self._server_name = ""
        self._next_try_at: datetime | None = None
        self._session: Session | None = None
        self._crashes = CrashHistory(_POLICY)
        self._slots = asyncio.Semaphore(limits.tool_calls_of_server)
        self._calls: set[asyncio.Task[Answer]] = set()
        # Set, and another in its place, whenever anything of the above changes.
        self._moved = asyncio.Event()
        self._wake = asyncio.Event()
        self._stopping = self._is_forgotten = self._has_changed = False
        self._task = asyncio.create_task(self._keep(before), name=f"tools of {plan.server.id}")

    def status(self) -> Status:
        """Returns how it is."""
        listing = self.listing or Listing()
        return Status(
            plan=self.plan,
            state=self._state,
            trouble=self._trouble,
            last_words=self._last_words,
            tools=listing.tools,
            left_out=listing.left_out,
            protocol_version=self._version,
            server_name=self._server_name,
            next_try_at=self._next_try_at,
        )

    async def stop(self) -> None:
        """Ends its session and its process, and all that this started."""
        self._stopping = True
        self._wake.set()
        self._move()
        await asyncio.wait({self._task}, timeout=_STOP_SECONDS)
        # What hangs even then is cut off; the guardian of a process ends that by itself.
        self._task.cancel()
        for call in self._calls:
            call.cancel()
        await asyncio.wait({self._task}, timeout=_STOP_SECONDS)

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        """Calls a tool, once it is its turn; whoever gives the call up has it cancelled.

        A server that forgot the session gets another one, and the call once more; no more than
        once.

        Args:
            name: The server's name for it.
            arguments: Its parameters.

        Raises:
            ToolError: It could not be called, or the server has no such tool or other parameters,
                or did not answer in time.
        """
        seconds = self._limits.tool_call_seconds
        try:
            async with asyncio.timeout(seconds), self._slots:
                session = await self._connected()
                try:
                    return await self._send(session, name, arguments)
                except SessionLost:
                    self._renew(session)
                session = await self._connected(but=session)
                return await self._send(session, name, arguments)
        except TimeoutError as error:
            raise CallTimedOut(f"the tool did not answer in {seconds:g} s") from error

    async def _send(self, session: Session, name: str, arguments: dict[str, Any]) -> Answer:
        task = asyncio.create_task(session.call(name, arguments))
        self._calls.add(task)
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            raise

    def _done(self, call: asyncio.Task[Answer]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            # Nobody may be waiting for it any more: it was told to whoever was.
            call.exception()

    async def _connected(self, but: Session | None = None) -> Session:
        """Waits for a session: for the first one as long as that may take, else not for long.

        Raises:
            ServerFailed: There is none.
        """
        while self._state is State.CONNECTING and not self._stopping:
            await self._moved.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.tool_server_wait_seconds):
                while (session := self._usable(but)) is None:
                    if self._state is State.HELD or self._stopping:
                        break
                    await self._moved.wait()
        session = self._usable(but)
        if session is None:
            raise ServerFailed(self._trouble or "it has not answered yet")
        return session

    def _usable(self, but: Session | None) -> Session | None:
        session = self._session
        return None if session is None or session is but or session.is_over else session

    def _renew(self, session: Session) -> None:
        """Has another session made in the place of one that the server forgot, once."""
        if self._session is session:
            self._session = None
            self._is_forgotten = True
            self._wake.set()

    async def _keep(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        await asyncio.to_thread(_load)
        while not self._stopping:
            self._is_forgotten = False
            try:
                await self._converse()
            # Whatever a server makes go wrong, it costs that server alone.
            except Exception as error:  # noqa: BLE001
                self._take_failure(error)
                await self._pause()
            finally:
                self._session = None

    async def _converse(self) -> None:
        """Connects, and stays so until the server is lost, forgets the session, or is to stop.

        Raises:
            Exception: It could not be connected, or was lost.
        """
        from host_service.tools.session import Session

        if self.plan.trouble:
            raise ServerFailed(self.plan.trouble)
        is_addressed = bool(self.plan.server.url)
        async with self._opened() as transport:
            client, session = Session.over(
                transport, heard=self._hear_of_change, is_addressed=is_addressed
            )
            try:
                async with client:
                    self._take_session(session, await self._introduced(session))
                    await self._stay(transport, session)
            except Exception as error:
                failed = _failure_of(error)
                failed.last_words = failed.last_words or transport.last_words()
                raise failed from error

    async def _introduced(self, session: Session) -> Listing:
        """Agrees on a version, and returns what the server offers.

        Raises:
            ServerFailed: It did not do so, or not in time.
        """
        from anyio import fail_after

        seconds = self._limits.tool_server_start_seconds
        try:
            with fail_after(seconds):
                await session.agree()
                return await self._list(session)
        except TimeoutError as error:
            raise ServerFailed(f"it did not tell its tools in {seconds:g} s") from error

    def _opened(self) -> AbstractAsyncContextManager[Transport]:
        return self._addressed() if self.plan.server.url else self._started()

    @asynccontextmanager
    async def _addressed(self) -> AsyncIterator[Transport]:
        from host_service.tools.http import addressed

        async with addressed(
            self.plan.server.url,
            self.plan.headers(),
            message_bytes=self._limits.tool_message_bytes,
            # Beyond what any call may take: nobody waits for an answer after that.
            answer_seconds=self._limits.tool_call_seconds * 2,
        ) as transport:
            yield transport

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[Transport]:
        from host_service.tools.stdio import started

        try:
            launch = self.plan.launch(self._folder)
        except OSError as error:
            trouble = f"its working folder cannot be made: {error.strerror}"
            raise ServerFailed(trouble) from error
        async with started(
            launch, message_bytes=self._limits.tool_message_bytes, budget=LineBudget()
        ) as transport:
            yield transport

    async def _list(self, session: Session) -> Listing:
        found = await session.list_tools(self._limits)
        return listing_of(self.plan.server, found, self._limits)

    async def _stay(self, transport: Transport, session: Session) -> None:
        from anyio import fail_after

        over = asyncio.ensure_future(transport.over.wait())
        following = asyncio.create_task(session.follow_changes())
        try:
            await self._remember()
            while not (self._stopping or self._is_forgotten):
                woken = asyncio.ensure_future(self._wake.wait())
                try:
                    await asyncio.wait({over, woken}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    woken.cancel()
                self._wake.clear()
                if over.done() and not self._stopping:
                    raise ServerFailed(await transport.trouble())
                if self._has_changed:
                    await asyncio.sleep(_GATHER_SECONDS)
                    self._has_changed = False
                    with fail_after(self._limits.tool_server_start_seconds):
                        self._take_listing(await self._list(session))
                    await self._remember()
        finally:
            over.cancel()
            following.cancel()
            # The session must not be left before it.
            await asyncio.wait({following})

    async def _hear_of_change(self) -> None:
        self._has_changed = True
        self._wake.set()

    def _take_session(self, session: Session, listing: Listing) -> None:
        self._crashes.served()
        self._session = session
        self._state, self._trouble, self._last_words = State.READY, "", ""
        self._next_try_at = None
        self._version, self._server_name = session.protocol_version, session.server_name
        self._take_listing(listing)
        self._move()
        facts = (self.plan.server.id, len(listing.tools), self._version)
        _log.info("tool server %s is ready: %d tools, protocol %s", *facts)

    def _take_listing(self, listing: Listing) -> None:
        self.listing = listing
        self._on_listing()

    async def _remember(self) -> None:
        await self._remembered.keep(self.plan.server, self.listing or Listing())

    def _take_failure(self, error: Exception) -> None:
        if self._stopping:
            return
        failed = _failure_of(error)
        now = time.monotonic()
        self._crashes.crashed(now=now)
        is_held = self._crashes.is_too_much(now=now)
        delay_seconds = _HELD_SECONDS if is_held else self._crashes.delay_seconds(now=now)
        self._state = State.HELD if is_held else State.RETRYING
        self._trouble = self.plan.blot_out(str(failed))
        self._last_words = self.plan.blot_out(failed.last_words)
        self._next_try_at = self._clock() + timedelta(seconds=delay_seconds)
        self._session = None
        self._move()
        _log.warning("tool server %s: %s", self.plan.server.id, self._trouble)

    async def _pause(self) -> None:
        """Waits until it is to be tried again, or to stop."""
        if self._next_try_at is None:
            return
        seconds = (self._next_try_at - self._clock()).total_seconds()
        self._wake.clear()
        if self._stopping:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()

    def _move(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _failure_of(error: Exception) -> ServerFailed:
    """Returns what an error says of a server: of a group, its first part that says something."""
    from host_service.tools.session import causes_of

    causes = list(causes_of(error))
    for cause in causes:
        if isinstance(cause, ServerFailed):
            return cause
    cause = causes[0]
    text = str(cause).strip().partition("\n")[0][:500]
    kind = type(cause).__name__
    return ServerFailed(f"it cannot be reached: {text or kind} ({kind})" if text else kind)


def _load() -> None:
    """Imports what servers are spoken to with: it takes longer than a host to start."""
    import host_service.tools.http
    import host_service.tools.session
    import host_service.tools.stdio  # noqa: F401
