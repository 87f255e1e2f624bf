"""The same event once more: a run that replays another, on a runner of choice.

What flows where::

    original ── its event, its agent as it was, its place in the conversation ──> ActiveRun ──> as
    any run: a turn, a place, an instance, rights frozen anew, results, an end
                     |
                     └── works on stores as they were for the original, and keeps nothing unless
                         it is to have side effects

A replay is a run of its own that names its original. It is not the run of its event: a redelivery
still finds the original.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from runmesh.v1 import event_pb2, result_pb2

from host_service.agents.kept import Restored
from host_service.certificates.dialling import channel_credentials
from host_service.certificates.errors import CertificateUnusable
from host_service.certificates.files import DialDefaults, DialFiles
from host_service.errors import FieldFault, InvalidArgument, NotFound, Unavailable
from host_service.identity import join_key, new_id
from host_service.registry.address import parse_address
from host_service.registry.errors import AddressInvalid, HandshakeFailed
from host_service.registry.records import FoundBy, HostIdentity, plugin_of
from host_service.registry.registry import Registry
from host_service.registry.schemas import ConfigSchemas
from host_service.runs.choice import ByReplay, choice_text
from host_service.runs.event import Event, known
from host_service.runs.orchestrator import Orchestrator, Started
from host_service.runs.replay_stores import replay_stores
from host_service.runs.run import ActiveRun
from host_service.runs.services import RunServices
from stores import Stores
from stores.records import RunRecord

_log = logging.getLogger("runmesh.runs")

_HANDSHAKE_SECONDS = 5.0
_HOST_NAME = "runmesh"
_RESULTS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """What is to be replayed, and how.

    Attributes:
        run_id: The run; of a replay, its original is replayed.
        runner_address: Where a runner listens; empty: an instance that the host knows.
        runner_id: The runner; empty: the run's own.
        side_effects: Whether what the replay does has effects.
    """

    run_id: str
    runner_address: str = ""
    runner_id: str = ""
    side_effects: bool = False


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay that was begun, and the run that it replays."""

    started: Started
    original_id: str


class Replaying:
    """Replays runs.

    Args:
        stores: Where runs and their events are.
        orchestrator: Carries replays out.
        services: What runs work with.
        insecure: Whether addresses that others can listen in on may be dialled without encryption.
        dialling: What connections to runners on other machines trust and show.
    """

    def __init__(
        self,
        *,
        stores: Stores,
        orchestrator: Orchestrator,
        services: RunServices,
        insecure: bool = False,
        dialling: DialDefaults | None = None,
    ) -> None:
        self._stores = stores
        self._orchestrator = orchestrator
        self._services = services
        self._insecure = insecure
        self._dialling = dialling or DialDefaults()
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self, order: ReplayOrder) -> Replayed:
        """Begin a replay, and return once it is stored.

        Raises:
            NotFound: There is no such run, or its event is past retention.
            InvalidArgument: The address or the runner is none, or it is not served there.
            Unavailable: Nobody answers there, or the host is shutting down.
            Overloaded: It would have to wait, and as many runs wait as may.
        """
        original, event = await self._original(order.run_id)
        runner_id = order.runner_id or original.runner_id
        if not plugin_of(runner_id):
            fault = FieldFault("runner_id", "`plugin:author/name/runner`", runner_id)
            raise InvalidArgument([fault])
        services = self._services_for(original, order)
        registry = await self._dial(order.runner_address, runner_id)
        if registry is not None:
            services = replace(
                services, registry=registry, schemas=ConfigSchemas(registry=registry)
            )
        try:
            run = self._run(original, event, order, runner_id, services)
            started = await self._orchestrator.replay(run)
        except BaseException:
            self._close(registry)
            raise
        run.ended.add_done_callback(lambda _: self._close(registry))
        return Replayed(started, original.run_id)

    async def _original(self, run_id: str) -> tuple[RunRecord, Event]:
        record = await self._orchestrator.get(run_id)
        if record is not None and record.replay_of is not None:
            record = await self._orchestrator.get(record.replay_of)
        if record is None:
            raise NotFound("run", run_id)
        logged = await self._stores.events.get_for_run(record.run_id)
        if logged is None:
            raise NotFound("event", record.event_id)
        envelope = event_pb2.EventEnvelope.FromString(logged.envelope)
        return record, known(envelope, received_at=logged.received_at, digest=logged.digest)

    def _services_for(self, original: RunRecord, order: ReplayOrder) -> RunServices:
        stores = replay_stores(
            self._stores,
            original,
            side_effects=order.side_effects,
            limits=self._services.limits,
            clock=self._services.clock,
        )
        return replace(
            self._services,
            state=stores.state,
            artifacts=stores.artifacts,
            actions=self._services.actions.over(stores.actions),
            calls_on=stores,
            side_effects=order.side_effects,
        )

    async def _dial(self, address: str, runner_id: str) -> Registry | None:
        """Return a registry that knows the process at an address alone; None without an address.

        No other run finds that process, and none of the host's is found there.
        """
        if not address:
            return None
        target, files = self._target(address)
        try:
            credentials = channel_credentials(files) if files else None
        except CertificateUnusable as error:
            _log.warning("a runner cannot be dialled for a replay: %s", error)
            raise Unavailable(
                "the certificates that the host dials runners with cannot be used"
            ) from error
        services = self._services
        registry = Registry(
            identity=HostIdentity(services.host_id, _HOST_NAME, services.host_version)
        )
        plugin_id = plugin_of(runner_id)
        instance = registry.add(
            plugin_id=plugin_id,
            found_by=FoundBy.STATIC,
            address=target,
            credentials=credentials,
        )
        try:
            await registry.bring_up(instance, timeout_seconds=_HANDSHAKE_SECONDS)
        except HandshakeFailed as error:
            self._close(registry)
            raise Unavailable(f"the runner at {address} cannot be called: {error}") from error
        except BaseException:
            self._close(registry)
            raise
        if runner_id not in instance.manifests:
            served = ", ".join(sorted(instance.manifests)) or "none"
            self._close(registry)
            fault = FieldFault("runner_id", f"one that {address} serves: {served}", runner_id)
            raise InvalidArgument([fault])
        return registry

    def _target(self, address: str) -> tuple[str, DialFiles | None]:
        """Return what is dialled, and what TLS needs there; None: it goes without.

        The files are the host's own: a caller names none on this machine.
        """
        try:
            parsed = parse_address(address)
        except AddressInvalid as error:
            rule = "`unix:/path` or `host:port`"
            raise InvalidArgument([FieldFault("runner_address", rule, address)]) from error
        if parsed.private:
            return parsed.target, None
        files = self._dialling.split(parsed.target)[1]
        if files is None and not self._insecure:
            rule = (
                "a unix socket or a loopback address, unless the host dials runners with TLS, or "
                "is told to run insecurely"
            )
            raise InvalidArgument([FieldFault("runner_address", rule, address)])
        return parsed.target, files

    def _run(
        self,
        original: RunRecord,
        event: Event,
        order: ReplayOrder,
        runner_id: str,
        services: RunServices,
    ) -> ActiveRun:
        restored = self._orchestrator.restored_agent(original)
        run_id = new_id()
        record = RunRecord(
            run_id=run_id,
            workspace=original.workspace,
            bot=original.bot,
            event_source=original.event_source,
            event_id=original.event_id,
            agent_id=original.agent_id,
            agent_revision=original.agent_revision,
            binding_id=original.binding_id,
            runner_id=runner_id,
            conversation_key=original.conversation_key,
            # What a runner keeps by the session of the original, a replay without side effects
            # must not reach.
            session_key=original.session_key if order.side_effects else join_key("replay", run_id),
            created_at=services.clock(),
            host_id=services.host_id,
            host_incarnation=services.host_incarnation,
            agent_snapshot=original.agent_snapshot,
            reserved_sequence=services.limits.reserved_numbers,
            latest_cursor_position=original.latest_cursor_position,
            replay_of=original.run_id,
        )
        chosen_by = ByReplay(order.side_effects, order.runner_address)
        return self._orchestrator.new_replay(
            record=record,
            event=event,
            restored=_on_runner(restored, runner_id),
            services=services,
            resolution=choice_text(chosen_by),
        )

    def _close(self, registry: Registry | None) -> None:
        if registry is None:
            return
        task = asyncio.create_task(registry.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def compare(self, original: RunRecord, replay: RunRecord) -> Sequence[str]:
        """Return in what a replay that has ended came out otherwise than its original.

        Of `status`, `failure` and `text`; empty as long as the original has not ended.
        """
        if not original.status.is_terminal:
            return ()
        codes = [each.failure.code if each.failure else "" for each in (original, replay)]
        differs = {
            "status": original.status is not replay.status,
            "failure": codes[0] != codes[1],
            "text": await self._text(original.run_id) != await self._text(replay.run_id),
        }
        return tuple(name for name, is_so in differs.items() if is_so)

    async def _text(self, run_id: str) -> str:
        """Return the text of a run's completed messages."""
        texts: list[str] = []
        after = 0
        while True:
            page = await self._stores.ledger.results(
                run_id, after_sequence=after, limit=_RESULTS_AT_ONCE
            )
            for record in page:
                if record.kind == "message_completed":
                    result = result_pb2.RunResult.FromString(record.payload)
                    parts = result.message_completed.message.parts
                    texts.append("".join(part.text for part in parts))
            if len(page) < _RESULTS_AT_ONCE:
                return "\n".join(texts)
            after = page[-1].sequence


def _on_runner(restored: Restored, runner_id: str) -> Restored:
    return replace(restored, agent=replace(restored.agent, runner_id=runner_id))
