"""The catalogue on SQL.

Agents, bindings and items are kept alike: a row each, whose revision grows with each change, and
one number that grows with every change of any.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from stores.errors import InvalidRecord, MissingReference, StillReferenced
from stores.records import (
    AgentRecord,
    ApiKeyRecord,
    Applied,
    BindingRecord,
    CatalogueItem,
    CatalogueKind,
)
from stores.secrets import SecretChange
from stores.sql.catalogue_revision import check_revision, grow_revision
from stores.sql.catalogue_rows import (
    agent_record,
    agent_row,
    binding_record,
    binding_row,
    item_record,
    item_row,
    key_row,
)
from stores.sql.connection import Connection
from stores.sql.journal import SqlJournal
from stores.sql.kept import Kept
from stores.sql.keys import check_keys, put_key
from stores.sql.knowledge_writing import remove_base
from stores.sql.readers import Readers
from stores.sql.rows import Encoded
from stores.sql.secrets import SqlSecrets
from stores.sql.tables import agents, bindings, catalogue_items, catalogue_revision, secrets
from stores.sql.values import check_ids, microseconds

# A message names so many of the records that stand in the way.
_NAMED = 10

_SELECT_REVISION = sa.select(catalogue_revision.c.revision)
_DELETE_SECRETS = sa.delete(secrets).where(
    secrets.c.owner_kind == sa.bindparam("of_kind"), secrets.c.owner_id == sa.bindparam("of_id")
)

_SELECT_OF_AGENT = (
    sa.select(bindings)
    .where(bindings.c.agent_id == sa.bindparam("of_agent"))
    .order_by(bindings.c.id)
)


_AGENTS = Kept(agents, agent_record)
_BINDINGS = Kept(bindings, binding_record)
_ITEMS = Kept(catalogue_items, item_record, keys=("kind", "id"))
_SELECT_OF_KIND = (
    sa.select(catalogue_items)
    .where(catalogue_items.c.kind == sa.bindparam("of_kind"))
    .order_by(catalogue_items.c.id)
)


class SqlCatalogue:
    """Implements `stores.catalogue.Catalogue`."""

    def __init__(
        self,
        *,
        journal: SqlJournal,
        readers: Readers,
        clock: Callable[[], datetime],
        secrets: SqlSecrets,
        on_removed_base: Callable[[], None],
    ) -> None:
        """Take the ways to write and to read, what tells the time, and what encrypts.

        Also what is told when a knowledge base was deleted whose documents are to be collected.
        """
        self._on_removed_base = on_removed_base
        self._journal = journal
        self._readers = readers
        self._clock = clock
        self._secrets = secrets

    def put_agent(
        self, agent: AgentRecord, *, expected_revision: int | None = None
    ) -> Future[AgentRecord]:
        """Store an agent, new or changed; see the protocol."""
        row = agent_row(agent)
        now = self._now()

        def work(connection: Connection) -> AgentRecord:
            _AGENTS.check(connection, "agent", agent.id, expected=expected_revision)
            return _write(connection, _Coming(agents=[row]), now).agents[0]

        return self._journal.submit(work, size=len(agent.document))

    def put_binding(
        self, binding: BindingRecord, *, expected_revision: int | None = None
    ) -> Future[BindingRecord]:
        """Store a binding, new or changed; see the protocol."""
        row = binding_row(binding)
        now = self._now()

        def work(connection: Connection) -> BindingRecord:
            _BINDINGS.check(connection, "binding", binding.id, expected=expected_revision)
            return _write(connection, _Coming(bindings=[row]), now).bindings[0]

        return self._journal.submit(work, size=len(binding.document))

    def put_item(
        self, item: CatalogueItem, *, expected_revision: int | None = None
    ) -> Future[CatalogueItem]:
        """Store a model, knowledge base, tool server, plugin or policy; see the protocol."""
        row = item_row(item)
        now = self._now()

        def work(connection: Connection) -> CatalogueItem:
            kind = row["kind"]
            _ITEMS.check(connection, kind, kind, item.id, expected=expected_revision)
            return _write(connection, _Coming(items=[row]), now).items[0]

        return self._journal.submit(work, size=len(item.document))

    def apply(
        self,
        agents: Sequence[AgentRecord],
        bindings: Sequence[BindingRecord],
        items: Sequence[CatalogueItem] = (),
        *,
        secrets: Sequence[SecretChange] = (),
        keys: Sequence[ApiKeyRecord] = (),
        expected_revision: int | None = None,
    ) -> Future[Applied]:
        """Store several records in one transaction; see the protocol."""
        coming = _Coming(
            items=[item_row(item) for item in items],
            agents=[agent_row(agent) for agent in agents],
            bindings=[binding_row(binding) for binding in bindings],
        )
        _check_once("agent", (row["id"] for row in coming.agents))
        _check_once("binding", (row["id"] for row in coming.bindings))
        for kind in CatalogueKind:
            _check_once(kind, (row["id"] for row in coming.items if row["kind"] == kind))
        key_rows = [key_row(key) for key in keys]
        _check_once("API key", (row["key_id"] for row in key_rows))
        change_secrets = self._secrets.changing(secrets)
        size = sum(len(row["document"]) for rows in coming for row in rows)
        now = self._now()

        def work(connection: Connection) -> Applied:
            # Whatever refuses comes before whatever writes.
            check_revision(connection, expected_revision)
            check_keys(connection, key_rows)
            applied = _write(connection, coming, now)
            if change_secrets(connection):
                grow_revision(connection)
            for row in key_rows:
                put_key(connection, row)
            return applied

        return self._journal.submit(work, size=size)

    def delete_agent(self, agent_id: str) -> Future[bool]:
        """Delete an agent; see the protocol."""
        check_ids("agent", id=agent_id)

        def work(connection: Connection) -> bool:
            rows = connection.all(_SELECT_OF_AGENT, {"of_agent": agent_id})
            if rows:
                names = tuple(binding_record(row).id for row in rows[:_NAMED])
                raise StillReferenced("agent", agent_id, "binding", names)
            return _delete(connection, _AGENTS.delete, {"of_id": agent_id}, kind="agent")

        return self._journal.submit(work)

    def delete_binding(self, binding_id: str) -> Future[bool]:
        """Delete a binding; False if it is not stored."""
        check_ids("binding", id=binding_id)
        return self._journal.submit(
            lambda connection: _delete(
                connection, _BINDINGS.delete, {"of_id": binding_id}, kind="binding"
            )
        )

    def delete_item(self, kind: CatalogueKind, id: str) -> Future[bool]:
        """Delete an item and its secrets; False if it is not stored."""
        check_ids(kind, id=id)
        place = _ITEMS.place(kind.value, id)
        now = self._now()

        def work(connection: Connection) -> bool:
            deleted = _delete(connection, _ITEMS.delete, place, kind=kind.value)
            if kind is CatalogueKind.KNOWLEDGE_BASE:
                remove_base(connection, id, now)
            return deleted

        deletion = self._journal.submit(work)
        if kind is CatalogueKind.KNOWLEDGE_BASE:
            deletion.add_done_callback(lambda _: self._on_removed_base())
        return deletion

    async def get_agent(self, agent_id: str) -> AgentRecord | None:
        """Return an agent, or `None`."""
        row = await self._readers.first(_AGENTS.select, {"of_id": agent_id})
        return None if row is None else agent_record(row)

    async def get_binding(self, binding_id: str) -> BindingRecord | None:
        """Return a binding, or `None`."""
        row = await self._readers.first(_BINDINGS.select, {"of_id": binding_id})
        return None if row is None else binding_record(row)

    async def get_item(self, kind: CatalogueKind, id: str) -> CatalogueItem | None:
        """Return an item, or `None`."""
        row = await self._readers.first(_ITEMS.select, _ITEMS.place(kind.value, id))
        return None if row is None else item_record(row)

    async def list_agents(self) -> Sequence[AgentRecord]:
        """Return all agents by id."""
        rows = await self._readers.all(_AGENTS.select_all, {})
        return [agent_record(row) for row in rows]

    async def list_bindings(self, agent_id: str | None = None) -> Sequence[BindingRecord]:
        """Return all bindings, or those of one agent, by id."""
        statement: sa.Select[Any] = _BINDINGS.select_all if agent_id is None else _SELECT_OF_AGENT
        rows = await self._readers.all(statement, {"of_agent": agent_id})
        return [binding_record(row) for row in rows]

    async def list_items(self, kind: CatalogueKind | None = None) -> Sequence[CatalogueItem]:
        """Return all items, or those of one kind, by kind and id."""
        if kind is None:
            rows = await self._readers.all(_ITEMS.select_all, {})
        else:
            rows = await self._readers.all(_SELECT_OF_KIND, {"of_kind": kind.value})
        return [item_record(row) for row in rows]

    async def revision(self) -> int:
        """Return a number that grows with every change of the catalogue; 0 at first."""
        row = await self._readers.first(_SELECT_REVISION, {})
        return 0 if row is None else int(row[0])

    def _now(self) -> int:
        return microseconds("catalogue", "now", self._clock())


class _Coming(NamedTuple):
    """Encoded records to be written together."""

    items: Sequence[Encoded] = ()
    agents: Sequence[Encoded] = ()
    bindings: Sequence[Encoded] = ()


def _write(connection: Connection, coming: _Coming, now: int) -> Applied:
    _check_references(connection, coming)
    items = [_ITEMS.write(connection, row, now) for row in coming.items]
    agents = [_AGENTS.write(connection, row, now) for row in coming.agents]
    bindings = [_BINDINGS.write(connection, row, now) for row in coming.bindings]
    if any(changed for _, changed in (*items, *agents, *bindings)):
        grow_revision(connection)
    return Applied(
        agents=tuple(record for record, _ in agents),
        bindings=tuple(record for record, _ in bindings),
        items=tuple(record for record, _ in items),
    )


def _check_references(connection: Connection, coming: _Coming) -> None:
    agents_coming = {row["id"] for row in coming.agents}
    for row in coming.bindings:
        agent_id = row["agent_id"]
        if agent_id not in agents_coming and _AGENTS.find(connection, agent_id) is None:
            raise MissingReference("binding", row["id"], "agent", agent_id)


def _check_once(kind: str, ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            raise InvalidRecord(kind, "id", f"must be given once, {one!r} comes again")
        seen.add(one)


def _delete(
    connection: Connection, statement: sa.Delete, place: Mapping[str, Any], *, kind: str
) -> bool:
    deleted = connection.run(statement, place) == 1
    if deleted:
        # Who gets the id next must not find the secrets of who had it.
        connection.run(_DELETE_SECRETS, {"of_kind": kind, "of_id": place["of_id"]})
        grow_revision(connection)
    return deleted
