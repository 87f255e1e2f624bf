"""Which events are known: those that are being accepted, and those that were.

An event that comes twice at once is accepted once: whoever comes second waits for what becomes of
the first. One that came before is found in the log where the answer decides something; in all
other cases the transaction that accepts it finds out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from host_service.runs.event import Event, already_exists, source_name
from stores.event_log import EventLog
from stores.ledger import RunLedger
from stores.records import Acceptance, RunRecord

Key = tuple[str, str, int, str]


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event that is being accepted.

    Attributes:
        event: The event.
        outcome: Done with what its acceptance is, once that is durable; with None if nothing was
            stored.
    """

    event: Event
    outcome: asyncio.Future[Acceptance | None]


class Deliveries:
    """Recognises events that come again.

    Args:
        events: Where events are logged.
        ledger: Where their runs are.
    """

    def __init__(self, *, events: EventLog, ledger: RunLedger) -> None:
        self._events = events
        self._ledger = ledger
        self._under_way: dict[Key, Delivery] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    async def join(self, event: Event) -> RunRecord | None:
        """Return the run of the same event that is being accepted; None if there is none.

        Raises:
            AlreadyExists: It has other content.
        """
        while (first := self._under_way.get(_key(event))) is not None:
            acceptance = await asyncio.shield(first.outcome)
            if acceptance is not None:
                if first.event.digest != event.digest:
                    raise already_exists(event)
                return acceptance.run
        return None

    def begin(self, event: Event) -> Delivery:
        """Let others that deliver the same event wait for this one; `end` must follow."""
        delivery = Delivery(event, asyncio.get_running_loop().create_future())
        if event.has_own_id:
            self._under_way[_key(event)] = delivery
        return delivery

    def end(self, delivery: Delivery, acceptance: Acceptance | None) -> None:
        """Say what became of it. May be called again: the first word holds."""
        if not delivery.outcome.done():
            self._under_way.pop(_key(delivery.event), None)
            delivery.outcome.set_result(acceptance)

    async def find(self, event: Event) -> RunRecord | None:
        """Return the run that an event has already; None if it has none.

        Raises:
            AlreadyExists: The same event is stored with other content.
        """
        if not event.has_own_id:
            return None
        envelope = event.envelope
        logged = await self._events.get(
            envelope.workspace_id,
            envelope.bot_id,
            source_name(envelope.source),
            envelope.event_id,
        )
        if logged is None:
            return None
        if logged.digest != event.digest:
            raise already_exists(event)
        return None if logged.run_id is None else await self._ledger.get(logged.run_id)


def _key(event: Event) -> Key:
    envelope = event.envelope
    return envelope.workspace_id, envelope.bot_id, envelope.source, envelope.event_id
