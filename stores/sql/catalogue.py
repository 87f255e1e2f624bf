"""The catalogue on SQL.

Agents and bindings are kept alike: a row each, whose revision grows with each change, and one
number that grows with every change of any.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from stores.errors import InvalidRecord, MissingReference, RevisionConflict, StillReferenced
from stores.records import AgentRecord, Applied, BindingRecord
from stores.sql.catalogue_rows import agent_record, agent_row, binding_record, binding_row
from stores.sql.connection import Connection, Row
from stores.sql.journal import SqlJournal
from stores.sql.readers import Readers
from stores.sql.rows import Encoded
from stores.sql.tables import agents, bindings, catalogue_revision
from stores.sql.values import check_ids, microseconds

Record = TypeVar("Record", AgentRecord, BindingRecord)

# A message names so many of the records that stand in the way.
_NAMED = 10

_SELECT_REVISION = sa.select(catalogue_revision.c.revision)
_GROW_REVISION = sa.update(catalogue_revision).values(revision=catalogue_revision.c.revision + 1)
_BEGIN_REVISION = sa.insert(catalogue_revision)

_SELECT_OF_AGENT = (
    sa.select(bindings)
    .where(bindings.c.agent_id == sa.bindparam("of_agent"))
    .order_by(bindings.c.id)
)


class _Kept(Generic[Record]):
    """The statements of one kind of record, and writing it."""

    def __init__(self, kind: str, table: sa.Table, decode: Callable[[Row], Record]) -> None:
        is_one = table.c.id == sa.bindparam("of_id")
        self.kind = kind
        self.decode: Callable[[Row], Record] = decode
        self.select = sa.select(table).where(is_one)
        self.select_all = sa.select(table).order_by(table.c.id)
        self.insert = sa.insert(table)
        self.delete = sa.delete(table).where(is_one)
        self._set = [c.name for c in table.c if c.name not in ("id", "created_at")]
        self.update = (
            sa.update(table)
            .where(is_one)
            .values({name: sa.bindparam("to_" + name) for name in self._set})
        )

    def find(self, connection: Connection, id: str) -> Record | None:
        row = connection.first(self.select, {"of_id": id})
        return None if row is None else self.decode(row)

    def check(self, connection: Connection, id: str, expected: int | None) -> None:
        if expected is None:
            return
        stored = self.find(connection, id)
        actual = 0 if stored is None else stored.revision
        if actual != expected:
            raise RevisionConflict(self.kind, id, expected, actual)

    def write(self, connection: Connection, row: Encoded, now: int) -> tuple[Record, bool]:
        """Write an encoded record if it differs from the stored one; return it and whether."""
        stored = connection.first(self.select, {"of_id": row["id"]})
        if stored is None:
            whole = {**row, "revision": 1, "created_at": now, "updated_at": now}
            connection.run(self.insert, whole)
            return self.decode(tuple(whole.values())), True
        if stored[: len(row)] == tuple(row.values()):
            return self.decode(stored), False
        whole = {
            **row,
            "revision": stored[-3] + 1,
            "created_at": stored[-2],
            "updated_at": now,
        }
        values = {"to_" + name: whole[name] for name in self._set}
        connection.run(self.update, {"of_id": row["id"], **values})
        return self.decode(tuple(whole.values())), True


_AGENTS = _Kept("agent", agents, agent_record)
_BINDINGS = _Kept("binding", bindings, binding_record)


class SqlCatalogue:
    """Implements `stores.catalogue.Catalogue`."""

    def __init__(
        self, *, journal: SqlJournal, readers: Readers, clock: Callable[[], datetime]
    ) -> None:
        """Take the ways to write and to read, and what tells the time."""
        self._journal = journal
        self._readers = readers
        self._clock = clock

    def put_agent(
        self, agent: AgentRecord, *, expected_revision: int | None = None
    ) -> Future[AgentRecord]:
        """Store an agent, new or changed; see the protocol."""
        row = agent_row(agent)
        now = self._now()

        def work(connection: Connection) -> AgentRecord:
            _AGENTS.check(connection, agent.id, expected_revision)
            return _write(connection, [row], [], now).agents[0]

        return self._journal.submit(work, size=len(agent.document))

    def put_binding(
        self, binding: BindingRecord, *, expected_revision: int | None = None
    ) -> Future[BindingRecord]:
        """Store a binding, new or changed; see the protocol."""
        row = binding_row(binding)
        now = self._now()

        def work(connection: Connection) -> BindingRecord:
            _BINDINGS.check(connection, binding.id, expected_revision)
            return _write(connection, [], [row], now).bindings[0]

        return self._journal.submit(work, size=len(binding.document))

    def apply(
        self, agents: Sequence[AgentRecord], bindings: Sequence[BindingRecord]
    ) -> Future[Applied]:
        """Store several agents and bindings in one transaction; see the protocol."""
        _check_once("agent", (agent.id for agent in agents))
        _check_once("binding", (binding.id for binding in bindings))
        agent_rows = [agent_row(agent) for agent in agents]
        binding_rows = [binding_row(binding) for binding in bindings]
        size = sum(len(row["document"]) for row in (*agent_rows, *binding_rows))
        now = self._now()
        return self._journal.submit(
            lambda connection: _write(connection, agent_rows, binding_rows, now), size=size
        )

    def delete_agent(self, agent_id: str) -> Future[bool]:
        """Delete an agent; see the protocol."""
        check_ids("agent", id=agent_id)

        def work(connection: Connection) -> bool:
            rows = connection.all(_SELECT_OF_AGENT, {"of_agent": agent_id})
            if rows:
                names = tuple(binding_record(row).id for row in rows[:_NAMED])
                raise StillReferenced("agent", agent_id, "binding", names)
            return _delete(connection, _AGENTS.delete, agent_id)

        return self._journal.submit(work)

    def delete_binding(self, binding_id: str) -> Future[bool]:
        """Delete a binding; False if it is not stored."""
        check_ids("binding", id=binding_id)
        return self._journal.submit(
            lambda connection: _delete(connection, _BINDINGS.delete, binding_id)
        )

    async def get_agent(self, agent_id: str) -> AgentRecord | None:
        """Return an agent, or `None`."""
        row = await self._readers.first(_AGENTS.select, {"of_id": agent_id})
        return None if row is None else agent_record(row)

    async def get_binding(self, binding_id: str) -> BindingRecord | None:
        """Return a binding, or `None`."""
        row = await self._readers.first(_BINDINGS.select, {"of_id": binding_id})
        return None if row is None else binding_record(row)

    async def list_agents(self) -> Sequence[AgentRecord]:
        """Return all agents by id."""
        rows = await self._readers.all(_AGENTS.select_all, {})
        return [agent_record(row) for row in rows]

    async def list_bindings(self, agent_id: str | None = None) -> Sequence[BindingRecord]:
        """Return all bindings, or those of one agent, by id."""
        statement: sa.Select[Any] = _BINDINGS.select_all if agent_id is None else _SELECT_OF_AGENT
        rows = await self._readers.all(statement, {"of_agent": agent_id})
        return [binding_record(row) for row in rows]

    async def revision(self) -> int:
        """Return a number that grows with every change of the catalogue; 0 at first."""
        row = await self._readers.first(_SELECT_REVISION, {})
        return 0 if row is None else int(row[0])

    def _now(self) -> int:
        return microseconds("catalogue", "now", self._clock())


def _write(
    connection: Connection, agent_rows: list[Encoded], binding_rows: list[Encoded], now: int
) -> Applied:
    _check_references(connection, agent_rows, binding_rows)
    put_agents = [_AGENTS.write(connection, row, now) for row in agent_rows]
    put_bindings = [_BINDINGS.write(connection, row, now) for row in binding_rows]
    if any(changed for _, changed in (*put_agents, *put_bindings)):
        _grow_revision(connection)
    return Applied(
        tuple(record for record, _ in put_agents), tuple(record for record, _ in put_bindings)
    )


def _check_references(
    connection: Connection, agent_rows: list[Encoded], binding_rows: list[Encoded]
) -> None:
    coming = {row["id"] for row in agent_rows}
    for row in binding_rows:
        agent_id = row["agent_id"]
        if agent_id not in coming and _AGENTS.find(connection, agent_id) is None:
            raise MissingReference("binding", row["id"], "agent", agent_id)


def _check_once(kind: str, ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            raise InvalidRecord(kind, "id", f"must be given once, {one!r} comes again")
        seen.add(one)


def _delete(connection: Connection, statement: sa.Delete, id: str) -> bool:
    deleted = connection.run(statement, {"of_id": id}) == 1
    if deleted:
        _grow_revision(connection)
    return deleted


def _grow_revision(connection: Connection) -> None:
    if connection.run(_GROW_REVISION, {}) == 0:
        connection.run(_BEGIN_REVISION, {"id": 1, "revision": 1})
