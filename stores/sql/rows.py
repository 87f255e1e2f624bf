"""Between the records of events and runs, and rows: pure functions, a pair for each.

Rows are dictionaries by column on the way in, which checks them, and tuples in the order of the
selected columns on the way out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from stores.errors import InvalidRecord
from stores.records import (
    Checkpoint,
    EventRecord,
    Failure,
    LogEntry,
    ResultRecord,
    RunRecord,
    RunStatus,
    RunWarning,
    TranscriptItem,
    Usage,
)
from stores.sql.connection import Row
from stores.sql.search_terms import item_terms
from stores.sql.values import (
    check_ids,
    check_integers,
    check_keys,
    check_text,
    microseconds,
    optional_microseconds,
    optional_time,
    time,
)

Encoded = dict[str, Any]

SUMMARY_CHARACTERS = 1_000


def event_row(event: EventRecord, *, run_id: str | None) -> Encoded:
    """Encode an event."""
    kind = "event"
    check_ids(
        kind,
        workspace=event.workspace,
        bot=event.bot,
        source=event.source,
        event_id=event.event_id,
        type=event.type,
        run_id=run_id,
    )
    check_keys(kind, conversation_key=event.conversation_key)
    check_text(kind, "input_summary", event.input_summary)
    if len(event.input_summary) > SUMMARY_CHARACTERS:
        rule = f"must be at most {SUMMARY_CHARACTERS} characters, is {len(event.input_summary)}"
        raise InvalidRecord(kind, "input_summary", rule)
    return {
        "workspace": event.workspace,
        "bot": event.bot,
        "source": event.source,
        "event_id": event.event_id,
        "type": event.type,
        "digest": event.digest,
        "conversation_key": event.conversation_key,
        "occurred_at": optional_microseconds(kind, "occurred_at", event.occurred_at),
        "received_at": microseconds(kind, "received_at", event.received_at),
        "input_summary": event.input_summary,
        "envelope": event.envelope,
        "run_id": run_id,
    }


def event_record(row: Row) -> EventRecord:
    """Decode a row of `events`, without its position."""
    return EventRecord(
        workspace=row[0],
        bot=row[1],
        source=row[2],
        event_id=row[3],
        type=row[4],
        digest=row[5],
        conversation_key=row[6],
        occurred_at=optional_time(row[7]),
        received_at=time(row[8]),
        input_summary=row[9],
        envelope=row[10],
        run_id=row[11],
    )


def entry_row(entry: LogEntry) -> Encoded:
    """Encode a log entry."""
    kind = "log entry"
    check_ids(kind, run_id=entry.run_id, kind=entry.kind)
    check_integers(kind, sequence=entry.sequence)
    return {
        "run_id": entry.run_id,
        "kind": entry.kind,
        "at": microseconds(kind, "at", entry.at),
        "sequence": entry.sequence,
        "payload": entry.payload,
    }


def entry_record(row: Row) -> LogEntry:
    """Decode a row of `log_entries`."""
    position, run_id, kind, at, sequence, payload = row
    return LogEntry(
        run_id=run_id,
        kind=kind,
        at=time(at),
        payload=payload,
        sequence=sequence,
        position=position,
    )


def snapshot_row(snapshot: bytes) -> Encoded:
    """Encode the agent as it was for a run; equal ones have the same digest."""
    return {"digest": hashlib.sha256(snapshot).digest(), "snapshot": snapshot}


def run_row(run: RunRecord, *, snapshot_digest: bytes, resolution: str | None) -> Encoded:
    """Encode a run; its latest cursor position is found when it is written."""
    kind = "run"
    check_text(kind, "resolution", resolution)
    check_ids(
        kind,
        run_id=run.run_id,
        workspace=run.workspace,
        bot=run.bot,
        event_source=run.event_source,
        event_id=run.event_id,
        agent_id=run.agent_id,
        binding_id=run.binding_id,
        runner_id=run.runner_id,
        instance_id=run.instance_id,
        steered_into=run.steered_into,
        host_id=run.host_id,
        host_incarnation=run.host_incarnation,
        replay_of=run.replay_of,
    )
    check_keys(kind, conversation_key=run.conversation_key, session_key=run.session_key)
    check_integers(
        kind,
        agent_revision=run.agent_revision,
        last_sequence=run.last_sequence,
        reserved_sequence=run.reserved_sequence,
    )
    return {
        "run_id": run.run_id,
        "workspace": run.workspace,
        "bot": run.bot,
        "event_source": run.event_source,
        "event_id": run.event_id,
        "status": int(run.status),
        "agent_id": run.agent_id,
        "agent_revision": run.agent_revision,
        "binding_id": run.binding_id,
        "runner_id": run.runner_id,
        "instance_id": run.instance_id,
        "conversation_key": run.conversation_key,
        "session_key": run.session_key,
        "created_at": microseconds(kind, "created_at", run.created_at),
        "queued_at": optional_microseconds(kind, "queued_at", run.queued_at),
        "started_at": optional_microseconds(kind, "started_at", run.started_at),
        "first_delta_at": optional_microseconds(kind, "first_delta_at", run.first_delta_at),
        "ended_at": optional_microseconds(kind, "ended_at", run.ended_at),
        "deadline": optional_microseconds(kind, "deadline", run.deadline),
        "usage": usage_text(run.usage),
        "failure": failure_text(run.failure),
        "warnings": warnings_text(run.warnings),
        "last_sequence": run.last_sequence,
        "reserved_sequence": run.reserved_sequence,
        "host_id": run.host_id,
        "host_incarnation": run.host_incarnation,
        "agent_snapshot_digest": snapshot_digest,
        "steered_into": run.steered_into,
        "replay_of": run.replay_of,
        "resolution": resolution,
        "course": None,
    }


def run_record(row: Row) -> RunRecord:
    """Decode a run as `runs` selects it: its columns in their order, and last the snapshot."""
    return RunRecord(
        run_id=row[0],
        workspace=row[1],
        bot=row[2],
        event_source=row[3],
        event_id=row[4],
        status=RunStatus(row[5]),
        agent_id=row[6],
        agent_revision=row[7],
        binding_id=row[8],
        runner_id=row[9],
        instance_id=row[10],
        conversation_key=row[11],
        session_key=row[12],
        created_at=time(row[13]),
        queued_at=optional_time(row[14]),
        started_at=optional_time(row[15]),
        first_delta_at=optional_time(row[16]),
        ended_at=optional_time(row[17]),
        deadline=optional_time(row[18]),
        usage=_usage(row[19]),
        failure=_failure(row[20]),
        warnings=warnings_of(row[21]),
        last_sequence=row[22],
        reserved_sequence=row[23],
        latest_cursor_position=row[24],
        host_id=row[25],
        host_incarnation=row[26],
        steered_into=row[27],
        replay_of=row[28],
        agent_snapshot=row[-1],
    )


def usage_text(usage: Iterable[Usage] | None) -> str | None:
    """Encode usage as JSON; `None` for none."""
    if not usage:
        return None
    rows = []
    for one in usage:
        check_ids("usage", model_id=one.model_id)
        row = [
            one.model_id,
            one.input_tokens,
            one.output_tokens,
            one.reasoning_tokens,
            one.cache_read_tokens,
            one.cache_write_tokens,
        ]
        rows.append(row)
    return json.dumps(rows, ensure_ascii=False)


def _usage(text: str | None) -> tuple[Usage, ...]:
    return () if text is None else tuple(Usage(*row) for row in json.loads(text))


def failure_text(failure: Failure | None) -> str | None:
    """Encode a failure as JSON; `None` for none."""
    if failure is None:
        return None
    check_ids("failure", code=failure.code)
    check_text("failure", "message", failure.message)
    for name, value in failure.details.items():
        check_text("failure", "details", name)
        check_text("failure", f"details[{name!r}]", value)
    row = [failure.code, failure.message, failure.retryable, dict(failure.details)]
    return json.dumps(row, ensure_ascii=False)


def _failure(text: str | None) -> Failure | None:
    return None if text is None else Failure(*json.loads(text))


def warnings_text(warnings: Iterable[RunWarning]) -> str | None:
    """Encode a run's warnings as JSON; `None` for none."""
    kind = "run warning"
    rows = []
    for warning in warnings:
        check_ids(kind, code=warning.code)
        check_text(kind, "message", warning.message)
        rows.append([warning.code, warning.message, microseconds(kind, "at", warning.at)])
    return json.dumps(rows, ensure_ascii=False) if rows else None


def warnings_of(text: str | None) -> tuple[RunWarning, ...]:
    """Decode a run's warnings."""
    if text is None:
        return ()
    return tuple(RunWarning(code, message, time(at)) for code, message, at in json.loads(text))


def result_row(result: ResultRecord) -> Encoded:
    """Encode a durable result."""
    kind = "result"
    check_ids(kind, run_id=result.run_id, kind=result.kind)
    check_integers(
        kind,
        sequence=result.sequence,
        first_sequence=result.first_sequence,
        runner_sequence=result.runner_sequence,
    )
    return {
        "run_id": result.run_id,
        "sequence": result.sequence,
        "first_sequence": result.first_sequence,
        "runner_sequence": result.runner_sequence,
        "kind": result.kind,
        "at": microseconds(kind, "at", result.at),
        "payload": result.payload,
    }


def result_record(row: Row) -> ResultRecord:
    """Decode a row of `run_results`."""
    run_id, sequence, first_sequence, runner_sequence, kind, at, payload = row
    return ResultRecord(run_id, sequence, first_sequence, runner_sequence, kind, payload, time(at))


def checkpoint_row(checkpoint: Checkpoint) -> Encoded:
    """Encode a checkpoint."""
    kind = "checkpoint"
    check_ids(kind, run_id=checkpoint.run_id, message_id=checkpoint.message_id)
    check_text(kind, "text", checkpoint.text)
    check_text(kind, "reasoning", checkpoint.reasoning)
    check_integers(kind, sequence=checkpoint.sequence)
    return {
        "run_id": checkpoint.run_id,
        "message_id": checkpoint.message_id,
        "sequence": checkpoint.sequence,
        "at": microseconds(kind, "at", checkpoint.at),
        "text": checkpoint.text,
        "reasoning": checkpoint.reasoning,
    }


def checkpoint_record(row: Row) -> Checkpoint:
    """Decode a row of `run_checkpoints`."""
    run_id, message_id, sequence, at, text, reasoning = row
    return Checkpoint(run_id, message_id, text, reasoning, sequence, time(at))


def item_row(item: TranscriptItem) -> Encoded:
    """Encode a transcript item; its position is given when it is written."""
    kind = "transcript item"
    check_ids(
        kind,
        transcript_id=item.transcript_id,
        workspace=item.workspace,
        bot=item.bot,
        event_id=item.event_id,
        run_id=item.run_id,
        runner_id=item.runner_id,
        role=item.role,
        kind=item.kind,
    )
    check_keys(kind, conversation_key=item.conversation_key)
    check_text(kind, "text", item.text)
    return {
        "transcript_id": item.transcript_id,
        "conversation_key": item.conversation_key,
        "workspace": item.workspace,
        "bot": item.bot,
        "event_id": item.event_id,
        "run_id": item.run_id,
        "runner_id": item.runner_id,
        "role": item.role,
        "kind": item.kind,
        "created_at": microseconds(kind, "created_at", item.created_at),
        "incomplete": item.incomplete,
        "actor": item.actor,
        "text": item.text,
        "content": item.content,
        "terms": item_terms(item.text, item.conversation_key, item.workspace),
    }


def item_record(row: Row) -> TranscriptItem:
    """Decode a row of the `item_columns` of `transcript_items`."""
    return TranscriptItem(
        transcript_id=row[0],
        conversation_key=row[1],
        position=row[2],
        workspace=row[3],
        bot=row[4],
        event_id=row[5],
        run_id=row[6],
        runner_id=row[7],
        role=row[8],
        kind=row[9],
        created_at=time(row[10]),
        incomplete=bool(row[11]),
        actor=row[12],
        text=row[13],
        content=row[14],
    )
