"""One active run, from its acceptance to its end.

A run is a task of its own: whoever asked for it may go away, and it goes on. What flows where::

    execute ── its fate, if it was handed to another run
       |    ── its turn? an instance? ── rights frozen ── runner called ──> relay ──> Delivery
       |                                                                      |
       └── the end is committed, then shown  <──────── Outcome ───────────────┘
    stop(reason): from a caller, a timer, a later message, shutdown; the runner is interrupted where
    it can be, else its call is cancelled; the end is written all the same
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from host_service.agents.agent import Agent
from host_service.agents.follow_up import FollowUp
from host_service.agents.kept import Restored
from host_service.authorization.snapshot import GivenFile, left_out
from host_service.errors import Unavailable
from host_service.registry.instance import Instance
from host_service.registry.run_stream import RunnerFault
from host_service.runs.admission import Place
from host_service.runs.call import RunnerCall
from host_service.runs.context import duration, place_in_history
from host_service.runs.course import Course
from host_service.runs.course_keeping import CourseKeeper
from host_service.runs.deadline import Deadline
from host_service.runs.delivery import Delivery
from host_service.runs.event import Event
from host_service.runs.log import ResultLog
from host_service.runs.outcome import Outcome, RunFault, Stop, stopped, taken_up
from host_service.runs.request import PreparedCall, find_files, prepare_call, selected_files
from host_service.runs.services import RunServices
from host_service.runs.sessions import Turn
from host_service.runs.standing import Standing
from host_service.runs.steering import SteeredItem, SteeringBox
from host_service.runs.waiting import Waiting
from stores.errors import StoreError
from stores.records import Acceptance, RunRecord, RunStatus

_log = logging.getLogger("runmesh.runs")


class ActiveRun:
    """A run that has not ended.

    Args:
        record: As it is handed to the ledger.
        event: What it answers.
        agent: The agent as it was when the event was accepted.
        turn: Its turn in its session.
        place: Its place among the runs of this host.
        services: What every run works with.
        follow_up: How it treats those of its session that came before it.
        resolution: How it came to its agent, as the ledger keeps it.

    Attributes:
        delivery: Its results.
        ended: Done when its end is committed.
        steered: What another run may take up of it; None if it is to be handed to none.
        handed_to: The run that it was handed to, which answers it.
    """

    def __init__(
        self,
        *,
        record: RunRecord,
        event: Event,
        agent: Agent,
        turn: Turn,
        place: Place,
        services: RunServices,
        follow_up: FollowUp = FollowUp.QUEUE,
        resolution: str | None = None,
    ) -> None:
        self.event = event
        self.agent = agent
        self.turn = turn
        self.follow_up = follow_up
        self.resolution = resolution
        self.delivery = Delivery(
            run_id=record.run_id,
            runner_id=record.runner_id,
            # What belongs to no conversation is not written into one.
            event=event if services.side_effects else replace(event, conversation_key=""),
            shows_deltas=agent.streaming,
            reserved=record.reserved_sequence,
            services=services,
            on_lost=lambda: self.stop(Stop.STORE),
        )
        self.ended: asyncio.Future[RunRecord] = asyncio.get_running_loop().create_future()
        self.steered = (
            SteeredItem(record.run_id, event, self.ended) if record.steered_into else None
        )
        self.handed_to: ActiveRun | None = None
        self._standing = Standing(record, delivery=self.delivery, services=services)
        self._keeper = CourseKeeper(record.run_id, delivery=self.delivery, services=services)
        self._waiting = Waiting(
            agent=agent,
            session_key=record.session_key,
            turn=turn,
            place=place,
            services=services,
        )
        self._services = services
        self._committed: asyncio.Future[Acceptance] | None = None
        self._work: asyncio.Task[Outcome] | None = None
        self._call: RunnerCall | None = None
        self._stop: Stop | None = None
        self._stop_text = ""
        self._interrupting: asyncio.Task[None] | None = None
        self._was_called = False
        self._leaves_waiting = False
        self._token = ""
        self._begun: Instance | None = None
        self._prepared: PreparedCall | RunFault | None = None
        self._deadline = Deadline(agent.timeout_seconds)
        self._missing_secrets: tuple[str, ...] = ()
        self._box: SteeringBox | None = None
        self._is_closed = False

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._standing.record.run_id

    @property
    def accepted(self) -> RunRecord:
        """The run as it is handed to the ledger."""
        return self._standing.record

    @property
    def log(self) -> ResultLog:
        """Where its results can be read."""
        return self.delivery.log

    @property
    def is_waiting(self) -> bool:
        """Whether its runner has not been called."""
        return not self._was_called

    @property
    def steering(self) -> SteeringBox:
        """What later events bring it while it is under way."""
        if self._box is None:
            self._box = SteeringBox(warn=self.delivery.warn)
            if self._is_closed:
                self._box.close()
        return self._box

    def view(self) -> RunRecord:
        """Return the run as it is now, with what the ledger learns only later."""
        return self._standing.record if self.ended.done() else self._standing.view()

    @property
    def course(self) -> Course:
        """When what happened to it, and what it was granted."""
        return self._keeper.course

    def stop(self, reason: Stop, text: str = "") -> None:
        """End the run from outside; the first reason holds. The run itself writes its end."""
        if self._stop is not None or self.ended.done() or self._is_taken_up:
            return
        self._stop, self._stop_text = reason, text
        call, work = self._call, self._work
        if call and work and reason is not Stop.DEADLINE and self._can_interrupt():
            self._interrupting = asyncio.create_task(call.interrupt(reason, work))
        else:
            self._cancel_work()

    def begin(self) -> None:
        """Take an instance at once where there is one, so that it is accepted as running already.

        One transaction then stores both, and a runner that may have been called before the
        acceptance was durable is never called again for it.

        Raises:
            Overloaded: It must wait for an instance, and as many runs wait as may.
        """
        if self.steered is not None:
            return
        instance = self._waiting.take_at_once()
        if instance is None:
            return
        self._begun = instance
        # In the ledger it does not wait any more: no other host would take it up.
        self._was_called = True
        self._deadline.start()
        now = self.course.instance_at = self._services.clock()
        self._standing.begin(
            at=now,
            timeout_seconds=self.agent.timeout_seconds,
            instance_id=instance.instance_id,
        )

    def tell_of_secrets(self, restored: Restored) -> None:
        """Take note of what became of values that the run did not keep itself."""
        self._missing_secrets = restored.missing
        if restored.newer is not None:
            self.delivery.warn(
                "secrets_of_another_revision",
                f"values of secret fields are those of the agent's revision {restored.newer}, the "
                f"rest of it is as it was at revision {restored.agent.revision}",
            )

    def prepare(self) -> None:
        """Build what its runner is called with, while the acceptance is being written."""
        if self._begun is not None:
            try:
                # Files are looked for in the store, which is not waited for here.
                if not selected_files(self.agent, self._services):
                    self._prepared = self._prepare_call(self._begun)
            except RunFault as fault:
                self._prepared = fault

    def abandon(self) -> None:
        """Give back what was taken for a run that is not accepted."""
        self._give_back_begun()
        self._close()

    def _give_back_begun(self) -> None:
        """Give back an instance that was taken at once and never called, and end its token."""
        instance, self._begun = self._begun, None
        if instance is not None:
            if isinstance(self._prepared, PreparedCall):
                self._token = self._prepared.run_token
                self._prepared.state.stop_reading()
            self._let_go(instance)

    def leave_waiting(self) -> None:
        """Stop waiting, with nothing written: the run stays accepted, for the next host.

        What another run may still take up leaves when that run has ended.
        """
        if self._standing.record.replay_of is not None:
            # Whoever wanted it is gone with this host.
            self.stop(Stop.SHUTDOWN)
            return
        self._leaves_waiting = True
        if self.steered is None or self.steered.fate.done():
            self._cancel_work()

    async def execute(self, committed: asyncio.Future[Acceptance], prepared: Acceptance) -> None:
        """Carry the run out and write its end; whatever happens is the outcome of the run.

        Args:
            committed: Done when the run's acceptance is durable. Nothing is shown before.
            prepared: What the acceptance will be.
        """
        self._committed = committed
        self._standing.record = prepared.run
        try:
            with self._services.telemetry.run_span(self._standing.record):
                await self._execute()
        except Exception as error:  # noqa: BLE001 - nobody may wait for an end that never comes
            _log.exception("the end of run %s could not be written", self.run_id)
            self.log.fail(Unavailable("the end of the run could not be stored; ask again later"))
            self.ended.set_exception(error)
            self.ended.exception()
        finally:
            self._close()

    def _close(self) -> None:
        """Give up all that the run holds; what it was handed and did not take up goes by itself."""
        self._is_closed = True
        self._deadline.stop_watching()
        self._keeper.stop()
        if self._box is not None:
            self._box.close()
        if self.steered is not None:
            self.steered.withdraw()
        self._waiting.leave()

    async def _execute(self) -> None:
        if self._stop is None and not self._leaves_waiting:
            self._work = asyncio.create_task(self._carry_out())
            outcome = await self._await_work(self._work)
        else:
            outcome = self._stopped_outcome()
        # Stopped before its call was made: what was taken for it must not stay taken.
        self._give_back_begun()
        if self._leaves_waiting and self.is_waiting and not self._is_taken_up:
            self.log.fail(
                Unavailable("the host is shutting down; the run starts when a host is back")
            )
            self.ended.cancel()
        else:
            await self._end(outcome)

    @property
    def _is_taken_up(self) -> bool:
        fate = self.steered.fate if self.steered is not None else None
        return fate is not None and fate.done() and not fate.cancelled() and fate.result()

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
        if self._stop is Stop.DEADLINE or (
            self._stop is not None and outcome.status is not RunStatus.CANCELLED
        ):
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
        if completed is None or self._is_taken_up:
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
        if self.steered is not None:
            if await self.steered.fate:
                return taken_up()
            self._standing.go_alone()
            if self._leaves_waiting:
                return self._stopped_outcome()
        again = False
        while True:
            instance = await self._take_instance()
            try:
                return await self._call_runner(instance, again=again)
            except RunnerFault as fault:
                if not fault.never_started:
                    raise RunFault(fault.code, fault.message, retryable=fault.retryable) from fault
                refusal = fault
            finally:
                self._let_go(instance)
            await self._waiting.refused(instance, refusal)
            again = True

    async def _take_instance(self) -> Instance:
        instance, self._begun = self._begun, None
        if instance is None:
            self._standing.queue()
            instance = await self._waiting.take()
            self.course.turn_at = self._waiting.turn_at
            self.course.instance_at = self._services.clock()
        self._was_called = True
        return instance

    async def _call_runner(self, instance: Instance, *, again: bool) -> Outcome:
        prepared, self._prepared = self._prepared, None
        if isinstance(prepared, RunFault):
            raise prepared
        if prepared is None:
            files = await find_files(self.agent, self._services)
            prepared = self._prepare_call(instance, files)
        self._token = prepared.run_token
        if self._committed is not None:
            self._services.tokens.hold(self._token, self._committed)
        self._keeper.note_grants(prepared.snapshot.trace)
        record = self._standing.record
        place_in_history(prepared.request.context, self.event, record.latest_cursor_position)
        self._warn_of_what_is_left_out(prepared)
        if record.status is not RunStatus.RUNNING:
            self._deadline.start()
            self._standing.run(
                at=prepared.started_at,
                deadline=prepared.deadline,
                instance_id=instance.instance_id,
            )
        self._deadline.watch(lambda: self.stop(Stop.DEADLINE))
        timeout_seconds: float | None = self.agent.timeout_seconds or None
        if again and timeout_seconds:
            # A second instance gets what the first one's refusal left.
            timeout_seconds = self._deadline.left()
            prepared.request.timeout.CopyFrom(duration(timeout_seconds or 0))
        self.delivery.state = prepared.state
        self.delivery.hold_to(prepared.snapshot)
        await self._fill_state(prepared)
        self._call = RunnerCall(
            instance=instance,
            prepared=prepared,
            timeout_seconds=timeout_seconds,
            delivery=self.delivery,
            services=self._services,
            on_first_word=self._keeper.note_first_word,
            on_last_word=self._hear_last_word,
        )
        return await self._call.relay(self._committed)

    def _hear_last_word(self) -> None:
        self._deadline.stop_watching()
        self._keeper.note_last_word()

    async def _fill_state(self, prepared: PreparedCall) -> None:
        try:
            await prepared.state.fill(prepared.request.context)
        except StoreError as error:
            raise RunFault(
                "host.unavailable", "the run's state could not be read", retryable=True
            ) from error

    def _warn_of_what_is_left_out(self, call: PreparedCall) -> None:
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

    def _prepare_call(self, instance: Instance, files: tuple[GivenFile, ...] = ()) -> PreparedCall:
        if self._missing_secrets:
            raise RunFault(
                "host.configuration",
                f"the values of secret fields are gone with agent {self.agent.id!r}: "
                f"{', '.join(self._missing_secrets)}",
            )
        return prepare_call(
            record=self._standing.record,
            event=self.event,
            agent=self.agent,
            instance=instance,
            services=self._services,
            files=files,
        )

    def _can_interrupt(self) -> bool:
        manifest = self._services.registry.manifest(self._standing.record.runner_id)
        return manifest is not None and manifest.capabilities.interrupt

    def _cancel_work(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def _let_go(self, instance: Instance) -> None:
        self._services.tokens.revoke(self._token, too_late=self._stop is Stop.DEADLINE)
        if self._call is not None:
            self._call.close()
            self._call = None
        instance.release()

    async def _end(self, outcome: Outcome) -> None:
        """Commit the end with everything that was still to be said, then show it."""
        if self._interrupting is not None:
            self._interrupting.cancel()
        outcome = await self.delivery.settle_last(outcome)
        words = self.delivery.last_words(outcome, course=self._keeper.at_end())
        if self._committed is not None:
            await asyncio.shield(self._committed)
        if await self._services.ledger.finish(words.end, words.facts):
            self._standing.end(words.end, is_taken_up=self._is_taken_up)
            # The readers' patience does not hold up the end: it is in the ledger, and they are told
            # of it in any case.
            self.delivery.show_last(words)
            self._keeper.note_stored()
        else:
            # Another host took the run for lost and has written its end.
            stored = await self._services.ledger.get(self.run_id)
            self._standing.record = stored or self._standing.record
        self.log.end(self._standing.record)
        self.ended.set_result(self._standing.record)
