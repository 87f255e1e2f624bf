"""Many who read and then write, in several processes, wait for one another and never fail."""

import asyncio
import sys
from pathlib import Path

from stores import Stores, open_stores
from tests.conformance.stores.samples import an_agent

ROOT = Path(__file__).parents[3]

# Reads until its standard input ends; says how often.
READING = """
import asyncio, sys, threading
from stores import open_stores

async def main(url):
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    stores = await open_stores(url)
    reads = 0
    while not ended.is_set():
        await stores.catalogue.list_agents()
        await stores.ledger.get("run")
        reads += 1
        if reads == 1:
            print("reading", flush=True)
    await stores.close()
    print(reads, flush=True)

asyncio.run(main(sys.argv[1]))
"""


async def test_fifty_who_read_and_then_write_are_never_told_of_a_lock(
    stores: Stores, database_url: str
) -> None:
    reader = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        READING,
        database_url,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert reader.stdout is not None
    try:
        assert await reader.stdout.readline() == b"reading\n"
        other = await open_stores(database_url)
        await asyncio.gather(
            *(change(owner, number) for owner in (stores, other) for number in range(25))
        )
        await other.close()
        told, _ = await reader.communicate(b"")
    finally:
        if reader.returncode is None:
            reader.kill()
    assert reader.returncode == 0
    assert int(told) > 1
    agents = await stores.catalogue.list_agents()
    assert [agent.revision for agent in agents] == [10] * 25
    assert await stores.catalogue.revision() == 250


async def change(owner: Stores, number: int) -> None:
    for turn in range(5):
        agent = await owner.catalogue.get_agent(f"agent-{number}")
        name = f"{id(owner)} {turn} after {agent.revision if agent else 0}"
        await owner.catalogue.put_agent(an_agent(f"agent-{number}", name=name))
