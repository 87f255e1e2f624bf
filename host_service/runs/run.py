"""One active run, from its acceptance to its end.

A run is a task of its own: whoever asked for it may go away, and the run goes on. What flows
    where::

    execute ── accepted? turn? instance? rights ──> _relay ── read, check, number ──> log (readers)
       |                                               |                         └──> ledger
       (journal, behind the stream's back) └── commit the end, then show it  <── Outcome ──┘
    stop(reason): from a caller, a timer or shutdown; cancels the relay, the end is written all the
    same
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from runmesh.v1 import result_pb2, run_pb2

from host_service.agents.agent import Agent
from host_service.authorization.snapshot import freeze
from host_service.authorization.tokens import RunTokens
from host_service.errors import Unavailable
from host_service.limits import Limits
from host_service.registry.instance import Instance
from host_service.registry.registry import Registry
from host_service.registry.run_stream import Frame, RunnerFault, RunStream
from host_service.registry.schemas import ConfigSchemas
from host_service.runs.admission import Place
from host_service.runs.asked import asked_by
from host_service.runs.checker import TERMINAL, Numbered, ProtocolFault, ResultChecker
from host_service.runs.checkpoints import Checkpoints
from host_service.runs.context import Circumstances, build_context, duration
from host_service.runs.event import Event
from host_service.runs.facts import Projector, log_entries, result_record, says_something
from host_service.runs.log import Batch, ResultLog
from host_service.runs.outcome import Outcome, RunFault, Stop, ended_by_runner, stopped
from host_service.runs.progress import Progress
from host_service.telemetry import Telemetry
from host_service.validation import Validator
from stores.errors import StoreError
from stores.ledger import RunLedger
from stores.records import Acceptance, RunEnd, RunFacts, RunRecord, RunStatus, RunWarning

_log = logging.getLogger("runmesh.runs")

# A runner that keeps the contract ends its stream with its terminal result. One that does not is
# listened to for this long, so that what it sends too late can be warned of.
_LATE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What every run works with.

    Attributes:
        ledger: Where runs are written.
        registry: Where instances are found.
        schemas: Know what runners' configurations must be.
        tokens: Issues and revokes run tokens.
        limits: How much is too much.
        validator: The contract's rules under these limits.
        telemetry: Traces.
        clock: Tells the time.
        host_id: This host.
        host_incarnation: This start of it.
        host_version: Its version.
        host_api_address: Where runners reach HostAPIService.
    """

    ledger: RunLedger
    registry: Registry
    schemas: ConfigSchemas
    tokens: RunTokens
    limits: Limits
    validator: Validator
    telemetry: Telemetry
    clock: Callable[[], datetime]
    host_id: str
    host_incarnation: str
    host_version: str
    host_api_address: str


class ActiveRun:
    """A run that has not ended.

    Args:
        record: As it is handed to the ledger.
        event: What it answers.
        agent: The agent as it was when the event was accepted.
        place: Its place among the runs of this host.
        services: What every run works with.
    """

    def __init__(
        self, *, record: RunRecord, event: Event, agent: Agent, place: Place, services: RunServices
    ) -> None:
        self.record = record
        self.event = event
        self.agent = agent
        self.place = place
        self.log = ResultLog(limits=services.limits)
        self.progress = Progress()
        self.uncommitted: deque[result_pb2.RunResult] = deque()
        self.ended: asyncio.Future[RunRecord] = asyncio.get_running_loop().create_future()
        self._services = services
        self._limits = services.limits
        self._checker = ResultChecker(
            run_id=record.run_id,
            limits=services.limits,
            validator=services.validator,
            warn=self._warn,
        )
        self._projector = Projector(
            run_id=record.run_id, runner_id=record.runner_id, event=event, progress=self.progress
        )
        self._checkpoints = Checkpoints(
            run_id=record.run_id, progress=self.progress, limits=services.limits, save=self._record
        )
        self._reserved = record.reserved_sequence
        self._warnings: list[RunWarning] = []
        self._warned = 0
        self._committed: asyncio.Future[Acceptance] | None = None
        self._work: asyncio.Task[Outcome] | None = None
        self._stream: RunStream | None = None
        self._stop: Stop | None = None
        self._stop_text = ""
        self._interrupting: asyncio.Task[None] | None = None
        self._first_delta_at: datetime | None = None
        self._instance: Instance | None = None
        self._token = ""
        self._left_waiting = False

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.record.run_id

    @property
    def delivered(self) -> int:
        """The largest number delivered so far."""
        return self._checker.delivered

    @property
    def is_waiting(self) -> bool:
        """Whether its runner has not been called."""
        return self._instance is None

    def leave_waiting(self) -> None:
        """Stop waiting, with nothing written: the run stays accepted, for the next host."""
        self._left_waiting = True
        self._cancel_work()

    def view(self) -> RunRecord:
        """Return the run as it is now, with what the ledger learns only later."""
        if self.ended.done():
            return self.record
        return replace(
            self.record,
            last_sequence=self.delivered,
            first_delta_at=self._first_delta_at,
            usage=self._projector.usage or (),
            warnings=(*self.record.warnings, *self._warnings),
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

    async def execute(self, committed: asyncio.Future[Acceptance], prepared: Acceptance) -> None:
        """Carry the run out and write its end; whatever happens is the outcome of the run.

        Args:
            committed: Done when the run's acceptance is durable. Nothing is shown before.
            prepared: What the acceptance will be.
        """
        self._committed = committed
        self.record = replace(prepared.run, status=RunStatus.ACCEPTED)
        try:
            with self._services.telemetry.run_span(self.record):
                await self._execute()
        except Exception as error:  # noqa: BLE001 - nobody may wait for an end that never comes
            _log.exception("the end of run %s could not be written", self.run_id)
            self.log.fail(Unavailable("the end of the run could not be stored; ask again later"))
            self.ended.set_exception(error)
            self.ended.exception()
        finally:
            self.place.leave()

    async def _execute(self) -> None:
        if self._stop is None and not self._left_waiting:
            self._work = asyncio.create_task(self._carry_out())
            outcome = await self._await_work(self._work)
        else:
            outcome = self._stopped_outcome()
        if self._left_waiting and self.is_waiting:
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
        return self._refuse_silence(outcome)

    def _stopped_outcome(self) -> Outcome:
        return stopped(
            self._stop or Stop.SHUTDOWN,
            said=self._stop_text,
            timeout_seconds=self.agent.timeout_seconds,
        )

    async def _carry_out(self) -> Outcome:
        if not self.place.is_active:
            self._advance(RunStatus.QUEUED, queued_at=self._services.clock())
            await self.place.turn()
        tried: set[Instance] = set()
        while True:
            instance = await self._find_instance(tried)
            instance.acquire()
            self._instance = instance
            try:
                return await self._call(instance)
            except RunnerFault as fault:
                if not fault.never_started:
                    raise RunFault(fault.code, fault.message, retryable=fault.retryable) from fault
                tried.add(instance)
            finally:
                self._let_go(instance)

    async def _find_instance(self, tried: set[Instance]) -> Instance:
        registry, runner_id = self._services.registry, self.record.runner_id
        instance = registry.pick(runner_id, exclude=tried)
        if instance is None:
            if self.place.is_active and self.record.status is RunStatus.ACCEPTED:
                self._advance(RunStatus.QUEUED, queued_at=self._services.clock())
            instance = await registry.wait_for(
                runner_id, timeout_seconds=self._limits.instance_wait_seconds, exclude=tried
            )
        if instance is None:
            reasons = sorted(
                {
                    each.problem
                    for each in registry.instances()
                    if each.plugin_id == self.agent.plugin_id and each.problem
                }
            )
            why = (
                f": {'; '.join(reasons)}"
                if reasons
                else "; `runmesh runners list` shows which there are"
            )
            raise RunFault(
                "runner.unavailable", f"no instance serves {runner_id}{why}", retryable=True
            )
        return instance

    async def _call(self, instance: Instance) -> Outcome:
        request = self._request(instance)
        timeout = self.agent.timeout_seconds or None
        timer = None
        if timeout is not None:
            timer = asyncio.get_running_loop().call_later(timeout, self.stop, Stop.DEADLINE)
        stream = self._stream = RunStream(
            instance=instance,
            request=request,
            timeout_seconds=timeout,
            metadata=self._services.telemetry.outgoing(),
        )
        try:
            return await self._relay(stream)
        except ProtocolFault as fault:
            raise RunFault("runner.protocol", str(fault)) from fault
        finally:
            if timer is not None:
                timer.cancel()
            stream.cancel()

    def _configuration(self) -> str:
        """Return the agent's configuration, checked again, since its runner may have changed."""
        schema = self._services.schemas.of(self.record.runner_id)
        if schema is None:
            return self.agent.config_json
        faults = schema.faults(self.agent.config_json)
        if faults:
            text = "; ".join(map(str, faults))
            raise RunFault("host.configuration", f"agent {self.agent.id!r} cannot run: {text}")
        return schema.fill(self.agent.config_json)

    def _request(self, instance: Instance) -> run_pb2.RunRequest:
        services, record = self._services, self.record
        config_json = self._configuration()
        manifest = instance.manifests[record.runner_id]
        snapshot = freeze(
            run_id=record.run_id,
            plugin_id=instance.plugin_id,
            agent=self.agent,
            asked=asked_by(manifest),
            identity=self.event.identity(),
        )
        self._token = services.tokens.issue(
            snapshot=snapshot, instance_token=instance.instance_token
        )
        now = services.clock()
        deadline = (
            now + timedelta(seconds=self.agent.timeout_seconds)
            if self.agent.timeout_seconds
            else None
        )
        self._advance(
            RunStatus.RUNNING, started_at=now, deadline=deadline, instance_id=instance.instance_id
        )
        latest = record.latest_cursor_position
        context, left_out = build_context(
            run_id=record.run_id,
            event=self.event,
            agent=self.agent,
            binding_id=record.binding_id,
            session_key=record.session_key,
            config_json=config_json,
            snapshot=snapshot,
            circumstances=Circumstances(
                host_id=services.host_id,
                host_version=services.host_version,
                trace_id=services.telemetry.trace_id(),
                deadline=deadline,
                latest_position=latest,
            ),
        )
        if left_out:
            self._warn(
                "input_left_out",
                f"the runner takes text only: {left_out} images or files were left out",
            )
        request = run_pb2.RunRequest(
            runner_id=record.runner_id,
            context=context,
            host_access=run_pb2.HostAccess(
                host_id=services.host_id,
                address=services.host_api_address,
                run_token=self._token,
                instance_token=instance.instance_token,
            ),
        )
        if self.agent.timeout_seconds:
            request.timeout.CopyFrom(duration(self.agent.timeout_seconds))
        return request

    async def _relay(self, stream: RunStream) -> Outcome:
        while True:
            frame = await stream.read()
            if frame is None:
                raise RunFault(
                    "runner.protocol",
                    "the runner's stream ended without run_completed or run_failed",
                )
            if self._committed is not None:
                await self._wait_committed(self._committed)
            terminal = await self._pass_on(frame)
            if terminal is not None:
                await self._listen_on(stream)
                return ended_by_runner(terminal.result, terminal.runner_sequence)

    async def _wait_committed(self, committed: asyncio.Future[Acceptance]) -> None:
        """Show nothing of a run that is not durable."""
        try:
            await asyncio.shield(committed)
        except StoreError as error:
            raise RunFault(
                "host.unavailable", "the run could not be stored", retryable=True
            ) from error
        self._committed = None

    async def _pass_on(self, frame: Frame) -> Numbered | None:
        """Check a frame and deliver what is in it; return the terminal result if it has one."""
        if self._checker.number_plain_deltas(frame) and frame.response is not None:
            deltas = frame.response.results
            self._note(deltas)
            await self._deliver(frame.response, is_text=True)
            self._checkpoints.grew(frame.size_bytes)
            return None
        checked = self._checker.check(frame)
        terminal = next((each for each in checked.numbered if each.kind in TERMINAL), None)
        shown = [each for each in checked.numbered if each.kind not in TERMINAL]
        if shown:
            await self._pass_on_mixed(shown)
            self._checkpoints.grew(frame.size_bytes)
        if checked.fault is not None:
            raise checked.fault
        return terminal

    async def _pass_on_mixed(self, numbered: list[Numbered]) -> None:
        durable: list[Numbered] = []
        items, closed = [], []
        for each in numbered:
            if each.kind == "message_delta":
                self._note((each.result,))
                continue
            if each.kind == "state_updated":
                self._warn(
                    "state_not_kept", "state_updated is passed on, but not kept, by this host"
                )
            projection = self._projector.project(each.result, each.kind)
            durable.append(each)
            if projection.item is not None:
                items.append(projection.item)
            if projection.closed_message_id:
                closed.append(projection.closed_message_id)
        if durable:
            records = tuple(result_record(each, self._services.clock()) for each in durable)
            self.uncommitted.extend(each.result for each in durable)
            facts = RunFacts(
                run_id=self.run_id,
                results=records,
                items=tuple(items),
                entries=log_entries(records),
                dropped_checkpoints=tuple(closed),
                usage=self._projector.usage,
                warnings=self._take_warnings(),
            )
            _ = self._record(facts)
        await self._deliver(
            run_pb2.RunResponse(results=[each.result for each in numbered]),
            is_text=len(durable) < len(numbered),
        )

    def _note(self, deltas: Iterable[result_pb2.RunResult]) -> None:
        """Keep deltas for the messages that they make, up to the most that is kept."""
        self.progress.note(deltas)
        size, limit = self.progress.size, self._limits.message_characters
        if size > limit:
            raise ProtocolFault(
                f"messages in progress have {size} characters and more; the limit is {limit}"
            )

    async def _deliver(self, response: run_pb2.RunResponse, *, is_text: bool) -> None:
        if is_text:
            if self._first_delta_at is None:
                self._first_delta_at = self._services.clock()
            if not self.agent.streaming:
                kept = [each for each in response.results if not each.HasField("message_delta")]
                if not kept:
                    return
                response = run_pb2.RunResponse(results=kept)
        if self.delivered > self._reserved - self._limits.reserved_numbers // 2:
            await self._reserve()
        if self.log.has_readers:
            await self.log.deliver(Batch(response.SerializeToString(), self.delivered))

    async def _reserve(self) -> None:
        """Reserve more numbers ahead; wait only where those reserved before are used up."""
        must_wait = self.delivered > self._reserved
        self._reserved = self.delivered + self._limits.reserved_numbers
        saved = self._record(RunFacts(run_id=self.run_id, reserved_sequence=self._reserved))
        if must_wait:
            await asyncio.shield(saved)

    async def _listen_on(self, stream: RunStream) -> None:
        """Read to the end of the stream, so that what comes after the terminal result is known."""
        # An end that is not a clean one changes nothing: the runner has had its last word.
        with contextlib.suppress(RunnerFault, TimeoutError):
            async with asyncio.timeout(_LATE_SECONDS):
                while (frame := await stream.read()) is not None:
                    self._checker.check(frame)

    def _advance(
        self,
        status: RunStatus,
        *,
        queued_at: datetime | None = None,
        started_at: datetime | None = None,
        deadline: datetime | None = None,
        instance_id: str | None = None,
    ) -> None:
        at = queued_at or started_at or self._services.clock()
        self.record = replace(
            self.record,
            status=status,
            queued_at=queued_at or self.record.queued_at,
            started_at=started_at or self.record.started_at,
            deadline=deadline or self.record.deadline,
            instance_id=instance_id or self.record.instance_id,
        )
        saved = self._services.ledger.advance(
            self.run_id,
            status,
            at=at,
            instance_id=instance_id,
            deadline=deadline,
            host_incarnation=self._services.host_incarnation,
        )
        saved.add_done_callback(self._saved)

    def _record(self, facts: RunFacts) -> asyncio.Future[None]:
        saved = self._services.ledger.record(
            replace(facts, host_incarnation=self._services.host_incarnation)
        )
        count = len(facts.results)

        def done(future: asyncio.Future[None]) -> None:
            for _ in range(count):
                self.uncommitted.popleft()
            self._saved(future)

        saved.add_done_callback(done)
        return saved

    def _saved(self, future: asyncio.Future[None] | asyncio.Future[bool]) -> None:
        """Stop a run whose facts could not be stored: what was shown must be what is kept."""
        error = None if future.cancelled() else future.exception()
        if error is not None:
            _log.error("run %s: its facts could not be stored: %s", self.run_id, error)
            self.stop(Stop.STORE)

    def _warn(self, code: str, text: str) -> None:
        self._warned += 1
        if self._warned <= self._limits.warnings_kept:
            self._warnings.append(RunWarning(code, text, self._services.clock()))
        _log.debug("run %s: %s: %s", self.run_id, code, text)

    def _take_warnings(self) -> tuple[RunWarning, ...]:
        taken, self._warnings = tuple(self._warnings), []
        self.record = replace(self.record, warnings=(*self.record.warnings, *taken))
        return taken

    def _can_interrupt(self) -> bool:
        manifest = self._services.registry.manifest(self.record.runner_id)
        return manifest is not None and manifest.capabilities.interrupt

    async def _interrupt(self, stream: RunStream, reason: Stop) -> None:
        """Let the runner stop by itself within the grace; then cancel the call."""
        grace = self._limits.interrupt_grace_seconds
        work = self._work
        asked = asyncio.create_task(
            stream.interrupt(run_id=self.run_id, reason=reason, grace_seconds=grace)
        )
        try:
            if work is not None:
                # The runner has stopped when its stream has ended, which follows its answer at
                # once.
                await asyncio.wait(
                    {work, asked}, timeout=grace, return_when=asyncio.FIRST_COMPLETED
                )
                await asyncio.wait({work}, timeout=_LATE_SECONDS)
        finally:
            asked.cancel()
            self._cancel_work()

    def _cancel_work(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def _let_go(self, instance: Instance) -> None:
        self._services.tokens.revoke(self._token)
        instance.release()
        self._stream = None

    def _refuse_silence(self, outcome: Outcome) -> Outcome:
        """Turn the good end of a run that answered a message with nothing into a failure."""
        completed = outcome.completed
        if (
            completed is None
            or self.event.type != "message.received"
            or completed.finish_reason == "silent"
        ):
            return outcome
        message = completed.message
        spoke = says_something(message) or any(
            each.has_content for each in self.progress.messages()
        )
        if spoke or self._projector.said_something:
            return outcome
        return RunFault(
            "runner.empty_output", "the run ended well without saying anything"
        ).outcome()

    async def _end(self, outcome: Outcome) -> None:
        """Commit the end with everything that was still to be said, then show it."""
        if self._interrupting is not None:
            self._interrupting.cancel()
        self._checkpoints.close()
        record, response, facts = self._last_facts(outcome)
        if self._committed is not None:
            await asyncio.shield(self._committed)
        ended = await self._services.ledger.finish(record, facts)
        await self._show_end(outcome, record, response if ended else None)

    def _last_facts(self, outcome: Outcome) -> tuple[RunEnd, run_pb2.RunResponse, RunFacts]:
        now = self._services.clock()
        if outcome.completed is not None and outcome.completed.usage:
            self._projector.note_usage(outcome.completed.usage, replace=True)
        last = [
            Numbered(result, "message_completed", 0)
            for result in self._projector.last_messages(outcome.completed)
        ]
        items = []
        for each in last:
            projection = self._projector.project(each.result, each.kind)
            if projection.item is not None:
                items.append(projection.item)
        terminal = outcome.terminal(self.run_id)
        last.append(
            Numbered(terminal, terminal.WhichOneof("payload") or "", outcome.runner_sequence)
        )
        for each in last:
            self._checker.number(each.result)
            each.result.timestamp.FromDatetime(now)
        records = tuple(result_record(each, now) for each in last)
        end = RunEnd(
            run_id=self.run_id,
            status=outcome.status,
            ended_at=now,
            last_sequence=self.delivered,
            failure=outcome.failure,
            usage=self._projector.usage,
            warnings=self._take_warnings(),
            host_incarnation=self._services.host_incarnation,
        )
        facts = RunFacts(
            run_id=self.run_id,
            host_incarnation=self._services.host_incarnation,
            results=records,
            items=tuple(items),
            entries=log_entries(records),
            first_delta_at=self._first_delta_at,
            reserved_sequence=self.delivered,
        )
        return end, run_pb2.RunResponse(results=[each.result for each in last]), facts

    async def _show_end(
        self, outcome: Outcome, end: RunEnd, response: run_pb2.RunResponse | None
    ) -> None:
        if response is None:
            # Another host took the run for lost and has written its end.
            stored = await self._services.ledger.get(self.run_id)
            self.record = stored or self.record
        else:
            self.record = replace(
                self.view(),
                status=outcome.status,
                ended_at=end.ended_at,
                failure=outcome.failure,
                usage=self._projector.usage or (),
                last_sequence=end.last_sequence,
            )
            # The readers' patience does not hold up the end: it is in the ledger, and they are told
            # of it in any case.
            self.log.deliver_last(Batch(response.SerializeToString(), self.delivered))
        self.log.end(self.record)
        self.ended.set_result(self.record)
