"""The events of the run's conversation."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from runmesh.v1 import event_pb2
from runmesh.v1 import host_api_pb2 as api

from runner_sdk._host.calls import HostCalls
from runner_sdk._host.pages import PAGE_SIZE, each
from runner_sdk._host.requests import PageOrder, make, page_direction

EventSource: TypeAlias = Literal["platform", "webui", "api", "scheduler", "system", "host_adapter"]


@dataclass(frozen=True, slots=True)
class Events:
    """The events of the run's conversation, as they were stored: `ctx.host.events`.

    Needs the permissions `events: [get]` and `[page]`.
    """

    calls: HostCalls

    async def get(
        self, event_id: str, *, source: EventSource | None = None
    ) -> event_pb2.EventEnvelope:
        """Reads one event. Large payloads are in it by reference.

        Args:
            event_id: Its id, 1 to 255 bytes.
            source: Where it came from. None: from where the run's event came.

        Raises:
            NotFound: There is none, or it belongs to another conversation.
        """
        request = make(api.GetEventRequest, event_id=event_id, source=_source(source))
        response: api.GetEventResponse = await self.calls.call("GetEvent", request)
        return response.event

    async def page(
        self,
        *,
        types: Iterable[str] = (),
        direction: PageOrder = "newest_first",
        page_size: int = PAGE_SIZE,
        page_token: str = "",
    ) -> api.PageEventsResponse:
        """Reads one page of events.

        Args:
            types: Only these types, such as `message.recalled`. Empty: all.
            direction: The order of the events.
            page_size: How many, 1 to 100. A page ends earlier at 2 MiB.
            page_token: `next_page_token` of the page before; the rest must be the same.
        """
        request = make(
            api.PageEventsRequest,
            types=list(types),
            direction=page_direction(direction),
            page_size=page_size,
            page_token=page_token,
        )
        response: api.PageEventsResponse = await self.calls.call("PageEvents", request)
        return response

    def iterate(
        self,
        *,
        types: Iterable[str] = (),
        direction: PageOrder = "newest_first",
        page_size: int = PAGE_SIZE,
    ) -> AsyncIterator[event_pb2.EventEnvelope]:
        """Yields events one by one, fetching the next page when one is used up.

        Args:
            types: As for `page`, like all of them.
            direction: The order of the events.
            page_size: How many are fetched at once.
        """
        kept = list(types)
        return each(
            lambda page_token: self.page(
                types=kept, direction=direction, page_size=page_size, page_token=page_token
            ),
            lambda page: page.events,
        )


def _source(source: EventSource | None) -> event_pb2.EventSource.ValueType:
    if source is None:
        return event_pb2.EVENT_SOURCE_UNSPECIFIED
    try:
        return event_pb2.EventSource.Value(f"EVENT_SOURCE_{source.upper()}")
    except ValueError:
        known = ", ".join(EventSource.__args__)  # type: ignore[attr-defined]
        raise ValueError(f"source: {source!r} is none of {known}") from None
