"""A conversation in real stores, and runs that read it through the gate."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from runmesh.v1 import event_pb2, host_api_pb2, result_pb2, types_pb2

from host_service.agents.prompts import Prompts
from host_service.authorization.tokens import RunAccess, RunTokens, Told
from host_service.capabilities.events import Events
from host_service.capabilities.gate import Gate
from host_service.capabilities.history import History
from host_service.capabilities.prompt import Prompt
from host_service.capabilities.transcript_pages import TranscriptPages
from host_service.capabilities.whole_texts import WholeTexts
from host_service.limits import Limits
from host_service.pages import PageTokens
from host_service.runs.conversation import Conversation
from host_service.runs.cursors import Cursors
from host_service.runs.event import Event, take_in
from host_service.runs.transcript import item_of_message
from host_service.validation import Validator
from stores import Stores
from stores.records import RunFacts, RunRecord
from tests.unit.capabilities.test_gate import rights

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
PERMISSIONS = {
    "history": frozenset({"page", "search"}),
    "events": frozenset({"get", "page"}),
    "artifacts": frozenset({"metadata", "read"}),
}
RUNNER = "plugin:acme/desk/default"


class Run:
    """A run that calls the host, through the gate.

    Attributes:
        access: What its tokens open.
    """

    def __init__(self, access: RunAccess, *, gate: Gate, history: History, events: Events) -> None:
        self.access = access
        self._gate = gate
        self._work = {
            "PageHistory": history.page,
            "SearchHistory": history.search,
            "GetEvent": events.get,
            "PageEvents": events.page,
            "GetPrompt": Prompt().get,
        }

    async def call(self, rpc: str, **fields: Any) -> Any:
        """Call, and return the response as a message."""
        request = getattr(host_api_pb2, f"{rpc}Request")(**fields)
        work: Any = self._work[rpc]
        answer: Any = await self._gate.answer(rpc, self.access, request, work)
        if isinstance(answer, bytes):
            return getattr(host_api_pb2, f"{rpc}Response").FromString(answer)
        return answer

    async def page(self, **fields: Any) -> list[str]:
        """Return the texts of a page of history."""
        return texts((await self.call("PageHistory", **fields)).items)

    async def all_pages(self, rpc: str, **fields: Any) -> list[Any]:
        """Return every page that there is."""
        pages = [await self.call(rpc, **fields)]
        while pages[-1].next_page_token:
            token = pages[-1].next_page_token
            pages.append(await self.call(rpc, **fields, page_token=token))
        return pages


class Room:
    """A conversation of workspace `acme` and bot `desk`, and what reads it.

    Attributes:
        limits: Those in force.
        stores: What all of it works on.
        pages: Reads and encodes its pages.
    """

    def __init__(self, stores: Stores, **limits: Any) -> None:
        self.limits = replace(Limits(), **limits)
        self.stores = stores
        self._numbers = count(1)
        tokens = PageTokens(limits=self.limits)
        self.pages = TranscriptPages(
            transcript=stores.transcript,
            texts=WholeTexts(artifacts=stores.artifacts, limits=self.limits),
            limits=self.limits,
        )
        self._history = History(transcript=self.pages, pages=tokens)
        self._events = Events(log=stores.events, pages=tokens, limits=self.limits)
        self._gate = Gate(
            audit=stores.audit,
            validator=Validator(self.limits.as_mapping()),
            clock=lambda: datetime.now(UTC),
        )

    def envelope(self, text: str | None = None, **fields: Any) -> event_pb2.EventEnvelope:
        """Return an event of the room, unless fields say otherwise."""
        usual: dict[str, Any] = {
            "event_id": f"event-{next(self._numbers)}",
            "type": "message.received",
            "workspace_id": "acme",
            "bot_id": "desk",
            "conversation_id": "room",
            "actor": event_pb2.Actor(type="user", id="ann"),
        }
        envelope = event_pb2.EventEnvelope(**(usual | fields))
        if text is not None:
            envelope.input.text = text
        return envelope

    async def hears(self, text: str | None = None, **fields: Any) -> Event:
        """Take an event in, with a run of its own whose id is `run of` the event's."""
        envelope = self.envelope(text, **fields)
        at = NOON + timedelta(seconds=next(self._numbers))
        event = take_in(envelope, received_at=at, limits=self.limits)
        run = RunRecord(
            run_id=f"run of {envelope.event_id}",
            workspace=envelope.workspace_id,
            bot=envelope.bot_id,
            event_source=event.identity().source,
            event_id=envelope.event_id,
            agent_id="default",
            agent_revision=1,
            runner_id=RUNNER,
            conversation_key=event.conversation_key,
            session_key="session",
            created_at=at,
            host_id="host",
            host_incarnation="start",
            agent_snapshot=b"",
        )
        record = event.record(run.run_id)
        await self.stores.ledger.accept(record, run, event.transcript_item(run.run_id)).committed
        return event

    async def says(
        self, event: Event, text: str = "", *, incomplete: bool = False, **fields: Any
    ) -> None:
        """Let the run of an event say something."""
        message = types_pb2.ChatMessage(**fields)
        if text:
            message.parts.insert(0, types_pb2.ContentPart(text=text))
        run_id = f"run of {event.envelope.event_id}"
        item = item_of_message(
            result_pb2.MessageCompleted(message=message, incomplete=incomplete),
            conversation_key=event.conversation_key,
            workspace="acme",
            bot="desk",
            event_id=event.envelope.event_id,
            run_id=run_id,
            runner_id=RUNNER,
            created_at=NOON,
        )
        await self.stores.ledger.record(RunFacts(run_id=run_id, items=(item,)))

    async def talk(self, *texts: str, **fields: Any) -> Event:
        """Hear texts one after the other; return the last event."""
        return [await self.hears(text, **fields) for text in texts][-1]

    async def run_of(self, event: Event, *, prompts: Prompts | None = None, **rights_: Any) -> Run:
        """Return the run of an event, as it reads the room."""
        run = await self.stores.ledger.get(f"run of {event.envelope.event_id}")
        assert run is not None
        latest = run.latest_cursor_position
        cursor = "" if latest is None else Cursors.of(event.conversation_key).encode(latest)
        return self.run(
            identity=event.identity(),
            told=Told(prompts=prompts or Prompts(), latest_cursor=lambda: cursor),
            **rights_,
        )

    def run(self, *, told: Told, **rights_: Any) -> Run:
        """Return a run with these rights."""
        tokens = RunTokens(limits=Limits(host_calls_burst=10_000))
        snapshot = rights(**({"permissions": PERMISSIONS} | rights_))
        token = tokens.issue(snapshot=snapshot, instance_token="i", told=told)
        access = tokens.check(authorization=f"Bearer {token}", instance_token="i")
        return Run(access, gate=self._gate, history=self._history, events=self._events)


def texts(items: Sequence[host_api_pb2.TranscriptItem]) -> list[str]:
    """Return the texts of items."""
    return [item.text for item in items]


def elsewhere(**fields: str) -> Conversation:
    """Return a conversation that is the room but for these fields."""
    place = {"workspace": "acme", "bot": "desk", "conversation_id": "room", "thread_id": ""}
    return Conversation(**(place | fields))
