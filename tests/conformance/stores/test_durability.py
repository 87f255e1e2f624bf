"""A fact whose future was done is there, whatever becomes of the process."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stores import Stores, open_stores
from stores.records import RunStatus
from tests.conformance.stores.writing_process import PIECES

ROOT = Path(__file__).parents[3]
KILLS = 3


def killed_while_writing(url: str, round_: int, after_facts: int) -> list[list[str]]:
    """Let a process write, kill it after so many facts, and return all that it had told."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.stores.writing_process", url, str(round_)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process, process.stdout:
        told = [process.stdout.readline() for _ in range(after_facts)]
        process.send_signal(signal.SIGKILL)
        told += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    return [line.decode().split() for line in told if line.endswith(b"\n")]


async def check_told_fact(stores: Stores, fact: str, run_id: str, *piece: str) -> None:
    run = await stores.ledger.get(run_id)
    assert run is not None
    if fact == "accepted":
        assert await stores.events.get_for_run(run_id) is not None
    elif fact == "recorded":
        number = int(piece[0])
        sequences = {result.sequence for result in await stores.ledger.results(run_id)}
        assert {2 * number - 1, 2 * number} <= sequences
    else:
        assert fact == "finished"
        assert run.status is RunStatus.COMPLETED


async def check_nothing_is_half_there(stores: Stores, run_id: str) -> None:
    run = await stores.ledger.get(run_id)
    assert run is not None
    results = await stores.ledger.results(run_id)
    items = (await stores.transcript.page(run.conversation_key, newest_first=False)).items
    assert len(results) == 2 * (len(items) - 1)
    assert [item.position for item in items] == list(range(1, len(items) + 1))
    if run.status is RunStatus.COMPLETED:
        assert len(results) == 2 * PIECES


def runs_in(told: list[list[str]]) -> Iterator[str]:
    return iter({words[1] for words in told})


@pytest.mark.parametrize("kill", range(KILLS))
async def test_killed_process_loses_nothing_it_told(database_url: str, kill: int) -> None:
    after_facts = random.Random(kill).randrange(1, 400)
    told = killed_while_writing(database_url, kill, after_facts)
    assert len(told) >= after_facts
    stores = await open_stores(database_url)
    for words in told:
        await check_told_fact(stores, *words)
    for run_id in runs_in(told):
        await check_nothing_is_half_there(stores, run_id)
    await stores.close()
