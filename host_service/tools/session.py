"""One session with a tool server: its version agreed on, its tools listed, its tools called."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from host_service import __version__
from host_service.limits import Limits
from host_service.tools.errors import (
    CallFailed,
    ParametersRefused,
    ServerFailed,
    SessionLost,
    ToolUnknown,
)
from host_service.tools.listing import Found
from host_service.tools.tolerance import TolerantDispatcher
from host_service.tools.transport import Transport

Answer = types.CallToolResult | types.InputRequiredResult

_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)
# How a server that knows neither the method nor the version of the handshake says so; one of them
# may speak a version that begins otherwise.
_NO_HANDSHAKE = frozenset({types.METHOD_NOT_FOUND, types.UNSUPPORTED_PROTOCOL_VERSION})
# How servers say, with whatever status and code, that a session is none of theirs.
_SESSION_GONE = re.compile(
    r"session\b.{0,40}\b(?:not found|unknown|invalid|expired|terminated|does not exist)"
    r"|(?:unknown|invalid|expired|no such|no valid|missing)\b.{0,20}\bsession",
    re.IGNORECASE | re.DOTALL,
)
_UNKNOWN_TOOL = re.compile(
    r"(?:unknown|no such) tool|tool (?:\S{1,200} )?(?:was )?not found", re.IGNORECASE
)
# What a server's own errors have that code for as well: only these texts are the end of all.
_ENDED = ("Connection closed", "SSE stream ended")
_SHOWN_CHARACTERS = 1000
# A server that ends what it was asked to tell of is asked again, but not all the time.
_LISTEN_AGAIN_SECONDS = 5.0


class Session:
    """A session that is held over a transport.

    Args:
        client: The session itself, entered.
        transport: What it is held over.
        dispatcher: What it sends and receives with.
        heard: Called when the server says that its tools have changed.
        is_addressed: Whether the server may forget the session and live on.
    """

    def __init__(
        self,
        client: ClientSession,
        transport: Transport,
        dispatcher: TolerantDispatcher,
        *,
        heard: Callable[[], Awaitable[None]],
        is_addressed: bool,
    ) -> None:
        self._client = client
        self._heard = heard
        self._dispatcher = dispatcher
        self._transport = transport
        self._is_addressed = is_addressed

    @classmethod
    def over(
        cls, transport: Transport, *, heard: Callable[[], Awaitable[None]], is_addressed: bool
    ) -> tuple[ClientSession, Session]:
        """Returns a session that is still to be entered.

        Args:
            transport: What it is held over.
            heard: Called when the server says that its tools have changed.
            is_addressed: Whether the server may forget the session and live on.
        """

        async def hear(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                await heard()

        dispatcher = TolerantDispatcher(*transport.streams)
        client = ClientSession(
            dispatcher=dispatcher,
            message_handler=hear,
            client_info=types.Implementation(name="runmesh", version=__version__),
        )
        return client, cls(client, transport, dispatcher, heard=heard, is_addressed=is_addressed)

    @property
    def protocol_version(self) -> str:
        """The version that was agreed on."""
        return self._client.protocol_version or ""

    @property
    def server_name(self) -> str:
        """What the server calls itself, and its version."""
        info = self._client.server_info
        return f"{info.name} {info.version}".strip()[:255] if info else ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be heard from the server."""
        return self._transport.over.is_set()

    async def agree(self) -> None:
        """Agrees on a version of the protocol.

        Raises:
            ServerFailed: There is none in common, or the server answers otherwise than it should.
        """
        try:
            await self._begin()
        except MCPError as error:
            raise ServerFailed(await self._told(error, "initialize")) from error
        except ValidationError as error:
            raise ServerFailed("its answer to `initialize` is none of the protocol's") from error
        except RuntimeError as error:
            theirs = str(error).rpartition(": ")[2]
            ours = ", ".join(KNOWN_PROTOCOL_VERSIONS)
            text = f"it speaks protocol version {theirs[:100]}; this host speaks {ours}"
            raise ServerFailed(text) from error

    async def _begin(self) -> None:
        try:
            await self._client.initialize()
        except MCPError as error:
            if error.code not in _NO_HANDSHAKE:
                raise
            await self._client.discover()

    async def follow_changes(self) -> None:
        """Has the server tell of changes, where it does that only when it is asked to.

        Older versions of the protocol tell of them unasked: then this returns at once.
        """
        capabilities = self._client.server_capabilities
        tools = capabilities.tools if capabilities is not None else None
        if (
            self._client.protocol_version not in MODERN_PROTOCOL_VERSIONS
            or tools is None
            or not tools.list_changed
        ):
            return
        while not self.is_over:
            try:
                async with listen(self._client, tools_list_changed=True) as changes:
                    # What changed before, while nobody listened, was told to nobody.
                    await self._heard()
                    async for _ in changes:
                        await self._heard()
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND:
                    return
            except SubscriptionLost:
                pass
            await asyncio.sleep(_LISTEN_AGAIN_SECONDS)

    async def list_tools(self, limits: Limits) -> list[Found]:
        """Returns the server's tools, as many pages as there are, within bounds.

        Raises:
            ServerFailed: They cannot be listed.
        """
        capabilities = self._client.server_capabilities
        if capabilities is not None and capabilities.tools is None:
            return []
        self._dispatcher.schemas = {}
        tools: list[Found] = []
        cursor, seen = None, set[str]()
        while True:
            page = await self._page(cursor)
            tools += [
                Found(each.name, each.description or "", self._dispatcher.schemas.get(each.name))
                for each in page.tools
            ]
            cursor = page.next_cursor
            # A server that gives one cursor twice would go on for ever.
            if not cursor or cursor in seen or len(tools) > limits.tools_of_server:
                return tools
            seen.add(cursor)

    async def _page(self, cursor: str | None) -> types.ListToolsResult:
        params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
        try:
            return await self._client.list_tools(params=params)
        except MCPError as error:
            raise ServerFailed(await self._told(error, "tools/list")) from error
        except ValidationError as error:
            raise ServerFailed("its answer to `tools/list` is none of the protocol's") from error

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        """Calls a tool. To cancel this tells the server, and leaves the session usable.

        Raises:
            SessionLost: The server knows the session no longer.
            ServerFailed: The connection ended before the answer.
            ToolUnknown, ParametersRefused, CallFailed: It answered so.
        """
        params = types.CallToolRequestParams(name=name, arguments=arguments)
        try:
            return await self._client.send_request(types.CallToolRequest(params=params), _ANSWER)
        except MCPError as error:
            raise await self._meaning(error) from error
        except ValidationError as error:
            raise CallFailed("the tool server's answer is none of the protocol's") from error

    async def _meaning(self, error: MCPError) -> Exception:
        if self._transport.forgot_session or (
            self._is_addressed and _SESSION_GONE.search(error.message)
        ):
            return SessionLost("the tool server no longer knows the session")
        if _is_end(error):
            return ServerFailed(await self._told(error, "tools/call"))
        said = error.message[:_SHOWN_CHARACTERS]
        if error.code == types.INVALID_PARAMS:
            unknown = _UNKNOWN_TOOL.search(error.message)
            return ToolUnknown(said) if unknown else ParametersRefused(said)
        text = f"the tool server answered with error {error.code}: {said}"
        http = await self._transport.trouble() if self._is_addressed else ""
        return CallFailed(f"{text} ({http})" if http else text)

    async def _told(self, error: MCPError, method: str) -> str:
        """What an error means where the server is of no use for it."""
        ended = _is_end(error)
        if (ended or self._is_addressed) and (trouble := await self._transport.trouble()):
            return trouble
        if ended:
            return "the connection ended before it answered"
        said = error.message[:_SHOWN_CHARACTERS]
        return f"it answered `{method}` with error {error.code}: {said}"


def _is_end(error: MCPError) -> bool:
    return error.code == types.CONNECTION_CLOSED and error.message.startswith(_ENDED)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yields what groups of errors are made of."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from causes_of(each)
    else:
        yield error
