"""The scenario `stores`: the same figures on both engines, in one run."""

from collections.abc import Sequence

from benchmarks.report import Row
from benchmarks.rounds import Plan
from benchmarks.stage import Stage
from benchmarks.stores.databases import databases
from benchmarks.stores.facts import measure_facts
from benchmarks.stores.knowledge import measure_knowledge
from benchmarks.stores.reading import measure_reading
from stores import open_stores


async def measure(stage: Stage, plan: Plan) -> Sequence[Row]:
    """Measures writing, reading and searching, one engine after the other."""
    rows: list[Row] = []
    with databases(stage.folder) as both:
        for database in both:
            stores = await open_stores(database.url)
            try:
                rows += await measure_facts(database, stores, plan)
                rows += await measure_reading(database, stores, plan)
                rows += await measure_knowledge(database, stores, plan)
            finally:
                await stores.close()
    return rows
