"""The stores of a database that is open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stores.actions import Actions
from stores.artifacts import Artifacts
from stores.attach_tokens import AttachTokens
from stores.audit import Audit
from stores.catalogue import Catalogue
from stores.event_log import EventLog
from stores.hosts import Hosts
from stores.journal import Journal
from stores.keys import ApiKeys
from stores.knowledge import Knowledge
from stores.ledger import RunLedger
from stores.retention import Retention
from stores.secrets import Secrets
from stores.state import State
from stores.storage import Storage
from stores.transcript import Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """All stores of one database; to be closed.

    Attributes:
        events: The event log.
        transcript: The transcript.
        ledger: The run ledger.
        hosts: Hosts and their leases.
        artifacts: Artifacts, and their bytes in the blob store.
        state: State of runners.
        storage: Storage of plugins and workspaces.
        actions: Actions that runs asked for.
        catalogue: Agents, bindings, and what else operators keep.
        secrets: The secrets of what the catalogue keeps.
        keys: API keys.
        attach_tokens: Tokens with which runners attach.
        knowledge: Documents and their passages, to be searched.
        audit: The audit.
        retention: Removes what is no longer to be kept.
        journal: The queue in front of the writer.
        ping: Returns once the database has answered a read and a write transaction; raises
            `StoreUnavailable` otherwise. For readiness.
        close: Flushes what was handed in, then closes every connection. May be called again.
    """

    events: EventLog
    transcript: Transcript
    ledger: RunLedger
    hosts: Hosts
    artifacts: Artifacts
    state: State
    storage: Storage
    actions: Actions
    catalogue: Catalogue
    secrets: Secrets
    keys: ApiKeys
    attach_tokens: AttachTokens
    knowledge: Knowledge
    audit: Audit
    retention: Retention
    journal: Journal
    ping: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]
