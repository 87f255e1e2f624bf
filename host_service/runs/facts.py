"""What a run's results leave in the stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from runmesh.v1 import result_pb2, types_pb2

from host_service.identity import new_id
from host_service.runs.checker import Numbered
from host_service.runs.event import Event
from host_service.runs.progress import Progress
from host_service.runs.transcript import item_of_message
from stores.records import LogEntry, ResultRecord, TranscriptItem, Usage

# Results that are facts of the event log beside being results.
_LOGGED = frozenset(
    {
        "tool_call_started",
        "tool_call_completed",
        "artifact_created",
        "action_requested",
        "run_failed",
    }
)


@dataclass(frozen=True, slots=True)
class Projection:
    """What one durable result leaves beside itself.

    Attributes:
        item: A transcript item, or None.
        closed_message_id: The message in progress that it completes, or empty.
    """

    item: TranscriptItem | None = None
    closed_message_id: str = ""


class Projector:
    """Turns the durable results of one run into records.

    It keeps what a result owes to those before it: artifacts that wait for a message, ids of
        completed messages.
    """

    def __init__(self, *, run_id: str, runner_id: str, event: Event, progress: Progress) -> None:
        self._run_id = run_id
        self._runner_id = runner_id
        self._event = event
        self._progress = progress
        self._artifacts: list[types_pb2.ArtifactRef] = []
        self._completed: set[str] = set()
        self.said_something = False
        self.usage: tuple[Usage, ...] | None = None

    def project(self, result: result_pb2.RunResult, kind: str) -> Projection:
        """Take in one durable result; complete it where the host owes it something."""
        if kind == "message_completed":
            return self._message(result.message_completed)
        if kind == "artifact_created":
            self.said_something = True
            self._attach(result.artifact_created.ref)
        elif kind == "action_requested":
            self.said_something = True
        elif kind == "usage_reported":
            self.note_usage(result.usage_reported.usage, replace=False)
        return Projection()

    def _attach(self, ref: types_pb2.ArtifactRef) -> None:
        """Let an artifact wait for the next message; one that waits already does so once."""
        if all(ref.artifact_id != each.artifact_id for each in self._artifacts):
            self._artifacts.append(ref)

    def note_usage(self, reported: Iterable[types_pb2.TokenUsage], *, replace: bool) -> None:
        """Take in usage: of the models named, or of all where it is the final word."""
        usage = {} if replace else {entry.model_id: entry for entry in self.usage or ()}
        for entry in reported:
            usage[entry.model_id] = usage_record(entry)
        self.usage = tuple(usage.values())

    def last_messages(
        self, completed: result_pb2.RunCompleted | None
    ) -> list[result_pb2.RunResult]:
        """Return the messages that the host completes at the end of a run.

        What was shown in deltas and not completed by the runner; then the message that came with
        the run's end, unless one was completed before and its id is not new, in the place of its
        own deltas; then one for artifacts that no message took along.
        """
        final = self._final_message(completed)
        results = [
            self._result(unfinished.completed(incomplete=completed is None))
            for unfinished in self._progress.close_all()
        ]
        if final is not None:
            results.append(self._result(result_pb2.MessageCompleted(message=final)))
        if self._artifacts and not results:
            message = types_pb2.ChatMessage(role=types_pb2.CHAT_ROLE_ASSISTANT)
            results.append(self._result(result_pb2.MessageCompleted(message=message)))
        return results

    def _final_message(
        self, completed: result_pb2.RunCompleted | None
    ) -> types_pb2.ChatMessage | None:
        """Return the message that came with the end, with its id; its deltas are taken out."""
        if completed is None or not completed.HasField("message"):
            return None
        final = completed.message
        if not self._is_new(final.message_id):
            return None
        replaced = self._progress.close(final.message_id)
        if replaced is not None and not final.message_id:
            final.message_id = replaced.message_id
        return final

    def _result(self, message: result_pb2.MessageCompleted) -> result_pb2.RunResult:
        return result_pb2.RunResult(run_id=self._run_id, message_completed=message)

    def _is_new(self, message_id: str) -> bool:
        return not self._completed or (bool(message_id) and message_id not in self._completed)

    def _message(self, completed: result_pb2.MessageCompleted) -> Projection:
        message = completed.message
        closed = self._progress.close(message.message_id)
        message.message_id = message.message_id or (closed.message_id if closed else new_id())
        message.role = message.role or types_pb2.CHAT_ROLE_ASSISTANT
        present = {artifact.artifact_id for artifact in message.artifacts}
        message.artifacts.extend(ref for ref in self._artifacts if ref.artifact_id not in present)
        self._artifacts.clear()
        self._completed.add(message.message_id)
        if says_something(message):
            self.said_something = True
        return Projection(self._item(completed), closed.message_id if closed else "")

    def _item(self, completed: result_pb2.MessageCompleted) -> TranscriptItem | None:
        if not self._event.conversation_key:
            return None
        envelope = self._event.envelope
        return item_of_message(
            completed,
            conversation_key=self._event.conversation_key,
            workspace=envelope.workspace_id,
            bot=envelope.bot_id,
            event_id=envelope.event_id,
            run_id=self._run_id,
            runner_id=self._runner_id,
            created_at=datetime.now(UTC),
        )


def says_something(message: types_pb2.ChatMessage) -> bool:
    """Return whether a message has anything to show; empty text is nothing."""
    return bool(message.artifacts) or any(
        part.text or not part.HasField("text") for part in message.parts
    )


def result_record(numbered: Numbered, at: datetime) -> ResultRecord:
    """Return a durable result as the ledger keeps it."""
    result = numbered.result
    return ResultRecord(
        run_id=result.run_id,
        sequence=result.sequence,
        first_sequence=result.first_sequence,
        runner_sequence=numbered.runner_sequence,
        kind=numbered.kind,
        payload=result.SerializeToString(),
        at=at,
    )


def log_entries(records: Sequence[ResultRecord]) -> tuple[LogEntry, ...]:
    """Return those results that are facts of the event log as well."""
    return tuple(
        LogEntry(
            run_id=each.run_id,
            kind=each.kind,
            at=each.at,
            payload=each.payload,
            sequence=each.sequence,
        )
        for each in records
        if each.kind in _LOGGED
    )


def usage_record(usage: types_pb2.TokenUsage) -> Usage:
    """Return usage as the ledger keeps it; what was not reported is unknown."""

    def count(name: str) -> int | None:
        return getattr(usage, name) if usage.HasField(name) else None  # type: ignore[arg-type]  # one of its fields

    return Usage(
        model_id=usage.model_id,
        input_tokens=count("input_tokens"),
        output_tokens=count("output_tokens"),
        reasoning_tokens=count("reasoning_tokens"),
        cache_read_tokens=count("cache_read_tokens"),
        cache_write_tokens=count("cache_write_tokens"),
    )
