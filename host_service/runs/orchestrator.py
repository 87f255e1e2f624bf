"""The one entry: every run starts here, whatever brought its event.

What flows where::

    event ── known? ── Entry: agent, session, place, instance ── accepted in one transaction
                                                                     |
    caller <── durable <── told to those ahead: steer, interrupt <───┴── ActiveRun, its own task
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass

from host_service.agents.directory import AgentDirectory
from host_service.agents.follow_up import FollowUp
from host_service.agents.kept import Restored
from host_service.errors import NotFound, Unavailable
from host_service.runs.admission import Admission
from host_service.runs.entry import Entry
from host_service.runs.event import Event, already_exists
from host_service.runs.log import Reader
from host_service.runs.outcome import Stop
from host_service.runs.redelivery import Deliveries, Delivery
from host_service.runs.run import ActiveRun
from host_service.runs.services import RunServices
from host_service.runs.sessions import Sessions, Turn
from host_service.runs.steering import SteeringBox
from stores import Stores
from stores.errors import EventConflict, StoreError
from stores.records import Acceptance, EventRecord, RunRecord

_log = logging.getLogger("runmesh.runs")

#: Why a run ends whose caller wanted it to end with the connection.
CALLER_LEFT = "its caller went away"


@dataclass(frozen=True, slots=True)
class Started:
    """What became of an event.

    Attributes:
        run: The run that answers it: its own, as it was stored, or the active one that it was
            handed to.
        reader: Reads that run's results: of its own from the first on, of another from now on. None
            where none was asked for, or the run was there before.
        duplicate: Whether the event was a redelivery.
        own_run_id: Its own run: the one to end where the event is given up.
    """

    run: RunRecord
    reader: Reader | None
    duplicate: bool
    own_run_id: str


class Orchestrator:
    """Turns events into runs, and keeps the runs that are active on this host.

    Args:
        stores: Where everything is written.
        directory: Tells which agent answers.
        services: What runs work with.
        admission: How many runs may go at once.
    """

    def __init__(
        self,
        *,
        stores: Stores,
        directory: AgentDirectory,
        services: RunServices,
        admission: Admission,
    ) -> None:
        self._stores = stores
        self._admission = admission
        self._sessions = Sessions()
        self._deliveries = Deliveries(events=stores.events, ledger=stores.ledger)
        self._active: dict[str, ActiveRun] = {}
        self._entry = Entry(
            stores=stores,
            directory=directory,
            services=services,
            admission=admission,
            sessions=self._sessions,
            deliveries=self._deliveries,
            active=self._active,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False

    @property
    def active(self) -> Mapping[str, ActiveRun]:
        """The runs that have not ended, by id."""
        return self._active

    @property
    def admission(self) -> Admission:
        """How many runs go and wait."""
        return self._admission

    @property
    def readers(self) -> int:
        """How many callers and watchers read the active runs."""
        return sum(run.log.readers for run in self._active.values())

    @property
    def sessions(self) -> Sessions:
        """The sessions that have runs."""
        return self._sessions

    @property
    def deliveries(self) -> Deliveries:
        """The events that are being accepted."""
        return self._deliveries

    async def start(
        self,
        event: Event,
        *,
        agent_id: str = "",
        follow_up: str = "",
        with_reader: bool = False,
        ends_with_caller: bool = False,
    ) -> Started:
        """Accept an event and start its run.

        Args:
            event: The event.
            agent_id: Run this agent, whatever the bindings say; empty: the bindings decide.
            follow_up: What happens if its session is busy; empty: as the agent has it.
            with_reader: Also return a reader that misses nothing.
            ends_with_caller: Cancel the run if the caller goes away before it has its answer.

        Raises:
            NoBinding, BindingConflict, NotFound: No agent answers it; what matched nothing is
                logged without a run.
            InvalidArgument: The agent's runner cannot do what `follow_up` asks for.
            AlreadyExists: The same event was delivered with other content.
            Overloaded: It would have to wait, and as many runs wait as may.
            SessionBusy: Its session is busy, and it was not to wait.
            Unavailable: The host is shutting down, or the event could not be stored.
        """
        if self._draining:
            raise Unavailable("the host is shutting down", retry_after_seconds=1)
        stored = await self._deliveries.join(event)
        if stored is not None:
            return await self._answer_again(stored)
        delivery = self._deliveries.begin(event)
        try:
            run = await self._entry.admit(event, agent_id=agent_id, follow_up=follow_up)
        except BaseException:
            self._deliveries.end(delivery, None)
            raise
        if isinstance(run, RunRecord):
            self._deliveries.end(delivery, Acceptance(run, duplicate=True))
            return await self._answer_again(run)
        return await self._begin(
            run, delivery, with_reader=with_reader, ends_with_caller=ends_with_caller
        )

    async def _begin(
        self, run: ActiveRun, delivery: Delivery, *, with_reader: bool, ends_with_caller: bool
    ) -> Started:
        """Have a run accepted and carried out, and return once its acceptance is durable."""
        reader = run.log.subscribe(patient=True) if with_reader else None
        accepted: asyncio.Future[Acceptance] = asyncio.get_running_loop().create_future()
        self._spawn(self._accept_and_execute(run, delivery, accepted), run.run_id)
        try:
            # A caller that goes away now loses the answer, not the run.
            acceptance = await asyncio.shield(accepted)
        except BaseException as error:
            if reader is not None:
                reader.close()
            if ends_with_caller and isinstance(error, asyncio.CancelledError):
                run.stop(Stop.CANCELLED, CALLER_LEFT)
            raise
        if acceptance.duplicate:
            return await self._answer_again(acceptance.run)
        target = run.handed_to
        if target is None:
            return Started(acceptance.run, reader, duplicate=False, own_run_id=run.run_id)
        if reader is not None:
            reader.close()
            # A caller slows only what it asked for, and that run is another one's.
            reader = target.log.subscribe(patient=False, after=target.delivery.delivered)
        return Started(target.view(), reader, duplicate=False, own_run_id=run.run_id)

    def _target_of(self, run: ActiveRun) -> ActiveRun | None:
        return self._active.get(run.accepted.steered_into or "")

    async def _answer_again(self, stored: RunRecord) -> Started:
        """Answer a redelivery: with its run, or with the one that its event was handed to."""
        own = await self.get(stored.run_id) or stored
        answering = await self.get(own.steered_into) if own.steered_into else None
        return Started(answering or own, None, duplicate=True, own_run_id=own.run_id)

    async def _accept_and_execute(
        self, run: ActiveRun, delivery: Delivery, accepted: asyncio.Future[Acceptance]
    ) -> None:
        try:
            outcome, committed = await self._accept(run)
        except Exception as error:  # noqa: BLE001 - nobody may wait for an answer that never comes
            run.abandon()
            self._deliveries.end(delivery, None)
            accepted.set_exception(error)
            return
        if outcome.duplicate:
            run.abandon()
            self._deliveries.end(delivery, outcome)
            accepted.set_result(outcome)
            return
        self._active[run.run_id] = run
        run.turn.settle()
        committed.add_done_callback(
            lambda committed: self._tell(committed, run, delivery, accepted)
        )
        if self._draining and run.is_waiting:
            run.leave_waiting()
        await run.execute(committed, outcome)

    async def _accept(self, run: ActiveRun) -> tuple[Acceptance, asyncio.Future[Acceptance]]:
        event = run.event
        try:
            acceptance = self._stores.ledger.accept(
                event.record(run.run_id),
                run.accepted,
                event.transcript_item(run.run_id),
                resolution=run.resolution,
            )
            run.prepare()
            return await acceptance.prepared, acceptance.committed
        except EventConflict as error:
            raise already_exists(event) from error
        except StoreError as error:
            _log.error("an event could not be stored: %s", error)
            raise _not_stored() from error

    def _tell(
        self,
        committed: asyncio.Future[Acceptance],
        run: ActiveRun,
        delivery: Delivery,
        accepted: asyncio.Future[Acceptance],
    ) -> None:
        """Tell the caller that the run is durable, or stop what was begun ahead of the commit."""
        if committed.exception() is not None:
            self._deliveries.end(delivery, None)
            accepted.set_exception(_not_stored())
            run.stop(Stop.STORE)
            return
        acceptance = committed.result()
        if acceptance.duplicate:
            # Another host was faster between the two attempts of a transaction that had to be
            # repeated.
            run.stop(Stop.STORE)
        else:
            self._tell_those_ahead(run)
        self._deliveries.end(delivery, acceptance)
        accepted.set_result(acceptance)

    def _tell_those_ahead(self, run: ActiveRun) -> None:
        """Do to the runs ahead of a run, which is durable by now, what it came to do."""
        if run.steered is not None:
            target = self._target_of(run)
            if target is None:
                run.steered.decide(taken_up=False)
            elif target.steering.hand(run.steered):
                run.handed_to = target
        elif run.follow_up is FollowUp.INTERRUPT:
            line = self._sessions.line(run.accepted.session_key)
            for turn in line[: line.index(run.turn)] if run.turn in line else ():
                self._interrupt(turn)

    def _interrupt(self, turn: Turn) -> None:
        """Stop a run that is under way, or that was itself to interrupt: the latest word counts."""
        ahead = self._active.get(turn.run_id)
        if ahead is not None and (not ahead.is_waiting or ahead.follow_up is FollowUp.INTERRUPT):
            ahead.stop(Stop.FOLLOW_UP)

    def steering_of(self, run_id: str) -> SteeringBox | None:
        """Return what later events bring an active run; None if it has ended."""
        run = self._active.get(run_id)
        return run.steering if run is not None else None

    def resume(self, record: RunRecord, logged: EventRecord) -> None:
        """Start a run that was accepted before and never started, on a host that is gone.

        A host that is shutting down leaves it to the next one.
        """
        if self._draining:
            return
        run = self._entry.take_up(record, logged)
        self._active[run.run_id] = run
        done: asyncio.Future[Acceptance] = asyncio.get_running_loop().create_future()
        done.set_result(Acceptance(run.accepted, duplicate=False))
        self._spawn(run.execute(done, done.result()), run.run_id)

    def restored_agent(self, record: RunRecord) -> Restored:
        """Return the agent of a run, with the values of its secret fields as they are now."""
        return self._entry.restored_agent(record)

    def new_replay(
        self,
        *,
        record: RunRecord,
        event: Event,
        restored: Restored,
        services: RunServices,
        resolution: str,
    ) -> ActiveRun:
        """Return a run that replays another, with a place, for `replay`.

        Raises:
            Unavailable: The host is shutting down.
            Overloaded: It would have to wait, and as many runs wait as may.
        """
        if self._draining:
            raise Unavailable("the host is shutting down", retry_after_seconds=1)
        return self._entry.replay(
            record=record, event=event, restored=restored, services=services, resolution=resolution
        )

    async def replay(self, run: ActiveRun) -> Started:
        """Carry out a run that replays another; return, with a reader, once it is stored.

        Nobody but its caller wants a replay: one whose caller goes away is cancelled.

        Raises:
            Unavailable: It could not be stored.
        """
        reader = run.log.subscribe(patient=True)
        stored: asyncio.Future[RunRecord] = asyncio.get_running_loop().create_future()
        self._spawn(self._store_and_execute(run, stored), run.run_id)
        try:
            record = await asyncio.shield(stored)
        except BaseException as error:
            reader.close()
            if isinstance(error, asyncio.CancelledError):
                run.stop(Stop.CANCELLED, CALLER_LEFT)
            raise
        return Started(record, reader, duplicate=False, own_run_id=record.run_id)

    async def _store_and_execute(self, run: ActiveRun, stored: asyncio.Future[RunRecord]) -> None:
        try:
            record = await self._stores.ledger.replay(run.accepted, resolution=run.resolution)
        except Exception as error:  # noqa: BLE001 - nobody may wait for an answer that never comes
            run.abandon()
            run.ended.cancel()
            _log.error("a replay could not be stored: %s", error)
            stored.set_exception(_not_stored())
            return
        self._active[run.run_id] = run
        run.turn.settle()
        stored.set_result(record)
        if self._draining and run.is_waiting:
            run.leave_waiting()
        done: asyncio.Future[Acceptance] = asyncio.get_running_loop().create_future()
        done.set_result(Acceptance(record, duplicate=False))
        await run.execute(done, done.result())

    async def cancel(self, run_id: str, reason: str) -> RunRecord:
        """Cancel a run and return it when it has ended; one that had ended stays as it was.

        Raises:
            NotFound: There is no such run.
            Unavailable: The run is on another host.
        """
        run = self._active.get(run_id)
        if run is None:
            record = await self._stores.ledger.get(run_id)
            if record is None:
                raise NotFound("run", run_id)
            if not record.status.is_terminal:
                raise Unavailable(f"run {run_id!r} is on another host: cancel it there")
            return record
        run.stop(Stop.CANCELLED, reason)
        # Waited for without being taken along by it: the run's end has a future for many.
        await asyncio.wait({run.ended})
        if run.ended.cancelled() or run.ended.exception() is not None:
            raise Unavailable(
                f"how run {run_id!r} ended could not be stored: ask for it again later"
            )
        return run.ended.result()

    def give_up(self, run_id: str, reason: str) -> None:
        """Cancel a run that nobody waits for any more; nothing for one that has ended."""
        run = self._active.get(run_id)
        if run is not None:
            run.stop(Stop.CANCELLED, reason)

    async def get(self, run_id: str) -> RunRecord | None:
        """Return a run as it is now, or None."""
        run = self._active.get(run_id)
        return run.view() if run is not None else await self._stores.ledger.get(run_id)

    def view(self, record: RunRecord) -> RunRecord:
        """Return a stored run as it is now."""
        run = self._active.get(record.run_id)
        return run.view() if run is not None else record

    async def drain(self, grace_seconds: float, hurry: asyncio.Event) -> None:
        """Take no more events, let active runs finish, and cancel those that do not.

        Runs that still wait for their turn stay accepted: the next host to start takes them up.

        Args:
            grace_seconds: How long runs may go on.
            hurry: Ends the grace at once.
        """
        self._draining = True
        for run in list(self._active.values()):
            if run.is_waiting:
                run.leave_waiting()
        if self._tasks:
            hurried = asyncio.create_task(hurry.wait())
            finished = asyncio.create_task(_all_done(self._tasks))
            await asyncio.wait(
                {hurried, finished}, timeout=grace_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            hurried.cancel()
            for run in list(self._active.values()):
                # What was told to leave does so, with the run that may still take it up.
                run.stop(Stop.SHUTDOWN)
            await finished
        await self._stores.journal.flush()

    def _spawn(self, work: Coroutine[None, None, None], run_id: str) -> None:
        task = asyncio.create_task(work, name=f"run {run_id}")
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._active.pop(run_id, None)
            if not task.cancelled() and task.exception() is not None:
                _log.error("run %s failed inside the host", run_id, exc_info=task.exception())

        task.add_done_callback(done)


async def _all_done(tasks: set[asyncio.Task[None]]) -> None:
    while tasks:
        await asyncio.wait(set(tasks))


def _not_stored() -> Unavailable:
    return Unavailable("the event could not be stored; nothing was started", retry_after_seconds=1)
