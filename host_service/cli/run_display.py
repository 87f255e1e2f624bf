"""Runs for people: a table of them, and one in full."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp
from runmesh.v1 import gateway_pb2, result_pb2, types_pb2

from host_service.cli.display import print_facts, print_table, words
from host_service.cli.failures import one_line
from host_service.cli.times import how_long_ago, local_time, moment, span, span_of

_LONGEST_TEXT = 60


def print_runs(runs: Sequence[gateway_pb2.Run]) -> None:
    """Prints runs as a table."""
    now = datetime.now(UTC)
    print_table(
        ["RUN", "STATUS", "CREATED", "TOOK", "AGENT"],
        [
            [
                run.run_id,
                _status(run),
                how_long_ago(run.created_at, now=now),
                _took(run, now),
                run.agent_id,
            ]
            for run in runs
        ],
        empty="no runs",
    )


def print_run(run: gateway_pb2.Run, results: Sequence[result_pb2.RunResult]) -> None:
    """Prints one run: who, when, what came of it, and what was odd."""
    chosen_by = f"chosen by binding {run.binding_id}" if run.binding_id else "named by the caller"
    print_facts(
        [
            ("run", run.run_id),
            ("status", _status(run)),
            ("failure", _failure(run)),
            *(("", f"{name}: {value}") for name, value in sorted(run.failure.details.items())),
            ("agent", f"{run.agent_id} ({chosen_by})"),
            ("runner", run.runner_id),
            ("instance", run.instance_id),
            ("event", run.event_id),
            ("conversation", run.conversation_key),
            ("session", run.session_key),
            ("replay of", run.replay_of),
            ("steered into", run.steered_into),
            ("created", local_time(run.created_at)),
            ("queued", _after(run, "queued_at")),
            ("started", _after(run, "started_at")),
            ("first delta", _after(run, "first_delta_at")),
            ("ended", _after(run, "ended_at")),
            ("deadline", _after(run, "deadline")),
            *(("usage", _usage(usage)) for usage in run.usage),
        ]
    )
    if run.warnings:
        print_table(
            ["WARNING", "AFTER", "WHAT HAPPENED"],
            [
                [warning.code, span(run.created_at, warning.time), one_line(warning.message)]
                for warning in run.warnings
            ],
            after_blank_line=True,
        )
    if results:
        print_table(
            ["NUMBERS", "RESULT", ""],
            [[_numbers(result), _kind(result), _in_short(result)] for result in results],
            after_blank_line=True,
        )


def _status(run: gateway_pb2.Run) -> str:
    return words(gateway_pb2.RunStatus, run.status)


def _failure(run: gateway_pb2.Run) -> str:
    if not run.HasField("failure"):
        return ""
    again = " (the same event may succeed later)" if run.failure.retryable else ""
    return f"{run.failure.code}: {run.failure.message}{again}"


def _took(run: gateway_pb2.Run, now: datetime) -> str:
    if run.HasField("ended_at"):
        return span(run.created_at, run.ended_at)
    return f"{span_of(max(0.0, (now - moment(run.created_at)).total_seconds()))} so far"


def _after(run: gateway_pb2.Run, name: str) -> str:
    if not run.HasField(name):  # type: ignore[arg-type]
        return ""
    time: Timestamp = getattr(run, name)
    return f"after {span(run.created_at, time)}"


def _usage(usage: types_pb2.TokenUsage) -> str:
    counts = [
        (usage.HasField("input_tokens"), usage.input_tokens, "read"),
        (usage.HasField("cache_read_tokens"), usage.cache_read_tokens, "of them cached"),
        (usage.HasField("output_tokens"), usage.output_tokens, "written"),
        (usage.HasField("reasoning_tokens"), usage.reasoning_tokens, "of them reasoning"),
    ]
    told = ", ".join(f"{count} {what}" for known, count, what in counts if known)
    return f"{usage.model_id}: {told or 'unknown'} tokens"


def _numbers(result: result_pb2.RunResult) -> str:
    first = result.first_sequence or result.sequence
    return f"{result.sequence}" if first == result.sequence else f"{first}-{result.sequence}"


def _kind(result: result_pb2.RunResult) -> str:
    return result.WhichOneof("payload") or "of a later version"


def _in_short(result: result_pb2.RunResult) -> str:
    kind = result.WhichOneof("payload")
    return _SHORT_FORMS[kind](result) if kind in _SHORT_FORMS else ""


def _message(completed: result_pb2.MessageCompleted) -> str:
    text = _text("".join(part.text for part in completed.message.parts))
    return f"{text} (incomplete)" if completed.incomplete else text


def _file(artifact: types_pb2.ArtifactRef) -> str:
    return f"{artifact.name or artifact.type} {artifact.artifact_id}"


_SHORT_FORMS: dict[str, Callable[[result_pb2.RunResult], str]] = {
    "message_delta": lambda result: _text(
        result.message_delta.text or result.message_delta.reasoning_text
    ),
    "message_completed": lambda result: _message(result.message_completed),
    "tool_call_started": lambda result: result.tool_call_started.tool_name,
    "tool_call_completed": lambda result: (
        f"{result.tool_call_completed.tool_name} {result.tool_call_completed.error_code}".rstrip()
    ),
    "artifact_created": lambda result: _file(result.artifact_created.ref),
    "state_updated": lambda result: result.state_updated.key,
    "action_requested": lambda result: result.action_requested.action,
    "log": lambda result: _text(result.log.text),
    "run_completed": lambda result: result.run_completed.finish_reason,
    "run_failed": lambda result: f"{result.run_failed.code}: {_text(result.run_failed.message)}",
}


def _text(text: str) -> str:
    line = one_line(text)
    return (
        line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}… ({len(text)} characters)"
    )
