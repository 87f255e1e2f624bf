"""A process that writes to every store and says so, to be killed while it does.

`python -m tests.conformance.stores.crashing_process URL BLOBS_URL ROUND` writes runs with six
writers until it is killed. Each line that it prints is a fact that was told to be durable, and what
it is about: `accepted RUN`, `recorded RUN N`, `state SCOPE N`, `artifact ID`, `finished RUN`.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator

from stores import Stores, open_stores
from stores.records import ArtifactHeader, RunFacts
from tests.conformance.stores.samples import (
    a_checkpoint,
    a_result,
    a_run,
    an_end,
    an_entry,
    an_event,
    an_item,
    at,
)

WRITERS = 6
PIECES = 3
WORKSPACE = "acme"
STATE_KEY = "memory"
_CHUNKS = 3


def content_of(artifact_id: str) -> Iterator[bytes]:
    """What is in an artifact, in chunks."""
    return (f"{artifact_id} {number} ".encode() * 2_000 for number in range(_CHUNKS))


def state_of(scope: str, number: int) -> str:
    """What is in a scope's state after so many writes."""
    return json.dumps({"scope": scope, "number": number, "text": "记忆 🧠 " * number})


def facts_of(run_id: str, number: int) -> RunFacts:
    """A piece of a run: two results, an item, a log entry, and a checkpoint in place of the last.

    All of it is there, or nothing.
    """
    return RunFacts(
        run_id=run_id,
        results=(a_result(run_id, 2 * number - 1), a_result(run_id, 2 * number)),
        items=(an_item(f"item-{number} of {run_id}", conversation_key=f"talk of {run_id}"),),
        entries=(an_entry(run_id),),
        checkpoints=(a_checkpoint(run_id, f"message-{number}"),),
        dropped_checkpoints=(f"message-{number - 1}",),
        reserved_sequence=100 * number,
    )


def _say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def _chunks(artifact_id: str) -> AsyncIterator[bytes]:
    for chunk in content_of(artifact_id):
        yield chunk


async def _write_run(stores: Stores, run_id: str) -> None:
    event = an_event(f"event of {run_id}", conversation_key=f"talk of {run_id}")
    item = an_item(f"item-0 of {run_id}", conversation_key=event.conversation_key)
    await stores.ledger.accept(event, a_run(run_id, event), item).committed
    _say("accepted", run_id)
    for number in range(1, PIECES + 1):
        await stores.ledger.record(facts_of(run_id, number))
        _say("recorded", run_id, number)
    artifact_id = f"artifact-of-{run_id}"
    header = ArtifactHeader(
        artifact_id=artifact_id,
        workspace=WORKSPACE,
        bot="helper",
        conversation_key=event.conversation_key,
        type="file",
        created_at=at(0),
        run_id=run_id,
    )
    await stores.artifacts.write(header, _chunks(artifact_id))
    _say("artifact", artifact_id)
    await stores.ledger.finish(an_end(run_id, last_sequence=2 * PIECES))
    _say("finished", run_id)


async def _write_runs(stores: Stores, name: str) -> None:
    number = 0
    while True:
        number += 1
        await _write_run(stores, f"run-{name}-{number}")
        # Others' facts are between these: each state has a version for each of its writes.
        await stores.state.set(name, STATE_KEY, state_of(name, number), expected_version=number - 1)
        _say("state", name, number)


async def _main(url: str, blobs_url: str, round_: str) -> None:
    stores = await open_stores(url, blobs_url=blobs_url)
    await asyncio.gather(*(_write_runs(stores, f"{round_}-{each}") for each in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
