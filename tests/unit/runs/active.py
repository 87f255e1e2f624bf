"""A run under way whose results a test delivers itself, frame by frame."""

from collections.abc import AsyncIterator
from typing import Any

from runmesh.v1 import gateway_pb2, result_pb2

from host_service.agents.agent import Agent
from host_service.agents.declared import Declared
from host_service.agents.directory import AgentDirectory
from host_service.runs.admission import Admission
from host_service.runs.event import Event
from host_service.runs.log import Batch, Ended
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.outcome import Outcome
from host_service.runs.run import ActiveRun
from host_service.runs.services import RunServices
from host_service.runs.sessions import Sessions
from stores import Stores
from stores.records import RunRecord, RunStatus
from tests.unit.runs.samples import NOON, RUNNER, a_frame, a_result, an_agent, an_event


def a_run_record(event: Event, **changes: Any) -> RunRecord:
    """Return the run `run-1` of an event, as it is handed to the ledger."""
    envelope = event.envelope
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "workspace": envelope.workspace_id,
        "bot": envelope.bot_id,
        "event_source": "platform",
        "event_id": envelope.event_id,
        "agent_id": "helper",
        "agent_revision": 1,
        "runner_id": RUNNER,
        "conversation_key": event.conversation_key,
        "session_key": "session",
        "created_at": NOON,
        "host_id": "host",
        "host_incarnation": "start-1",
        "agent_snapshot": an_agent().to_document().encode(),
        "reserved_sequence": 4096,
    }
    return RunRecord(**(fields | changes))


async def save(directory: AgentDirectory, *agents: Agent) -> None:
    """Have agents, as an operator would."""
    await directory.apply(Declared.of(agents, ()))


class Conversation:
    """The run `run-1`, accepted and running, without a runner.

    What its runner would send goes in with `sends`, and with `ends` its end.
    """

    def __init__(self, run: ActiveRun, stores: Stores, orchestrator: Orchestrator) -> None:
        self.run, self.delivery = run, run.delivery
        self._stores, self._orchestrator = stores, orchestrator
        self._number = 0

    async def sends(self, *payloads: Any) -> Any:
        """Deliver results, all in one frame: deltas, or payloads by name."""
        results = []
        for payload in payloads:
            self._number += 1
            fields = (
                {"message_delta": payload}
                if isinstance(payload, result_pb2.MessageDelta)
                else payload
            )
            results.append(a_result(self._number, **fields))
        return await self.delivery.pass_on(a_frame(results))

    async def ends(self, outcome: Outcome) -> RunRecord:
        """Commit the end and show it, as the run itself does."""
        await self.run._end(outcome)
        self._orchestrator._active.pop("run-1")
        return self.run.ended.result()

    async def stored(self) -> list[result_pb2.RunResult]:
        """Return the durable results, once everything handed in is written."""
        await self._stores.journal.flush()
        return [
            result_pb2.RunResult.FromString(record.payload)
            for record in await self._stores.ledger.results("run-1")
        ]


async def begun(
    stores: Stores,
    services: RunServices,
    orchestrator: Orchestrator,
    *,
    event: Event | None = None,
    agent: Agent | None = None,
    **changes: Any,
) -> Conversation:
    """Return a run that was accepted and is under way."""
    event, agent = event or an_event(), agent or an_agent()
    record = a_run_record(event, **changes)
    await stores.ledger.accept(event.record("run-1"), record, event.transcript_item("run-1"))
    await stores.ledger.advance("run-1", RunStatus.RUNNING, at=NOON)
    run = ActiveRun(
        record=record,
        event=event,
        agent=agent,
        turn=Sessions().enter("session", "run-1", in_order=True, came_at=NOON),
        place=Admission(active=1, waiting=0).enter(),
        services=services,
    )
    orchestrator._active["run-1"] = run
    return Conversation(run, stores, orchestrator)


def results_of(batch: object) -> list[result_pb2.RunResult]:
    """Return the results in a batch."""
    assert isinstance(batch, Batch)
    results = list(gateway_pb2.ResultBatch.FromString(batch.encoded).results)
    assert results[-1].sequence <= batch.last_sequence
    return results


async def read_to_end(items: AsyncIterator[object]) -> list[result_pb2.RunResult]:
    """Return all that a watcher gets; its last item must be the end."""
    results: list[result_pb2.RunResult] = []
    last: object = None
    async for item in items:
        assert not isinstance(last, Ended)
        last = item
        if isinstance(item, Batch):
            results += results_of(item)
    assert isinstance(last, Ended)
    return results
