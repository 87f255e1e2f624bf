"""Between the records of hosts, agents, bindings, items and keys, and rows: a pair for each.

Rows are dictionaries by column on the way in, which checks them, and tuples in the order of the
selected columns on the way out.
"""

from __future__ import annotations

from stores.errors import InvalidRecord
from stores.json_text import check_json
from stores.records import (
    AgentRecord,
    ApiKeyRecord,
    BindingRecord,
    CatalogueItem,
    CatalogueKind,
    HostRecord,
)
from stores.sql.connection import Row
from stores.sql.rows import Encoded
from stores.sql.values import (
    check_ids,
    check_text,
    microseconds,
    optional_microseconds,
    optional_time,
    time,
)


def host_row(host: HostRecord) -> Encoded:
    """Encode a host."""
    check_ids("host", host_id=host.host_id, incarnation=host.incarnation)
    return {
        "host_id": host.host_id,
        "incarnation": host.incarnation,
        "lease_until": microseconds("host", "lease_until", host.lease_until),
    }


def host_record(row: Row) -> HostRecord:
    """Decode a row of `hosts`."""
    return HostRecord(row[0], row[1], time(row[2]))


def agent_row(agent: AgentRecord) -> Encoded:
    """Encode what an operator sets of an agent."""
    check_ids("agent", id=agent.id, runner_id=agent.runner_id)
    check_text("agent", "name", agent.name)
    check_text("agent", "document", agent.document)
    return {
        "id": agent.id,
        "name": agent.name,
        "runner_id": agent.runner_id,
        "document": agent.document,
        "enabled": agent.enabled,
    }


def agent_record(row: Row) -> AgentRecord:
    """Decode a row of `agents`."""
    return AgentRecord(
        id=row[0],
        name=row[1],
        runner_id=row[2],
        document=row[3],
        enabled=bool(row[4]),
        revision=row[5],
        created_at=time(row[6]),
        updated_at=time(row[7]),
    )


def binding_row(binding: BindingRecord) -> Encoded:
    """Encode what an operator sets of a binding."""
    check_ids("binding", id=binding.id, agent_id=binding.agent_id)
    check_text("binding", "document", binding.document)
    return {
        "id": binding.id,
        "agent_id": binding.agent_id,
        "document": binding.document,
        "enabled": binding.enabled,
    }


def binding_record(row: Row) -> BindingRecord:
    """Decode a row of `bindings`."""
    return BindingRecord(
        id=row[0],
        agent_id=row[1],
        document=row[2],
        enabled=bool(row[3]),
        revision=row[4],
        created_at=time(row[5]),
        updated_at=time(row[6]),
    )


def item_row(item: CatalogueItem) -> Encoded:
    """Encode what an operator sets of an item."""
    kind = CatalogueKind(item.kind).value
    check_ids(kind, id=item.id)
    if not item.id:
        raise InvalidRecord(kind, "id", "must not be empty")
    check_text(kind, "document", item.document)
    check_json(kind, "document", item.document)
    return {"kind": kind, "id": item.id, "document": item.document, "enabled": item.enabled}


def item_record(row: Row) -> CatalogueItem:
    """Decode a row of `catalogue_items`."""
    return CatalogueItem(
        kind=CatalogueKind(row[0]),
        id=row[1],
        document=row[2],
        enabled=bool(row[3]),
        revision=row[4],
        created_at=time(row[5]),
        updated_at=time(row[6]),
    )


def key_row(key: ApiKeyRecord) -> Encoded:
    """Encode an API key."""
    kind = "API key"
    check_ids(kind, key_id=key.key_id, role=key.role, workspace=key.workspace, bot=key.bot)
    check_text(kind, "name", key.name)
    return {
        "key_id": key.key_id,
        "name": key.name,
        "hash": key.hash,
        "role": key.role,
        "workspace": key.workspace,
        "bot": key.bot,
        "created_at": microseconds(kind, "created_at", key.created_at),
        "expires_at": optional_microseconds(kind, "expires_at", key.expires_at),
        "revoked_at": optional_microseconds(kind, "revoked_at", key.revoked_at),
        "last_used_at": optional_microseconds(kind, "last_used_at", key.last_used_at),
    }


def key_record(row: Row) -> ApiKeyRecord:
    """Decode a row of `api_keys`."""
    return ApiKeyRecord(
        key_id=row[0],
        name=row[1],
        hash=row[2],
        role=row[3],
        workspace=row[4],
        bot=row[5],
        created_at=time(row[6]),
        expires_at=optional_time(row[7]),
        revoked_at=optional_time(row[8]),
        last_used_at=optional_time(row[9]),
    )
