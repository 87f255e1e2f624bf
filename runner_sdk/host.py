"""Calls to the host, within one run: with its tokens, its deadline and its trace."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Literal

from google.protobuf.message import Message
from grpc.aio import AioRpcError
from runmesh.v1 import host_api_pb2
from runmesh.v1.run_pb2 import HostAccess

from runner_sdk._json import from_json, to_json
from runner_sdk._status import host_call_error
from runner_sdk._trace import RunTrace
from runner_sdk._transport import Channels
from runner_sdk.errors import HostUnavailable
from runner_sdk.results import StateScope, state_scope

_SERVICE = host_api_pb2.DESCRIPTOR.services_by_name["HostAPIService"]
_PAGE_SIZE = 50
"""What the host gives by default."""


class HostClient:
    """Makes calls to the host that a run came from.

    Attributes:
        remaining_seconds: Returns how long calls may still take; None: they have no deadline.
        prompt: The run's instructions.
        state: Small JSON values that the host keeps.
        history: The transcript of the run's conversation.
    """

    __slots__ = (
        "_access",
        "_channels",
        "_trace",
        "history",
        "prompt",
        "remaining_seconds",
        "state",
    )

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
        self.remaining_seconds = remaining_seconds
        self.prompt = Prompt(self)
        self.state = State(self)
        self.history = History(self)

    @property
    def host_id(self) -> str:
        """Which host the run came from."""
        return self._access.host_id

    async def call(self, method: str, request: Message) -> Any:
        """Makes any call of HostAPIService that is answered once.

        Args:
            method: The call's name, such as `GetPrompt`.
            request: Its request message.

        Returns:
            Its response message.

        Raises:
            HostCallError: The host refused it, or could not be reached.
            ValueError: There is no such call, or its answer is a stream.
        """
        call = self._call_of(method, streams=False)
        try:
            return await call(request, **self._options())
        except AioRpcError as error:
            raise host_call_error(method, error) from error

    async def stream(self, method: str, request: Message) -> AsyncIterator[Any]:
        """Makes a call of HostAPIService whose answer is a stream, and yields its messages.

        Raises:
            HostCallError: The host refused it, could not be reached, or broke off.
            ValueError: There is no such call, or it is answered once.
        """
        call = self._call_of(method, streams=True)(request, **self._options())
        try:
            async for response in call:
                yield response
        except AioRpcError as error:
            raise host_call_error(method, error) from error
        finally:
            call.cancel()

    def _call_of(self, name: str, *, streams: bool) -> Any:
        method = _method(name, streams=streams)
        if not self._channels.are_private(self._access.address):
            raise HostUnavailable(
                method=name,
                reason="UNAVAILABLE",
                message=f"host_access.address {self._access.address!r} is on another machine, and "
                "the run's tokens would travel in the clear: give serve(tls=...) a host_ca",
            )
        return self._channels.call(self._access.address, method)

    def _options(self) -> dict[str, Any]:
        metadata = (
            ("authorization", f"Bearer {self._access.run_token}"),
            ("runmesh-instance", self._access.instance_token),
            *self._trace.outgoing(),
        )
        return {"metadata": metadata, "timeout": self.remaining_seconds()}


def _method(name: str, *, streams: bool) -> Any:
    found = _SERVICE.methods_by_name.get(name)
    if found is None:
        known = ", ".join(_SERVICE.methods_by_name)
        raise ValueError(f"HostAPIService has no call {name!r}; it has {known}")
    if found.client_streaming:
        raise ValueError(f"{name} takes a stream")
    if found.server_streaming != streams:
        raise ValueError(
            f"{name} is answered {'once: use call()' if streams else 'by a stream: use stream()'}"
        )
    return found


@dataclass(frozen=True, slots=True)
class Prompt:
    """The run's instructions."""

    client: HostClient

    async def get(self) -> host_api_pb2.GetPromptResponse:
        """Reads the bound prompt and further fragments; what to do with them is the runner's."""
        response: host_api_pb2.GetPromptResponse = await self.client.call(
            "GetPrompt", host_api_pb2.GetPromptRequest()
        )
        return response


@dataclass(frozen=True, slots=True)
class StateValue:
    """A value of state, and its version: what to name in a write that must not overwrite."""

    key: str
    value: Any
    version: int


@dataclass(frozen=True, slots=True)
class State:
    """Small JSON values that the host keeps, by scope and key."""

    client: HostClient

    async def get(self, scope: StateScope, key: str) -> StateValue:
        """Reads a value.

        Raises:
            NotFound: The key has no value.
        """
        request = host_api_pb2.GetStateRequest(scope=state_scope(scope), key=key)
        response: host_api_pb2.GetStateResponse = await self.client.call("GetState", request)
        return _state_value(response.entry)

    async def set(
        self, scope: StateScope, key: str, value: object, *, expected_version: int | None = None
    ) -> int:
        """Writes a value and returns its new version.

        Args:
            scope: Where it belongs.
            key: The key, 1 to 255 bytes.
            value: A JSON value of at most 256 KiB.
            expected_version: Write only over this version; 0: only where there is no value.

        Raises:
            Conflict: The value has another version.
        """
        request = host_api_pb2.SetStateRequest(
            scope=state_scope(scope),
            key=key,
            value_json=to_json(value, field=f"state {scope} {key!r}"),
            expected_version=expected_version,
        )
        response: host_api_pb2.SetStateResponse = await self.client.call("SetState", request)
        return response.version

    async def delete(
        self, scope: StateScope, key: str, *, expected_version: int | None = None
    ) -> bool:
        """Removes a value and returns whether there was one.

        Raises:
            Conflict: The value has another version than expected.
        """
        request = host_api_pb2.DeleteStateRequest(
            scope=state_scope(scope), key=key, expected_version=expected_version
        )
        response: host_api_pb2.DeleteStateResponse = await self.client.call("DeleteState", request)
        return response.existed

    async def list(self, scope: StateScope, prefix: str = "") -> AsyncIterator[StateValue]:
        """Yields the values of a scope by key, page after page."""
        request = host_api_pb2.ListStateRequest(scope=state_scope(scope), prefix=prefix)
        while True:
            page: host_api_pb2.ListStateResponse = await self.client.call("ListState", request)
            for entry in page.entries:
                yield _state_value(entry)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def _state_value(entry: host_api_pb2.StateEntry) -> StateValue:
    return StateValue(entry.key, from_json(entry.value_json), entry.version)


@dataclass(frozen=True, slots=True)
class History:
    """The transcript of the run's conversation."""

    client: HostClient

    async def page(
        self,
        *,
        at_or_before: str = "",
        after: str = "",
        direction: Literal["newest_first", "oldest_first"] = "newest_first",
        page_size: int = _PAGE_SIZE,
        include_artifacts: bool = False,
        page_token: str = "",
    ) -> host_api_pb2.PageHistoryResponse:
        """Reads one page of the transcript.

        Args:
            at_or_before: Nothing newer than this cursor. Empty: the newest before the run's event.
            after: Only what is newer than this cursor.
            direction: The order of the items.
            page_size: How many items, 1 to 100. A page ends earlier at 2 MiB.
            include_artifacts: Include the refs of artifacts.
            page_token: `next_page_token` of the page before; the rest must be the same.
        """
        request = host_api_pb2.PageHistoryRequest(
            at_or_before=at_or_before,
            after=after,
            direction=host_api_pb2.PageDirection.Value(f"PAGE_DIRECTION_{direction.upper()}"),
            page_size=page_size,
            include_artifacts=include_artifacts,
            page_token=page_token,
        )
        response: host_api_pb2.PageHistoryResponse = await self.client.call("PageHistory", request)
        return response

    async def iterate(
        self,
        *,
        at_or_before: str = "",
        after: str = "",
        direction: Literal["newest_first", "oldest_first"] = "newest_first",
        page_size: int = _PAGE_SIZE,
        include_artifacts: bool = False,
    ) -> AsyncIterator[host_api_pb2.TranscriptItem]:
        """Yields the transcript item by item, fetching the next page when one is used up."""
        page_token = ""
        while True:
            page = await self.page(
                at_or_before=at_or_before,
                after=after,
                direction=direction,
                page_size=page_size,
                include_artifacts=include_artifacts,
                page_token=page_token,
            )
            for item in page.items:
                yield item
            page_token = page.next_page_token
            if not page_token:
                return

    async def search(self, query: str, *, limit: int = 10) -> list[host_api_pb2.TranscriptItem]:
        """Finds the newest items in which all words of the query occur.

        Args:
            query: Words; data, never syntax. 1 to 1024 bytes.
            limit: How many items, 1 to 50.
        """
        request = host_api_pb2.SearchHistoryRequest(query=query, page_size=limit)
        response: host_api_pb2.SearchHistoryResponse = await self.client.call(
            "SearchHistory", request
        )
        return list(response.items)
