"""Keeps text in progress in the ledger, so that a crash of the host loses nothing shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from host_service.limits import Limits
from host_service.runs.progress import Progress
from stores.records import Checkpoint, RunFacts


class Checkpoints:
    """Saves the messages in progress of one run, at least every so often and every so many bytes.

    Args:
        run_id: The run.
        progress: Its messages in progress.
        limits: How often, and every how many bytes.
        save: Hands facts to the ledger.
    """

    def __init__(
        self,
        *,
        run_id: str,
        progress: Progress,
        limits: Limits,
        save: Callable[[RunFacts], object],
    ) -> None:
        self._run_id = run_id
        self._progress = progress
        self._limits = limits
        self._save = save
        self._grown = 0
        self._timer: asyncio.TimerHandle | None = None

    def grew(self, size_bytes: int) -> None:
        """Say that text was delivered."""
        self._grown += size_bytes
        if self._grown >= self._limits.checkpoint_bytes:
            self._take()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limits.checkpoint_seconds, self._take)

    def close(self) -> None:
        """Take no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self) -> None:
        self.close()
        self._grown = 0
        now = datetime.now(UTC)
        checkpoints = []
        for message in self._progress.messages():
            piece = message.take_unsaved()
            if piece is not None:
                text, reasoning = piece
                checkpoints.append(
                    Checkpoint(
                        run_id=self._run_id,
                        message_id=message.message_id,
                        text=text,
                        reasoning=reasoning,
                        sequence=message.last_sequence,
                        at=now,
                    )
                )
        if checkpoints:
            self._save(RunFacts(run_id=self._run_id, checkpoints=tuple(checkpoints)))
