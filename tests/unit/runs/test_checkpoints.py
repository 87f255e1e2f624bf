"""Tests of `host_service.runs.checkpoints`: text in progress reaches the ledger in time."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from host_service.limits import Limits
from host_service.runs.checkpoints import Checkpoints
from host_service.runs.progress import Progress
from stores.records import Checkpoint, RunFacts
from tests.unit.runs.samples import a_delta, a_result

# Longer than any test.
LONG = 3600.0


@dataclass
class Kept:
    """Keeps what is saved, and tells when something is."""

    checkpoints: list[Checkpoint] = field(default_factory=list)
    saved: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, facts: RunFacts) -> None:
        assert facts.run_id == "run-1"
        self.checkpoints += facts.checkpoints
        self.saved.set()

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(each.text, each.reasoning) for each in self.checkpoints]


class Run:
    """A run that delivers deltas and says so."""

    def __init__(self, **limits: Any) -> None:
        self.progress, self.kept = Progress(), Kept()
        settings = {"checkpoint_seconds": LONG, "checkpoint_bytes": 1 << 30} | limits
        self.checkpoints = Checkpoints(
            run_id="run-1",
            progress=self.progress,
            limits=replace(Limits(), **settings),
            save=self.kept,
        )
        self._number = 0

    def says(self, text: str, *, reasoning: str = "", id: str = "") -> None:
        self._number += 1
        delta = a_delta(text, reasoning=reasoning, id=id)
        self.progress.note([a_result(self._number, message_delta=delta)])
        self.checkpoints.grew(len(text) + len(reasoning))


async def test_text_is_kept_after_a_time_however_little_it_is() -> None:
    run = Run(checkpoint_seconds=0.001)
    run.says("a", reasoning="r")
    assert run.kept.checkpoints == []
    await asyncio.wait_for(run.kept.saved.wait(), 5)
    assert run.kept.texts == [("a", "r")]
    assert run.kept.checkpoints[0].sequence == 1
    run.kept.saved.clear()
    run.says("b")
    await asyncio.wait_for(run.kept.saved.wait(), 5)
    assert [text for text, _ in run.kept.texts] == ["a", "b"]


async def test_text_is_kept_after_so_many_bytes_at_once() -> None:
    run = Run(checkpoint_bytes=10)
    run.says("12345")
    run.says("6789")
    assert run.kept.checkpoints == []
    run.says("0")
    assert run.kept.texts == [("1234567890", "")]
    assert run.kept.checkpoints[0].sequence == 3
    run.says("12345")
    assert len(run.kept.checkpoints) == 1


async def test_each_message_in_progress_has_a_checkpoint_of_its_own() -> None:
    run = Run(checkpoint_bytes=3)
    run.says("A", id="a")
    run.says("B", id="b")
    run.says("C", id="a")
    assert [(each.message_id, each.text) for each in run.kept.checkpoints] == [
        ("a", "AC"),
        ("b", "B"),
    ]


async def test_message_that_did_not_grow_is_not_kept_again() -> None:
    run = Run(checkpoint_bytes=2)
    run.says("AA", id="a")
    run.says("BB", id="b")
    assert [each.message_id for each in run.kept.checkpoints] == ["a", "b"]


async def test_completed_message_is_kept_no_more_and_nothing_is_saved_for_nothing() -> None:
    run = Run(checkpoint_bytes=10)
    run.says("1234567", id="a")
    run.progress.close("a")
    run.checkpoints.grew(10)
    assert not run.kept.saved.is_set()


async def test_nothing_is_taken_once_the_run_has_closed_it() -> None:
    run = Run(checkpoint_seconds=0.001)
    run.says("a")
    run.checkpoints.close()
    run.checkpoints.close()
    # Later than the checkpoint would have been.
    later = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.005, later.set_result, None)
    await later
    assert run.kept.checkpoints == []


async def test_pieces_of_a_message_make_up_its_text() -> None:
    run = Run(checkpoint_bytes=7)
    for text in ("Once", " upon", " a time", " 你好", "", "!"):
        run.says(text)
    run.checkpoints.grew(7)
    assert "".join(each.text for each in run.kept.checkpoints) == "Once upon a time 你好!"
    assert len({each.message_id for each in run.kept.checkpoints}) == 1
