"""How an event becomes a run that may go or wait; what is refused or known takes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from runmesh.v1 import event_pb2

from host_service.agents.agent import Agent
from host_service.agents.directory import AgentDirectory
from host_service.agents.follow_up import FollowUp, choose
from host_service.agents.kept import KeptAgents, Restored, restore
from host_service.authorization.policy import Allowance
from host_service.errors import HostError, NoBinding, SessionBusy
from host_service.identity import join_key, new_id
from host_service.runs.admission import Admission
from host_service.runs.asked import kind_of
from host_service.runs.choice import ByBinding, ByCaller, Choice, by_found, choice_text
from host_service.runs.event import Event, already_exists, known, source_name
from host_service.runs.redelivery import Deliveries
from host_service.runs.run import ActiveRun
from host_service.runs.services import RunServices
from host_service.runs.sessions import Sessions, Turn
from stores import Stores
from stores.errors import EventConflict
from stores.records import EventRecord, RunRecord

# A run takes seconds rather than milliseconds.
_BUSY_RETRY_SECONDS = 1.0


class Entry:
    """Gives runs what they need, or a place to wait for it.

    Args:
        stores: Where events and runs are.
        directory: Tells which agent answers.
        services: What runs work with.
        admission: How many runs may go at once.
        sessions: The order of runs within each session.
        deliveries: Recognises events that come again.
        active: The runs that have not ended, by id.
    """

    def __init__(
        self,
        *,
        stores: Stores,
        directory: AgentDirectory,
        services: RunServices,
        admission: Admission,
        sessions: Sessions,
        deliveries: Deliveries,
        active: Mapping[str, ActiveRun],
    ) -> None:
        self._stores = stores
        self._directory = directory
        self._services = services
        self._admission = admission
        self._sessions = sessions
        self._deliveries = deliveries
        self._active = active
        self._kept = KeptAgents(schema_of=services.schemas.of)

    async def admit(self, event: Event, *, agent_id: str, follow_up: str) -> ActiveRun | RunRecord:
        """Return a run with what it needs, or with a place to wait; or the one that the event has.

        A redelivery is recognised before its event takes a place in the line, and before it is
        refused: it is answered whatever goes on.

        Raises:
            HostError: As `Orchestrator.start`.
        """
        try:
            chosen_by, agent = await self._resolve(event, agent_id)
            choice = choose(
                policy=agent.follow_up,
                override=follow_up,
                kind=kind_of(self._services.registry.manifest(agent.runner_id)),
                is_message=event.type == "message.received",
                has_session=bool(event.conversation_key),
            )
            key = session_key(event, agent)
            if self._must_wait(key, choice):
                stored = await self._deliveries.find(event)
                if stored is not None:
                    return stored
            await self._stores.journal.room()
            if choice in {FollowUp.REJECT, FollowUp.STEER}:
                # What is there may be a redelivery on its way out.
                await self._sessions.settle(key)
            return self._take_in(event, agent, chosen_by, key, choice)
        except HostError:
            stored = await self._deliveries.find(event)
            if stored is not None:
                return stored
            raise

    async def _resolve(self, event: Event, agent_id: str) -> tuple[Choice, Agent]:
        if agent_id:
            return ByCaller(), self._directory.named(agent_id)
        try:
            found, agent = self._directory.find(event)
        except NoBinding:
            try:
                await self._stores.events.append(event.record(None))
            except EventConflict as error:
                raise already_exists(event) from error
            raise
        return by_found(found), agent

    def _must_wait(self, key: str, choice: FollowUp) -> bool:
        is_behind = choice is not FollowUp.PARALLEL and bool(self._sessions.line(key))
        return is_behind or not self._admission.has_free_place

    def _take_in(
        self, event: Event, agent: Agent, chosen_by: Choice, key: str, choice: FollowUp
    ) -> ActiveRun:
        """Take a turn, a place and an instance for a run, or none of them."""
        ahead = self._sessions.line(key)
        if choice is FollowUp.REJECT and ahead:
            raise _busy(ahead[0])
        steered_into = self._target(event, ahead[0]) if choice is FollowUp.STEER and ahead else None
        record = self._new_record(event, agent, chosen_by, key, steered_into)
        turn = self._sessions.enter(
            key,
            record.run_id,
            in_order=choice is not FollowUp.PARALLEL,
            came_at=event.received_at,
        )
        try:
            place = self._admission.enter(aside=not turn.has_come)
        except HostError:
            turn.leave()
            raise
        run = ActiveRun(
            record=record,
            event=event,
            agent=agent,
            turn=turn,
            place=place,
            services=self._services,
            follow_up=choice,
            resolution=choice_text(chosen_by),
        )
        try:
            run.begin()
        except HostError:
            run.abandon()
            raise
        return run

    def _target(self, event: Event, ahead: Turn) -> str | None:
        """Return the run that an event is handed to; None where that would lend it rights.

        A run's rights are those of its own event. What another actor says, of whom the workspace's
        policy thinks otherwise, waits for a run of its own.
        """
        run = self._active.get(ahead.run_id)
        if run is None or self._limits_of(run.event) != self._limits_of(event):
            return None
        return run.run_id

    def _limits_of(self, event: Event) -> Sequence[tuple[str, Allowance]]:
        envelope = event.envelope
        policy = self._services.shelf().policies.get(envelope.workspace_id)
        if policy is None:
            return ()
        return tuple(policy.limits(bot=envelope.bot_id, actor_id=envelope.actor.id))

    def _new_record(
        self,
        event: Event,
        agent: Agent,
        chosen_by: Choice,
        key: str,
        steered_into: str | None,
    ) -> RunRecord:
        envelope = event.envelope
        return RunRecord(
            run_id=new_id(),
            workspace=envelope.workspace_id,
            bot=envelope.bot_id,
            event_source=source_name(envelope.source),
            event_id=envelope.event_id,
            agent_id=agent.id,
            agent_revision=agent.revision,
            binding_id=(chosen_by.winner.binding_id if isinstance(chosen_by, ByBinding) else None),
            runner_id=agent.runner_id,
            conversation_key=event.conversation_key,
            session_key=key,
            created_at=event.received_at,
            host_id=self._services.host_id,
            host_incarnation=self._services.host_incarnation,
            agent_snapshot=self._kept.of(agent),
            reserved_sequence=self._services.limits.reserved_numbers,
            steered_into=steered_into,
        )

    def take_up(self, record: RunRecord, logged: EventRecord) -> ActiveRun:
        """Return a run that was accepted before, on a host that is gone, and never started.

        Runs of one session go in the order in which they came, here as there.
        """
        envelope = event_pb2.EventEnvelope.FromString(logged.envelope)
        # What it was handed to is gone with that host.
        record = replace(record, steered_into=None)
        turn = self._sessions.enter(
            record.session_key,
            record.run_id,
            in_order=True,
            came_at=record.created_at,
            came_before=True,
        )
        turn.settle()
        restored = self.restored_agent(record)
        run = ActiveRun(
            record=record,
            event=known(envelope, received_at=logged.received_at, digest=logged.digest),
            agent=restored.agent,
            turn=turn,
            place=self._admission.enter(aside=not turn.has_come, beyond_limit=True),
            services=self._services,
        )
        run.tell_of_secrets(restored)
        return run

    def replay(
        self,
        *,
        record: RunRecord,
        event: Event,
        restored: Restored,
        services: RunServices,
        resolution: str,
    ) -> ActiveRun:
        """Return a run that replays another, with a place.

        One with side effects takes its turn in the session of its original, as what it does there
        could be done by any other run.

        Raises:
            Overloaded: It would have to wait, and as many runs wait as may.
        """
        turn = self._sessions.enter(
            record.session_key,
            record.run_id,
            in_order=services.side_effects,
            came_at=record.created_at,
        )
        try:
            place = self._admission.enter(aside=not turn.has_come)
        except HostError:
            turn.leave()
            raise
        run = ActiveRun(
            record=record,
            event=event,
            agent=restored.agent,
            turn=turn,
            place=place,
            services=services,
            resolution=resolution,
        )
        run.tell_of_secrets(restored)
        return run

    def restored_agent(self, record: RunRecord) -> Restored:
        """Return the agent of a run, with the values of its secret fields as they are now."""
        return restore(
            record.agent_snapshot,
            revision=record.agent_revision,
            now=self._directory.agents.get(record.agent_id),
        )


def _busy(ahead: Turn) -> SessionBusy:
    return SessionBusy(
        "the session has a run that has not ended, and the event was not to wait for it",
        facts={"run_id": ahead.run_id},
        retry_after_seconds=_BUSY_RETRY_SECONDS,
    )


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
