"""A process that writes to a store and says so, to be killed while it does.

`python -m tests.conformance.stores.writing_process URL ROUND` writes runs with eight writers until
it is killed. Each line that it prints is a fact whose future was done: `accepted RUN`,
`recorded RUN N` for the piece with results 2N-1 and 2N and one item, `finished RUN`.
"""

import asyncio
import os
import sys

from stores import Stores, open_stores
from stores.records import RunFacts
from tests.conformance.stores.samples import a_result, a_run, an_end, an_event, an_item

WRITERS = 8
PIECES = 3


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def write_run(stores: Stores, name: str) -> None:
    run_id = f"run-{name}"
    talk = f"talk-{name}"
    event = an_event(f"event-{name}", conversation_key=talk)
    item = an_item(f"item-{name}-0", conversation_key=talk)
    await stores.ledger.accept(event, a_run(run_id, event), item).committed
    say("accepted", run_id)
    for number in range(1, PIECES + 1):
        results = (a_result(run_id, 2 * number - 1), a_result(run_id, 2 * number))
        items = (an_item(f"item-{name}-{number}", conversation_key=talk),)
        await stores.ledger.record(RunFacts(run_id=run_id, results=results, items=items))
        say("recorded", run_id, number)
    await stores.ledger.finish(an_end(run_id))
    say("finished", run_id)


async def write_runs(stores: Stores, prefix: str) -> None:
    number = 0
    while True:
        number += 1
        await write_run(stores, f"{prefix}-{number}")


async def main(url: str, round_: str) -> None:
    stores = await open_stores(url)
    await asyncio.gather(*(write_runs(stores, f"{round_}-{each}") for each in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
