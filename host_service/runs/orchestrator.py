"""The one entry: every run starts here, whatever brought its event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from functools import lru_cache

from runmesh.v1 import event_pb2

from host_service.agents.agent import Agent
from host_service.agents.directory import AgentDirectory
from host_service.errors import NoBinding, NotFound, Unavailable
from host_service.identity import join_key, new_id
from host_service.runs.admission import Admission, Place
from host_service.runs.event import Event, already_exists, known, source_name
from host_service.runs.log import Reader
from host_service.runs.outcome import Stop
from host_service.runs.run import ActiveRun
from host_service.runs.services import RunServices
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
        run: Its run, as it was stored.
        reader: Reads the run's results from the first on; None where none was asked for, or the run
            was there before.
        duplicate: Whether the event was a redelivery.
    """

    run: RunRecord
    reader: Reader | None
    duplicate: bool


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
        self._directory = directory
        self._services = services
        self._admission = admission
        self._active: dict[str, ActiveRun] = {}
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

    async def start(
        self,
        event: Event,
        *,
        agent_id: str = "",
        with_reader: bool = False,
        ends_with_caller: bool = False,
    ) -> Started:
        """Accept an event and start its run.

        Args:
            event: The event.
            agent_id: Run this agent, whatever the bindings say; empty: the bindings decide.
            with_reader: Also return a reader that misses nothing.
            ends_with_caller: Cancel the run if the caller goes away before it has its answer.

        Raises:
            NoBinding, BindingConflict, NotFound: No agent answers it; what matched nothing is
                logged without a run.
            AlreadyExists: The same event was delivered with other content.
            Overloaded: The waiting line is full.
            Unavailable: The host is shutting down, or the event could not be stored.
        """
        if self._draining:
            raise Unavailable("the host is shutting down", retry_after_seconds=1)
        binding_id, agent = await self._resolve(event, agent_id)
        place = self._admission.enter()
        run = self._new_run(event, agent, binding_id, place)
        reader = run.log.subscribe(patient=True) if with_reader else None
        accepted: asyncio.Future[Acceptance] = asyncio.get_running_loop().create_future()
        self._spawn(self._accept_and_execute(run, accepted), run.run_id)
        try:
            # A caller that goes away now loses the answer, not the run.
            acceptance = await asyncio.shield(accepted)
        except asyncio.CancelledError:
            if reader is not None:
                reader.close()
            if ends_with_caller:
                run.stop(Stop.CANCELLED, CALLER_LEFT)
            raise
        if acceptance.duplicate:
            return Started(self.view(acceptance.run), None, duplicate=True)
        return Started(acceptance.run, reader, duplicate=False)

    async def _resolve(self, event: Event, agent_id: str) -> tuple[str | None, Agent]:
        if agent_id:
            return None, self._directory.named(agent_id)
        try:
            binding, agent = self._directory.resolve(event)
        except NoBinding:
            try:
                await self._stores.events.append(event.record(None))
            except EventConflict as error:
                raise already_exists(event) from error
            raise
        return binding.id, agent

    def _new_run(
        self, event: Event, agent: Agent, binding_id: str | None, place: Place
    ) -> ActiveRun:
        envelope = event.envelope
        record = RunRecord(
            run_id=new_id(),
            workspace=envelope.workspace_id,
            bot=envelope.bot_id,
            event_source=source_name(envelope.source),
            event_id=envelope.event_id,
            agent_id=agent.id,
            agent_revision=agent.revision,
            binding_id=binding_id,
            runner_id=agent.runner_id,
            conversation_key=event.conversation_key,
            session_key=session_key(event, agent),
            created_at=event.received_at,
            host_id=self._services.host_id,
            host_incarnation=self._services.host_incarnation,
            agent_snapshot=_snapshot(agent),
            reserved_sequence=self._services.limits.reserved_numbers,
        )
        return ActiveRun(
            record=record, event=event, agent=agent, place=place, services=self._services
        )

    async def _accept_and_execute(
        self, run: ActiveRun, accepted: asyncio.Future[Acceptance]
    ) -> None:
        event = run.event
        try:
            await self._stores.journal.room()
            run.begin()
            acceptance = self._stores.ledger.accept(
                event.record(run.run_id), run.accepted, event.transcript_item(run.run_id)
            )
            run.prepare()
            outcome = await acceptance.prepared
        except EventConflict:
            run.abandon()
            accepted.set_exception(already_exists(event))
            return
        except StoreError as error:
            run.abandon()
            _log.error("an event could not be stored: %s", error)
            accepted.set_exception(
                Unavailable(
                    "the event could not be stored; nothing was started", retry_after_seconds=1
                )
            )
            return
        if outcome.duplicate:
            run.abandon()
            accepted.set_result(outcome)
            return
        self._active[run.run_id] = run
        acceptance.committed.add_done_callback(
            lambda committed: self._tell(committed, run, accepted)
        )
        await run.execute(acceptance.committed, outcome)

    def _tell(
        self,
        committed: asyncio.Future[Acceptance],
        run: ActiveRun,
        accepted: asyncio.Future[Acceptance],
    ) -> None:
        """Tell the caller that the run is durable, or stop what was begun ahead of the commit."""
        if committed.exception() is not None:
            accepted.set_exception(
                Unavailable(
                    "the event could not be stored; nothing was started", retry_after_seconds=1
                )
            )
            run.stop(Stop.STORE)
            return
        acceptance = committed.result()
        accepted.set_result(acceptance)
        if acceptance.duplicate:
            # Another host was faster between the two attempts of a transaction that had to be
            # repeated.
            run.stop(Stop.STORE)

    def resume(self, record: RunRecord, logged: EventRecord) -> None:
        """Start a run that was accepted before and never started, on a host that is gone."""
        envelope = event_pb2.EventEnvelope.FromString(logged.envelope)
        event = known(envelope, received_at=logged.received_at, digest=logged.digest)
        agent = Agent.from_document(record.agent_snapshot.decode(), revision=record.agent_revision)
        run = ActiveRun(
            record=record,
            event=event,
            agent=agent,
            place=self._admission.enter(beyond_limit=True),
            services=self._services,
        )
        self._active[run.run_id] = run
        done: asyncio.Future[Acceptance] = asyncio.get_running_loop().create_future()
        done.set_result(Acceptance(record, duplicate=False))
        self._spawn(run.execute(done, done.result()), run.run_id)

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


@lru_cache(maxsize=256)
def _snapshot(agent: Agent) -> bytes:
    """Return an agent as its runs keep it; made once for each revision."""
    return agent.to_document().encode()


def session_key(event: Event, agent: Agent) -> str:
    """Return what an external harness keys its own session by."""
    envelope = event.envelope
    return join_key(
        envelope.workspace_id,
        envelope.bot_id,
        agent.id,
        agent.runner_id,
        envelope.conversation_id,
        envelope.thread_id,
    )
