"""Whenever a process is killed: what it was told is there, and nothing is half there.

Ten kills in an ordinary run, five on each engine. `CRASH_KILLS=25` makes it twenty-five on each.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from stores import Stores, open_stores
from stores.records import RunQuery, RunRecord, RunStatus
from tests.conformance.stores.blob_stores import files_in
from tests.conformance.stores.crashing_process import (
    PIECES,
    STATE_KEY,
    WORKSPACE,
    content_of,
    state_of,
)

ROOT = Path(__file__).parents[3]
KILLS = int(os.environ.get("CRASH_KILLS", "5"))
LONGEST_SECONDS = 0.5

Told = dict[str, list[list[str]]]


def told_until_killed(url: str, blobs_url: str, round_: int) -> Told:
    """Let a process write, kill it at some moment, and return by kind all that it had told."""
    module = "tests.conformance.stores.crashing_process"
    process = subprocess.Popen(
        [sys.executable, "-m", module, url, blobs_url, str(round_)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process, process.stdout:
        lines = [process.stdout.readline()]
        time.sleep(random.Random(round_).uniform(0, LONGEST_SECONDS))
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    told: Told = defaultdict(list)
    for line in lines:
        if line.endswith(b"\n"):
            kind, *about = line.decode().split()
            told[kind].append(about)
    assert told["accepted"]
    return told


async def check_told_is_there(stores: Stores, told: Told) -> None:
    for (run_id,) in told["accepted"]:
        assert await stores.ledger.get(run_id) is not None
    for run_id, number in told["recorded"]:
        assert len(await stores.ledger.results(run_id)) >= 2 * int(number)
    for (run_id,) in told["finished"]:
        run = await stores.ledger.get(run_id)
        assert run is not None
        assert run.status is RunStatus.COMPLETED
    for (artifact_id,) in told["artifact"]:
        assert await stores.artifacts.get(artifact_id) is not None
    for scope, number in told["state"]:
        entry = await stores.state.get(scope, STATE_KEY)
        assert entry is not None
        assert entry.version >= int(number)
        assert entry.value == state_of(scope, entry.version)


async def check_no_run_is_half_there(stores: Stores) -> int:
    runs: list[RunRecord] = []
    after = None
    while True:
        page = await stores.ledger.list(RunQuery(), limit=1_000, after=after)
        runs += page.items
        after = page.next_cursor
        if after is None:
            break
    for run in runs:
        await _check_run_is_whole(stores, run)
    return len(runs)


async def _check_run_is_whole(stores: Stores, run: RunRecord) -> None:
    event = await stores.events.get_for_run(run.run_id)
    assert event is not None
    assert event.run_id == run.run_id
    results = await stores.ledger.results(run.run_id)
    pieces = len(results) // 2
    assert [result.sequence for result in results] == list(range(1, 2 * pieces + 1))
    items = (await stores.transcript.page(run.conversation_key, newest_first=False)).items
    assert [item.position for item in items] == list(range(1, pieces + 2))
    assert [item.transcript_id for item in items] == [
        f"item-{number} of {run.run_id}" for number in range(pieces + 1)
    ]
    assert await stores.transcript.latest_position(run.conversation_key) == pieces + 1
    assert len(await stores.events.entries(run.run_id)) == pieces
    checkpoints = [point.message_id for point in await stores.ledger.checkpoints(run.run_id)]
    if run.status is RunStatus.COMPLETED:
        assert pieces == PIECES
        assert checkpoints == []
    else:
        assert run.reserved_sequence == 100 * pieces
        assert checkpoints == ([f"message-{pieces}"] if pieces else [])


async def check_no_artifact_is_half_there(stores: Stores, blobs: Path) -> None:
    """Check that each has its bytes, and that once orphans are gone nobody else has any."""
    count, after = 0, None
    while True:
        page = await stores.artifacts.list_of_workspace(WORKSPACE, limit=1_000, after=after)
        for artifact in page.items:
            content = b"".join(content_of(artifact.artifact_id))
            assert artifact.size_bytes == len(content)
            read = await stores.artifacts.read(artifact.artifact_id, offset=0, length=2**20)
            assert read == content
        count, after = count + len(page.items), page.next_cursor
        if after is None:
            break
    await stores.artifacts.collect_orphans(grace_seconds=0)
    assert len(files_in(blobs)) == count


@pytest.mark.timeout(60 + 10 * KILLS)
async def test_killed_process_loses_nothing_that_it_was_told_in_any_store(
    database_url: str, tmp_path: Path
) -> None:
    blobs = tmp_path / "blobs"
    all_told = []
    for round_ in range(KILLS):
        told = told_until_killed(database_url, blobs.as_uri(), round_)
        all_told.append(told)
        stores = await open_stores(database_url, blobs_url=blobs.as_uri())
        await check_told_is_there(stores, told)
        await stores.close()
    stores = await open_stores(database_url, blobs_url=blobs.as_uri())
    # What later ones did took nothing from those before.
    for told in all_told:
        await check_told_is_there(stores, told)
    assert await check_no_run_is_half_there(stores) >= sum(len(t["accepted"]) for t in all_told)
    await check_no_artifact_is_half_there(stores, blobs)
    await stores.close()
