"""The stores of a database that is open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stores.catalogue import Catalogue
from stores.event_log import EventLog
from stores.hosts import Hosts
from stores.journal import Journal
from stores.keys import ApiKeys
from stores.ledger import RunLedger
from stores.transcript import Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """All stores of one database; to be closed.

    Attributes:
        events: The event log.
        transcript: The transcript.
        ledger: The run ledger.
        hosts: Hosts and their leases.
        catalogue: Agents and bindings.
        keys: API keys.
        journal: The queue in front of the writer.
        ping: Returns once the database has answered a read and a write transaction; raises
            `StoreUnavailable` otherwise. For readiness.
        close: Flushes what was handed in, then closes every connection. May be called again.
    """

    events: EventLog
    transcript: Transcript
    ledger: RunLedger
    hosts: Hosts
    catalogue: Catalogue
    keys: ApiKeys
    journal: Journal
    ping: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]
