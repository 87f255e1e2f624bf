"""Where a run stands: its record as it moves forward, and what the ledger is told of each step."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from host_service.runs.delivery import Delivery
from host_service.runs.services import RunServices
from stores.records import RunEnd, RunRecord, RunStatus


class Standing:
    """The record of one run.

    Args:
        record: As it is handed to the ledger.
        delivery: Its results, of which the ledger learns only later.
        services: What every run works with.

    Attributes:
        record: As it is by now, without what its results say.
    """

    def __init__(self, record: RunRecord, *, delivery: Delivery, services: RunServices) -> None:
        self.record = record
        self._delivery = delivery
        self._services = services

    def view(self) -> RunRecord:
        """Return the run with what its results say so far."""
        return replace(
            self.record,
            last_sequence=self._delivery.delivered,
            first_delta_at=self._delivery.first_delta_at,
            usage=self._delivery.usage,
            warnings=self._delivery.warnings,
        )

    def begin(self, *, at: datetime, timeout_seconds: float, instance_id: str) -> None:
        """Let it be accepted as running already."""
        self.record = replace(
            self.record,
            status=RunStatus.RUNNING,
            started_at=at,
            deadline=at + timedelta(seconds=timeout_seconds) if timeout_seconds else None,
            instance_id=instance_id,
        )

    def queue(self) -> None:
        """It waits for its turn; nothing if it did before, or has begun."""
        if self.record.status is RunStatus.ACCEPTED:
            self._advance(RunStatus.QUEUED, at=self._services.clock())

    def run(self, *, at: datetime, deadline: datetime | None, instance_id: str) -> None:
        """Its runner is called."""
        self._advance(RunStatus.RUNNING, at=at, deadline=deadline, instance_id=instance_id)

    def go_alone(self) -> None:
        """No other run takes its event up any more."""
        self.record = replace(self.record, steered_into=None)

    def end(self, end: RunEnd, *, is_taken_up: bool) -> None:
        """It has ended, and that is stored."""
        self.record = replace(
            self.view(),
            status=end.status,
            steered_into=self.record.steered_into if is_taken_up else None,
            ended_at=end.ended_at,
            failure=end.failure,
            last_sequence=end.last_sequence,
        )

    def _advance(
        self,
        status: RunStatus,
        *,
        at: datetime,
        deadline: datetime | None = None,
        instance_id: str | None = None,
    ) -> None:
        record = self.record
        self.record = replace(
            record,
            status=status,
            steered_into=None,
            queued_at=at if status is RunStatus.QUEUED else record.queued_at,
            started_at=at if status is RunStatus.RUNNING else record.started_at,
            deadline=deadline or record.deadline,
            instance_id=instance_id or record.instance_id,
        )
        saved = self._services.ledger.advance(
            record.run_id,
            status,
            at=at,
            instance_id=instance_id,
            deadline=deadline,
            host_incarnation=self._services.host_incarnation,
        )
        saved.add_done_callback(self._delivery.saved)
