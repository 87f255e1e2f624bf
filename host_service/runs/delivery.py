"""What a runner sends, on its way to readers and stores.

What flows where::

    frame ── check, number ──┬── plain deltas ── noted (text in progress) ──┬──> log ──> readers
                             └── the rest ── projected ──> ledger (journal) ┘
                             └── with files: stored first, what follows waits behind them
    timer, size ── text in progress ──> ledger (checkpoints)
    end ── messages to complete, terminal result ──> committed, and only then ──> log

A delta never waits for a store. Durable results are handed to the journal, which keeps their order;
only the end waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from runmesh.v1 import result_pb2, run_pb2

from host_service.authorization.snapshot import Snapshot
from host_service.registry.frames import Frame
from host_service.runs.actions import RunActions
from host_service.runs.artifact_refs import has_artifacts
from host_service.runs.artifacts import RunArtifacts, needs_settling
from host_service.runs.checker import TERMINAL, Numbered, ProtocolFault, ResultChecker
from host_service.runs.checkpoints import Checkpoints
from host_service.runs.event import Event
from host_service.runs.facts import Projector, log_entries, result_record, says_something
from host_service.runs.log import Batch, ResultLog
from host_service.runs.outcome import Outcome, RunFault
from host_service.runs.progress import Progress
from host_service.runs.services import RunServices
from host_service.runs.state import RunState, UpdateRefused
from stores.records import RunEnd, RunFacts, RunWarning, Usage
from stores.state import StateEntry

_log = logging.getLogger("runmesh.runs")

# A run at its deadline is told to be so within 250 ms.
_LAST_FILES_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LastWords:
    """The end of a run, to be committed and then shown.

    Attributes:
        end: How it ended.
        facts: What it leaves.
        batch: What readers are shown of it.
    """

    end: RunEnd
    facts: RunFacts
    batch: Batch


class Delivery:
    """Checks, numbers, keeps and shows the results of one run.

    Args:
        run_id: The run.
        runner_id: Its runner.
        event: What it answers.
        shows_deltas: False: deltas are withheld, and messages come whole.
        reserved: The numbers that may be delivered already.
        services: What runs work with.
        on_lost: Called when facts could not be stored: what was shown must be what is kept.

    Attributes:
        log: Where readers read.
        progress: The text of messages in progress.
        uncommitted: Durable results that the ledger may not have yet, oldest first.
        state: What the run keeps; set when its rights are frozen, before its runner is called.
        first_delta_at: When the first delta came.
        delivered: The largest number that readers were given, or are being given: everything up to
            it is in the log's buffers, in `progress`, in `uncommitted` or in the ledger.
    """

    def __init__(
        self,
        *,
        run_id: str,
        runner_id: str,
        event: Event,
        shows_deltas: bool,
        reserved: int,
        services: RunServices,
        on_lost: Callable[[], None],
    ) -> None:
        limits = services.limits
        self._run_id = run_id
        self._shows_deltas = shows_deltas
        self._reserved = reserved
        self._services = services
        self._limits = limits
        self._on_lost = on_lost
        self._checker = ResultChecker(
            run_id=run_id, limits=limits, validator=services.validator, warn=self.warn
        )
        self.log = ResultLog(limits=limits)
        self.progress = Progress(find_fault=self._checker.find_fault)
        self.uncommitted: deque[result_pb2.RunResult] = deque()
        self.state: RunState | None = None
        self._artifacts: RunArtifacts | None = None
        self._actions: RunActions | None = None
        self.first_delta_at: datetime | None = None
        self.delivered = 0
        self._projector = Projector(
            run_id=run_id, runner_id=runner_id, event=event, progress=self.progress
        )
        self._checkpoints = Checkpoints(
            run_id=run_id, progress=self.progress, limits=limits, save=self._record
        )
        self._warnings: list[RunWarning] = []
        self._unsaved_warnings: list[RunWarning] = []

    @property
    def usage(self) -> tuple[Usage, ...]:
        """Tokens used, as far as reported."""
        return self._projector.usage or ()

    @property
    def warnings(self) -> tuple[RunWarning, ...]:
        """What somebody should know, oldest first, up to as many as are kept."""
        return tuple(self._warnings)

    def hold_to(self, snapshot: Snapshot) -> None:
        """Hold what the run says to its frozen rights; to be called before its runner is."""
        self._artifacts = RunArtifacts(
            snapshot=snapshot,
            store=self._services.artifacts,
            clock=self._services.clock,
            warn=self.warn,
        )
        self._actions = RunActions(snapshot=snapshot, desk=self._services.actions, warn=self.warn)

    def warn(self, code: str, text: str) -> None:
        """Note something that somebody should know and that does not end the run."""
        _log.debug("run %s: %s: %s", self._run_id, code, text)
        if len(self._warnings) < self._limits.warnings_kept:
            warning = RunWarning(code, text, self._services.clock())
            self._warnings.append(warning)
            self._unsaved_warnings.append(warning)

    async def pass_on(self, frame: Frame) -> Numbered | None:
        """Check a frame and deliver what is in it; return the terminal result if it has one.

        Raises:
            ProtocolFault: The run cannot go on. What came before the fault was delivered.
        """
        texts = self._checker.number_texts(frame)
        if texts is not None and frame.response is not None:
            self.progress.note_texts(self._checker.delivered - len(texts) + 1, texts)
            self._check_progress()
            await self._show(frame.response, has_text=True, through=self._checker.delivered)
            self._checkpoints.grew(frame.size_bytes)
            return None
        if self._checker.number_plain_deltas(frame) and frame.response is not None:
            self._note(frame.response.results)
            await self._show(frame.response, has_text=True, through=self._checker.delivered)
            self._checkpoints.grew(frame.size_bytes)
            return None
        checked = self._checker.check(frame)
        shown = [each for each in checked.numbered if each.kind not in TERMINAL]
        if shown:
            await self._pass_on_mixed(shown)
            self._checkpoints.grew(frame.size_bytes)
        if checked.fault is not None:
            raise checked.fault
        return next((each for each in checked.numbered if each.kind in TERMINAL), None)

    def hear_late(self, frame: Frame) -> None:
        """Take note of a frame that came after the terminal result."""
        self._checker.check(frame)

    async def _pass_on_mixed(self, numbered: list[Numbered]) -> None:
        ready: list[Numbered] = []
        for each in numbered:
            if needs_settling(each.result, each.kind):
                # What came before is shown at once; what comes after keeps its place.
                await self._pass_on_ready(ready)
                ready = []
                if not await self._settled.settle(each.result):
                    continue
            ready.append(each)
        await self._pass_on_ready(ready)

    async def _pass_on_ready(self, numbered: list[Numbered]) -> None:
        if not numbered:
            return
        durable = []
        for each in numbered:
            if each.kind == "message_delta":
                self._note((each.result,))
            else:
                durable.append(each)
                self._keep(each)
        response = run_pb2.RunResponse(results=[each.result for each in numbered])
        await self._show(
            response,
            has_text=len(durable) < len(numbered),
            through=numbered[-1].result.sequence,
        )

    @property
    def _settled(self) -> RunArtifacts:
        # Results come of a runner, which is called once the rights are frozen.
        assert self._artifacts is not None  # noqa: S101
        return self._artifacts

    def _keep(self, numbered: Numbered) -> None:
        """Hand a durable result, and what it leaves beside itself, to the journal."""
        result, kind = numbered.result, numbered.kind
        if kind == "state_updated":
            self._update_state(result.state_updated)
        projection = self._projector.project(result, kind)
        record = result_record(numbered, self._services.clock())
        self.uncommitted.append(result)
        facts = RunFacts(
            run_id=self._run_id,
            results=(record,),
            items=(projection.item,) if projection.item else (),
            entries=log_entries((record,)),
            dropped_checkpoints=(
                (projection.closed_message_id,) if projection.closed_message_id else ()
            ),
            usage=self._projector.usage,
            warnings=self._take_warnings(),
        )
        _ = self._record(facts)
        if kind == "action_requested" and self._actions is not None:
            # Behind the entry of the event log that says that it was asked for.
            self._actions.take(result.action_requested)

    def _update_state(self, update: result_pb2.StateUpdated) -> None:
        """Hand state to the journal, ahead of the result that told it; nobody waits for either."""
        # Results come of a runner, which is called once the rights are frozen.
        assert self.state is not None  # noqa: S101
        try:
            self.state.update(update).add_done_callback(self.saved)
        except UpdateRefused as refusal:
            self.warn("state_refused", f"state {update.key[:64]!r} was not stored: {refusal}")

    def _note(self, deltas: Iterable[result_pb2.RunResult]) -> None:
        """Keep deltas for the messages that they make, up to the most that is kept."""
        self.progress.note(deltas)
        self._check_progress()

    def _check_progress(self) -> None:
        if self.progress.fault is not None:
            raise ProtocolFault(self.progress.fault)
        size, limit = self.progress.size, self._limits.message_characters
        if size > limit:
            raise ProtocolFault(
                f"messages in progress have {size} characters and more; the limit is {limit}"
            )

    async def _show(self, response: run_pb2.RunResponse, *, has_text: bool, through: int) -> None:
        self.delivered = through
        if has_text:
            if self.first_delta_at is None:
                self.first_delta_at = self._services.clock()
            if not self._shows_deltas:
                kept = [each for each in response.results if not each.HasField("message_delta")]
                if not kept:
                    return
                response = run_pb2.RunResponse(results=kept)
        if self.delivered > self._reserved - self._limits.reserved_numbers // 2:
            await self._reserve()
        if self.log.has_readers:
            # On the wire this is the ResultBatch that readers get.
            await self.log.deliver(Batch(response.SerializeToString(), self.delivered))

    async def _reserve(self) -> None:
        """Reserve more numbers ahead; wait only where those reserved before are used up."""
        must_wait = self.delivered > self._reserved
        self._reserved = self.delivered + self._limits.reserved_numbers
        saved = self._record(RunFacts(run_id=self._run_id, reserved_sequence=self._reserved))
        if must_wait:
            await asyncio.shield(saved)

    def _record(self, facts: RunFacts) -> asyncio.Future[None]:
        saved = self._services.ledger.record(
            replace(facts, host_incarnation=self._services.host_incarnation)
        )
        count = len(facts.results)

        def done(future: asyncio.Future[None]) -> None:
            for _ in range(count):
                self.uncommitted.popleft()
            self.saved(future)

        saved.add_done_callback(done)
        return saved

    def saved(
        self, future: asyncio.Future[None] | asyncio.Future[bool] | asyncio.Future[StateEntry]
    ) -> None:
        """Look at what became of a write."""
        error = None if future.cancelled() else future.exception()
        if error is not None:
            _log.error("run %s: its facts could not be stored: %s", self._run_id, error)
            self._on_lost()

    def _take_warnings(self) -> tuple[RunWarning, ...]:
        taken, self._unsaved_warnings = tuple(self._unsaved_warnings), []
        return taken

    def has_spoken(self, completed: result_pb2.RunCompleted) -> bool:
        """Return whether a run that ends so has said anything."""
        return (
            self._projector.said_something
            or says_something(completed.message)
            or any(each.has_content for each in self.progress.messages())
        )

    async def settle_last(self, outcome: Outcome) -> Outcome:
        """Store the files in messages that the end completes.

        A run that did not end well waits for no slow store: what it said stays as it was shown.

        Returns:
            The outcome, or a failure in the place of a good one where a file could not be stored.
        """
        artifacts, completed = self._artifacts, outcome.completed
        if artifacts is None:
            return outcome
        patience = None if completed is not None else _LAST_FILES_SECONDS
        try:
            async with asyncio.timeout(patience):
                if completed is not None and has_artifacts(completed.message):
                    await artifacts.settle_message(completed.message)
                for message in self.progress.messages():
                    if message.parts:
                        await artifacts.settle_parts(message.parts)
        except RunFault as fault:
            return fault.outcome() if completed is not None else outcome
        except TimeoutError:
            return outcome
        return outcome

    def last_words(self, outcome: Outcome, *, course: str | None = None) -> LastWords:
        """Return the end of the run, with every message that is still to be completed.

        Args:
            outcome: How it ended.
            course: How it went, as the ledger keeps it.
        """
        self._checkpoints.close()
        now = self._services.clock()
        completed = outcome.completed
        if completed is not None and completed.usage:
            self._projector.note_usage(completed.usage, replace=True)
        last = [
            Numbered(result, "message_completed", 0)
            for result in self._projector.last_messages(completed)
        ]
        projections = [self._projector.project(each.result, each.kind) for each in last]
        terminal = outcome.terminal(self._run_id)
        kind = "run_completed" if completed is not None else "run_failed"
        last.append(Numbered(terminal, kind, outcome.runner_sequence))
        for each in last:
            self._checker.number(each.result)
            each.result.timestamp.FromDatetime(now)
        records = tuple(result_record(each, now) for each in last)
        incarnation = self._services.host_incarnation
        end = RunEnd(
            run_id=self._run_id,
            status=outcome.status,
            ended_at=now,
            last_sequence=self._checker.delivered,
            failure=outcome.failure,
            usage=self._projector.usage,
            warnings=self._take_warnings(),
            host_incarnation=incarnation,
        )
        facts = RunFacts(
            run_id=self._run_id,
            host_incarnation=incarnation,
            results=records,
            items=tuple(each.item for each in projections if each.item is not None),
            entries=log_entries(records),
            first_delta_at=self.first_delta_at,
            reserved_sequence=self._checker.delivered,
            course=course,
        )
        response = run_pb2.RunResponse(results=[each.result for each in last])
        return LastWords(end, facts, Batch(response.SerializeToString(), self._checker.delivered))

    def show_last(self, words: LastWords) -> None:
        """Show the end, which is committed, without waiting for readers to have room."""
        self.delivered = words.end.last_sequence
        self.log.deliver_last(words.batch)
