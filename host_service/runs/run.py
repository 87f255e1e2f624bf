"""One active run, from its acceptance to its end.

A run is a task of its own: whoever asked for it may go away, and it goes on. What flows where::

    execute ── its turn? an instance? ── rights frozen ── runner called ──> relay ──> Delivery
       |                                                                      |
       └── the end is committed, then shown  <──────── Outcome ───────────────┘
    stop(reason): from a caller, a timer, shutdown; the runner is interrupted where it can be, else
    its call is cancelled; the end is written all the same
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from host_service.agents.agent import Agent
from host_service.authorization.snapshot import left_out
from host_service.errors import Unavailable
from host_service.registry.instance import Instance
from host_service.registry.run_stream import RunnerFault, RunStream
from host_service.runs.admission import Place
from host_service.runs.checker import ProtocolFault
from host_service.runs.context import place_in_history
from host_service.runs.delivery import Delivery, LastWords
from host_service.runs.event import Event
from host_service.runs.log import ResultLog
from host_service.runs.outcome import Outcome, RunFault, Stop, ended_by_runner, stopped
from host_service.runs.request import PreparedCall, prepare_call
from host_service.runs.services import RunServices
from stores.errors import StoreError
from stores.records import Acceptance, RunRecord, RunStatus

_log = logging.getLogger("runmesh.runs")

# A runner that keeps the contract ends its stream with its terminal result. One that does not is
# listened to for this long, so that what it sends too late can be warned of.
_LATE_SECONDS = 0.1


class ActiveRun:
    """A run that has not ended.

    Args:
        record: As it is handed to the ledger.
        event: What it answers.
        agent: The agent as it was when the event was accepted.
        place: Its place among the runs of this host.
        services: What every run works with.

    Attributes:
        delivery: Its results.
        ended: Done when its end is committed.
    """

    def __init__(
        self, *, record: RunRecord, event: Event, agent: Agent, place: Place, services: RunServices
    ) -> None:
        self.event = event
        self.agent = agent
        self.place = place
        self.delivery = Delivery(
            run_id=record.run_id,
            runner_id=record.runner_id,
            event=event,
            shows_deltas=agent.streaming,
            reserved=record.reserved_sequence,
            services=services,
            on_lost=lambda: self.stop(Stop.STORE),
        )
        self.ended: asyncio.Future[RunRecord] = asyncio.get_running_loop().create_future()
        self._record = record
        self._services = services
        self._limits = services.limits
        self._committed: asyncio.Future[Acceptance] | None = None
        self._work: asyncio.Task[Outcome] | None = None
        self._stream: RunStream | None = None
        self._stop: Stop | None = None
        self._stop_text = ""
        self._interrupting: asyncio.Task[None] | None = None
        self._was_called = False
        self._leaves_waiting = False
        self._token = ""
        self._begun: Instance | None = None
        self._prepared: PreparedCall | RunFault | None = None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._record.run_id

    @property
    def accepted(self) -> RunRecord:
        """The run as it is handed to the ledger."""
        return self._record

    @property
    def log(self) -> ResultLog:
        """Where its results can be read."""
        return self.delivery.log

    @property
    def is_waiting(self) -> bool:
        """Whether its runner has not been called."""
        return not self._was_called

    def view(self) -> RunRecord:
        """Return the run as it is now, with what the ledger learns only later."""
        if self.ended.done():
            return self._record
        return replace(
            self._record,
            last_sequence=self.delivery.delivered,
            first_delta_at=self.delivery.first_delta_at,
            usage=self.delivery.usage,
            warnings=self.delivery.warnings,
        )

    def stop(self, reason: Stop, text: str = "") -> None:
        """End the run from outside; the first reason holds. The run itself writes its end."""
        if self._stop is not None or self.ended.done():
            return
        self._stop, self._stop_text = reason, text
        if self._stream is not None and reason is not Stop.DEADLINE and self._can_interrupt():
            self._interrupting = asyncio.create_task(self._interrupt(self._stream, reason))
        else:
            self._cancel_work()

    def begin(self) -> None:
        """Take an instance at once where there is one, so that it is accepted as running already.

        One transaction then stores both, and a runner that may have been called before the
        acceptance was durable is never called again for it.
        """
        if not self.place.is_active:
            return
        instance = self._services.registry.pick(self._record.runner_id)
        if instance is None:
            return
        instance.acquire()
        self._begun = instance
        # In the ledger it does not wait any more: no other host would take it up.
        self._was_called = True
        now = self._services.clock()
        timeout = self.agent.timeout_seconds
        self._record = replace(
            self._record,
            status=RunStatus.RUNNING,
            started_at=now,
            deadline=now + timedelta(seconds=timeout) if timeout else None,
            instance_id=instance.instance_id,
        )

    def prepare(self) -> None:
        """Build what its runner is called with, while the acceptance is being written."""
        if self._begun is not None:
            try:
                self._prepared = self._prepare_call(self._begun)
            except RunFault as fault:
                self._prepared = fault

    def abandon(self) -> None:
        """Give back what was taken for a run that is not accepted."""
        self._give_back_begun()
        self.place.leave()

    def _give_back_begun(self) -> None:
        """Give back an instance that was taken at once and never called, and end its token."""
        instance, self._begun = self._begun, None
        if instance is not None:
            if isinstance(self._prepared, PreparedCall):
                self._token = self._prepared.run_token
            self._let_go(instance)

    def leave_waiting(self) -> None:
        """Stop waiting, with nothing written: the run stays accepted, for the next host."""
        self._leaves_waiting = True
        self._cancel_work()

    async def execute(self, committed: asyncio.Future[Acceptance], prepared: Acceptance) -> None:
        """Carry the run out and write its end; whatever happens is the outcome of the run.

        Args:
            committed: Done when the run's acceptance is durable. Nothing is shown before.
            prepared: What the acceptance will be.
        """
        self._committed = committed
        self._record = prepared.run
        try:
            with self._services.telemetry.run_span(self._record):
                await self._execute()
        except Exception as error:  # noqa: BLE001 - nobody may wait for an end that never comes
            _log.exception("the end of run %s could not be written", self.run_id)
            self.log.fail(Unavailable("the end of the run could not be stored; ask again later"))
            self.ended.set_exception(error)
            self.ended.exception()
        finally:
            self.place.leave()

    async def _execute(self) -> None:
        if self._stop is None and not self._leaves_waiting:
            self._work = asyncio.create_task(self._carry_out())
            outcome = await self._await_work(self._work)
        else:
            outcome = self._stopped_outcome()
        # Stopped before its call was made: what was taken for it must not stay taken.
        self._give_back_begun()
        if self._leaves_waiting and self.is_waiting:
            self.log.fail(
                Unavailable("the host is shutting down; the run starts when a host is back")
            )
            self.ended.cancel()
        else:
            await self._end(outcome)

    async def _await_work(self, work: asyncio.Task[Outcome]) -> Outcome:
        try:
            outcome = await work
        except asyncio.CancelledError:
            if self._stop is None:
                self._stop = Stop.SHUTDOWN
            outcome = self._stopped_outcome()
        except RunFault as fault:
            outcome = fault.outcome()
        except Exception:  # noqa: BLE001 - whatever it is, it is the end of this run alone
            _log.exception("run %s failed inside the host", self.run_id)
            outcome = RunFault("runner.error", "the host could not carry the run out").outcome()
        if self._stop is not None and outcome.status is not RunStatus.CANCELLED:
            # An interrupted run may still end in words of its own; it ends as what it was stopped
            # for all the same.
            outcome = self._stopped_outcome()
        return self._judge(outcome)

    def _stopped_outcome(self) -> Outcome:
        return stopped(
            self._stop or Stop.SHUTDOWN,
            said=self._stop_text,
            timeout_seconds=self.agent.timeout_seconds,
        )

    def _judge(self, outcome: Outcome) -> Outcome:
        """Turn a good end that may not be one into a failure."""
        completed = outcome.completed
        if completed is None:
            return outcome
        has_spoken = self.delivery.has_spoken(completed)
        fault = self.delivery.progress.fault
        if fault is not None:
            return RunFault("runner.protocol", fault).outcome()
        may_be_silent = self.event.type != "message.received" or completed.finish_reason == "silent"
        if has_spoken or may_be_silent:
            return outcome
        return RunFault(
            "runner.empty_output", "the run ended well without saying anything"
        ).outcome()

    async def _carry_out(self) -> Outcome:
        if not self.place.is_active:
            self._advance(RunStatus.QUEUED, at=self._services.clock())
            await self.place.turn()
        tried: set[Instance] = set()
        while True:
            instance, self._begun = self._begun, None
            if instance is None:
                instance = await self._find_instance(tried)
                instance.acquire()
            self._was_called = True
            try:
                return await self._call(instance)
            except RunnerFault as fault:
                if not fault.never_started:
                    raise RunFault(fault.code, fault.message, retryable=fault.retryable) from fault
                tried.add(instance)
            finally:
                self._let_go(instance)

    async def _find_instance(self, tried: set[Instance]) -> Instance:
        registry, runner_id = self._services.registry, self._record.runner_id
        instance = registry.pick(runner_id, exclude=tried)
        if instance is None:
            if self._record.status is RunStatus.ACCEPTED:
                self._advance(RunStatus.QUEUED, at=self._services.clock())
            instance = await registry.wait_for(
                runner_id, timeout_seconds=self._limits.instance_wait_seconds, exclude=tried
            )
        if instance is None:
            raise RunFault(
                "runner.unavailable",
                f"no instance serves {runner_id}{self._why_none()}",
                retryable=True,
            )
        return instance

    def _why_none(self) -> str:
        problems = {
            each.problem
            for each in self._services.registry.instances()
            if each.plugin_id == self.agent.plugin_id and each.problem
        }
        if problems:
            return f": {'; '.join(sorted(problems))}"
        return "; `runmesh runners list` shows which there are"

    async def _call(self, instance: Instance) -> Outcome:
        call, self._prepared = self._prepared, None
        if isinstance(call, RunFault):
            raise call
        begun = call is not None
        if call is None:
            call = self._prepare_call(instance)
        self._token = call.run_token
        place_in_history(call.request.context, self.event, self._record.latest_cursor_position)
        if call.left_out:
            self.delivery.warn(
                "input_left_out",
                f"the runner takes text only: {call.left_out} images or files were left out",
            )
        for lost in left_out(call.snapshot.trace):
            self.delivery.warn(
                "resource_left_out",
                f"{lost.kind.replace('_', ' ')} {lost.name!r}, which {lost.granted_by} names, "
                "is not there any more or disabled: the run goes without it",
            )
        if not begun:
            self._advance(
                RunStatus.RUNNING,
                at=call.started_at,
                deadline=call.deadline,
                instance_id=instance.instance_id,
            )
        stream = self._stream = RunStream(
            instance=instance,
            request=call.request,
            timeout_seconds=self.agent.timeout_seconds or None,
            metadata=self._services.telemetry.outgoing(),
        )
        try:
            with self._deadline():
                return await self._relay(stream)
        except ProtocolFault as fault:
            raise RunFault("runner.protocol", str(fault)) from fault
        finally:
            stream.cancel()

    def _prepare_call(self, instance: Instance) -> PreparedCall:
        return prepare_call(
            record=self._record,
            event=self.event,
            agent=self.agent,
            instance=instance,
            services=self._services,
        )

    @contextlib.contextmanager
    def _deadline(self) -> Iterator[None]:
        """Stop the run when its time is up, by the host's own clock."""
        if not self.agent.timeout_seconds:
            yield
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self.agent.timeout_seconds, self.stop, Stop.DEADLINE)
        try:
            yield
        finally:
            timer.cancel()

    async def _relay(self, stream: RunStream) -> Outcome:
        while (frame := await stream.read()) is not None:
            if self._committed is not None:
                await self._wait_committed(self._committed)
            terminal = await self.delivery.pass_on(frame)
            if terminal is not None:
                await self._listen_on(stream)
                return ended_by_runner(terminal.result, terminal.runner_sequence)
        raise RunFault(
            "runner.protocol", "the runner's stream ended without run_completed or run_failed"
        )

    async def _wait_committed(self, committed: asyncio.Future[Acceptance]) -> None:
        """Show nothing of a run that is not durable."""
        try:
            await asyncio.shield(committed)
        except StoreError as error:
            raise RunFault(
                "host.unavailable", "the run could not be stored", retryable=True
            ) from error
        self._committed = None

    async def _listen_on(self, stream: RunStream) -> None:
        """Read to the end of the stream, so that what comes after the terminal result is known."""
        # An end that is not a clean one changes nothing: the runner has had its last word.
        with contextlib.suppress(RunnerFault, TimeoutError):
            async with asyncio.timeout(_LATE_SECONDS):
                while (frame := await stream.read()) is not None:
                    self.delivery.hear_late(frame)

    def _advance(
        self,
        status: RunStatus,
        *,
        at: datetime,
        deadline: datetime | None = None,
        instance_id: str | None = None,
    ) -> None:
        record = self._record
        self._record = replace(
            record,
            status=status,
            queued_at=at if status is RunStatus.QUEUED else record.queued_at,
            started_at=at if status is RunStatus.RUNNING else record.started_at,
            deadline=deadline or record.deadline,
            instance_id=instance_id or record.instance_id,
        )
        saved = self._services.ledger.advance(
            self.run_id,
            status,
            at=at,
            instance_id=instance_id,
            deadline=deadline,
            host_incarnation=self._services.host_incarnation,
        )
        saved.add_done_callback(self.delivery.saved)

    def _can_interrupt(self) -> bool:
        manifest = self._services.registry.manifest(self._record.runner_id)
        return manifest is not None and manifest.capabilities.interrupt

    async def _interrupt(self, stream: RunStream, reason: Stop) -> None:
        """Let the runner stop by itself within the grace; then cancel the call."""
        grace, work = self._limits.interrupt_grace_seconds, self._work
        asked = asyncio.create_task(
            stream.interrupt(run_id=self.run_id, reason=reason, grace_seconds=grace)
        )
        try:
            if work is not None:
                await asyncio.wait(
                    {work, asked}, timeout=grace, return_when=asyncio.FIRST_COMPLETED
                )
                # A runner has stopped when its stream has ended, which follows its answer at once.
                await asyncio.wait({work}, timeout=_LATE_SECONDS)
        finally:
            asked.cancel()
            self._cancel_work()

    def _cancel_work(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def _let_go(self, instance: Instance) -> None:
        self._services.tokens.revoke(self._token, too_late=self._stop is Stop.DEADLINE)
        instance.release()
        self._stream = None

    async def _end(self, outcome: Outcome) -> None:
        """Commit the end with everything that was still to be said, then show it."""
        if self._interrupting is not None:
            self._interrupting.cancel()
        words = self.delivery.last_words(outcome)
        if self._committed is not None:
            await asyncio.shield(self._committed)
        if await self._services.ledger.finish(words.end, words.facts):
            self._show_end(words)
        else:
            # Another host took the run for lost and has written its end.
            self._record = await self._services.ledger.get(self.run_id) or self._record
        self.log.end(self._record)
        self.ended.set_result(self._record)

    def _show_end(self, words: LastWords) -> None:
        end = words.end
        self._record = replace(
            self.view(),
            status=end.status,
            ended_at=end.ended_at,
            failure=end.failure,
            last_sequence=end.last_sequence,
        )
        # The readers' patience does not hold up the end: it is in the ledger, and they are told of
        # it in any case.
        self.delivery.show_last(words)
