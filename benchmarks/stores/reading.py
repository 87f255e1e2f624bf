"""Reading a transcript of some size: its newest page, and what is found in it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter

import sqlalchemy as sa

from benchmarks.report import Row, at_most
from benchmarks.rounds import Plan, take_turns
from benchmarks.spread import percentile
from benchmarks.stores.databases import Database
from benchmarks.stores.pairs import in_pairs
from stores import Stores
from stores.records import EventRecord, RunFacts, RunRecord, TranscriptItem
from stores.sql.tables import item_columns, transcript_items

_PAGE = 50
_FOUND = 10
_READS = {True: 40, False: 300}
_BATCH = 500
_WORKSPACE = "history"
_TALK = "the conversation"
# The rest of a large transcript: so many items to a conversation.
_OTHERS = 10_000
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_QUERIES = ("评审", "review")
_WORDS = ("明天", "下午", "三点", "开", "项目", "会议", "计划", "the", "build", "failed", "again")

_NEWEST = (
    sa.select(*item_columns)
    .where(transcript_items.c.conversation_key == sa.bindparam("of_talk"))
    .order_by(transcript_items.c.position.desc())
    .limit(_PAGE)
)


@dataclass(slots=True)
class Filler:
    """Fills a transcript up, the measured conversation first."""

    stores: Stores
    size: int = 0

    async def up_to(self, size: int) -> None:
        """Stores items until there are so many."""
        chance = random.Random(self.size)
        if not self.size:
            await self._begin()
        while self.size < size:
            first, self.size = self.size, min(size, self.size + _BATCH)
            items = tuple(_item(chance, number) for number in range(first, self.size))
            await self.stores.ledger.record(RunFacts(run_id="filling", items=items))

    async def _begin(self) -> None:
        event = EventRecord(
            workspace=_WORKSPACE, bot="", source="bench", event_id="filling", type="t",
            digest=b"digest", conversation_key=_TALK, received_at=_NOW, envelope=b"event",
            input_summary="",
        )  # fmt: skip
        run = RunRecord(
            run_id="filling", workspace=_WORKSPACE, bot="", event_source="bench",
            event_id="filling", agent_id="agent", agent_revision=1, runner_id="plugin:a/b/c",
            conversation_key=_TALK, session_key=_TALK, created_at=_NOW, host_id="host",
            host_incarnation="start", agent_snapshot=b"agent",
        )  # fmt: skip
        await self.stores.ledger.accept(event, run).committed


def _item(chance: random.Random, number: int) -> TranscriptItem:
    words = chance.choices(_WORDS, k=chance.randrange(6, 20))
    if number % 97 == 0:
        words.insert(len(words) // 2, _QUERIES[number % 2])
    block = number // _OTHERS
    return TranscriptItem(
        transcript_id=f"item-{number}",
        conversation_key=f"{_TALK} {block}" if block else _TALK,
        workspace=_WORKSPACE,
        bot="",
        event_id="filling",
        role="user",
        kind="message",
        created_at=_NOW,
        text=" ".join(words) if number % 2 else "".join(words),
    )


class Reading:
    """Reads in either way."""

    def __init__(self, database: Database, stores: Stores, reads: int) -> None:
        self._database = database
        self._stores = stores
        self._reads = reads
        self._newest = database.bound(_NEWEST, of_talk=_TALK)

    async def newest_page(self) -> None:
        """Reads the newest page."""
        page = await self._stores.transcript.page(_TALK)
        assert len(page.items) == _PAGE

    async def bare_query(self) -> None:
        """Asks the driver the bare query for it."""
        text, values = self._newest
        rows = self._database.driver.execute(text, values).fetchall()
        assert len(rows) == _PAGE

    async def searching(self) -> float:
        """Returns the slowest twentieth of searches through everything, in ms."""
        times = []
        for number in range(self._reads):
            query = _QUERIES[number % len(_QUERIES)]
            started = perf_counter()
            found = await self._stores.transcript.search_workspace(_WORKSPACE, query, limit=_FOUND)
            times.append((perf_counter() - started) * 1e3)
            assert len(found.items) == _FOUND
        return percentile(times, 0.95)


async def measure_reading(database: Database, stores: Stores, plan: Plan) -> Sequence[Row]:
    """Measures at ten thousand items and, unless it has to be quick, at a million."""
    rows: list[Row] = []
    filler = Filler(stores)
    reading = Reading(database, stores, _READS[plan.quick])
    at_first: list[float] | None = None
    for size, called in ((10_000, "10k"), (1_000_000, "1M"))[: 1 if plan.quick else 2]:
        await filler.up_to(size)
        pages, queries = await in_pairs(
            reading.newest_page, reading.bare_query, rounds=plan.rounds, times=_READS[plan.quick]
        )
        searches = await take_turns({"search": reading.searching}, plan.rounds)
        page = f"{database.name}: newest page of {_PAGE} of {called}"
        rows.append(Row(f"{page}; the bare query", "ms", pages, queries, at_most(1.5)))
        if at_first is None:
            at_first = pages
        else:
            rows.append(Row(f"{page}; of 10k", "ms", pages, at_first, at_most(1.3)))
        what = f"{database.name}: search of {called}, top {_FOUND}, p95"
        # The bound is for a million; fewer must keep it as well.
        rows.append(Row(what, "ms", searches["search"], goal=at_most(50)))
    return rows
