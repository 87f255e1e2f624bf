"""Durable facts: how many a second, and how long one takes when nothing else happens."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from time import perf_counter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from benchmarks.report import Row, at_least, at_most
from benchmarks.rounds import Plan, take_turns
from benchmarks.stores.databases import Database
from benchmarks.stores.pairs import in_pairs
from stores import Stores
from stores.records import EventRecord, ResultRecord, RunFacts, RunRecord
from stores.sql.tables import run_results

_WRITERS = 64
_TOGETHER = {"sqlite": at_least(40), "postgresql": at_least(10)}
_ALONE = at_most(1.6)
_ALONE_FACTS = {True: 40, False: 200}
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_PAYLOAD = b"x" * 200
_INSERT = sa.insert(run_results)


class Facts:
    """Writes results of runs, each with a number of its own, in either way."""

    def __init__(self, database: Database, stores: Stores, engine: AsyncEngine) -> None:
        self._database = database
        self._stores = stores
        self._engine = engine
        self._runs = [f"{database.name}-{number}" for number in range(_WRITERS)]
        self._numbers = count(1)

    async def prepare(self) -> None:
        """Starts the runs."""
        for run_id in self._runs:
            event = EventRecord(
                workspace="bench", bot="", source="bench", event_id=run_id, type="message.received",
                digest=b"digest", conversation_key=run_id, received_at=_NOW, envelope=b"event",
                input_summary="",
            )  # fmt: skip
            run = RunRecord(
                run_id=run_id, workspace="bench", bot="", event_source="bench", event_id=run_id,
                agent_id="agent", agent_revision=1, runner_id="plugin:a/b/c",
                conversation_key=run_id, session_key=run_id, created_at=_NOW, host_id="host",
                host_incarnation="start", agent_snapshot=b"agent",
            )  # fmt: skip
            await self._stores.ledger.accept(event, run).committed

    async def by_stores(self, run_id: str) -> None:
        """Stores one fact through the ledger."""
        number = next(self._numbers)
        result = ResultRecord(run_id, number, number, number, "tool_call_started", _PAYLOAD, _NOW)
        await self._stores.ledger.record(RunFacts(run_id=run_id, results=(result,)))

    async def by_engine(self, run_id: str) -> None:
        """Stores the same row with a commit of its own."""
        async with self._engine.begin() as connection:
            await connection.execute(_INSERT, self._row(run_id))

    async def one_by_stores(self) -> None:
        """Stores one fact through the ledger."""
        await self.by_stores(self._runs[0])

    async def one_by_driver(self) -> None:
        """Stores the same row with the driver itself."""
        text, values = self._database.bound(_INSERT, **self._row(self._runs[0]))
        self._database.driver.execute(text, values)

    async def a_second(self, write: Any, seconds: float) -> float:
        """Returns how many facts a second all writers store."""
        stored, started = 0, perf_counter()

        async def go_on(run_id: str) -> None:
            nonlocal stored
            while perf_counter() - started < seconds:
                await write(run_id)
                stored += 1

        await asyncio.gather(*(go_on(run_id) for run_id in self._runs))
        return stored / (perf_counter() - started)

    def _row(self, run_id: str) -> dict[str, object]:
        number = next(self._numbers)
        return {
            "run_id": run_id, "sequence": number, "first_sequence": number,
            "runner_sequence": number, "kind": "tool_call_started", "payload": _PAYLOAD,
            "at": int(_NOW.timestamp() * 1e6),
        }  # fmt: skip


async def measure_facts(database: Database, stores: Stores, plan: Plan) -> Sequence[Row]:
    """Measures facts from many writers, and from one that is alone."""
    engine = database.asynchronous()
    facts = Facts(database, stores, engine)
    await facts.prepare()
    together = await take_turns(
        {
            "stores": lambda: facts.a_second(facts.by_stores, plan.seconds),
            "engine": lambda: facts.a_second(facts.by_engine, plan.seconds),
        },
        plan.rounds,
    )
    await engine.dispose()
    alone, bare = await in_pairs(
        facts.one_by_stores,
        facts.one_by_driver,
        rounds=plan.rounds,
        times=_ALONE_FACTS[plan.quick],
    )
    name = database.name
    return [
        Row(
            f"{name}: durable facts, {_WRITERS} writers; a commit each, async engine",
            "facts/s",
            together["stores"],
            together["engine"],
            _TOGETHER[name],
        ),
        Row(
            f"{name}: one durable fact, idle; the driver's own commit",
            "ms",
            alone,
            bare,
            _ALONE,
        ),
    ]
