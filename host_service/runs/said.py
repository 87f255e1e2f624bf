"""What a result says, in a few words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from runmesh.v1 import result_pb2, types_pb2

#: The longest summary, in characters.
LONGEST = 200


def in_short(result: result_pb2.RunResult) -> str:
    """Return what a result says, in one line of at most 200 characters; empty for nothing to say.

    What a runner may keep to itself is not told: values of state, parameters and results of tools.
    """
    kind = result.WhichOneof("payload")
    tell = _SHORT.get(kind) if kind else None
    line = " ".join(tell(result).split()) if tell else ""
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _text(parts: Iterable[types_pb2.ContentPart]) -> str:
    # Long enough whatever spaces are folded, and no more than is looked at.
    pieces, length = [], 0
    for part in parts:
        pieces.append(part.text[: 4 * LONGEST] if part.HasField("text") else _named(part))
        length += len(pieces[-1])
        if length > 4 * LONGEST:
            break
    return "".join(pieces)


def _named(part: types_pb2.ContentPart) -> str:
    return f"[{(part.WhichOneof('content') or 'part').replace('_', ' ')}]"


def _message(result: result_pb2.RunResult) -> str:
    completed = result.message_completed
    files = "".join(f" [{each.name or each.type}]" for each in completed.message.artifacts)
    incomplete = " (incomplete)" if completed.incomplete else ""
    return f"{_text(completed.message.parts)}{files}{incomplete}"


def _artifact(result: result_pb2.RunResult) -> str:
    created = result.artifact_created
    if created.HasField("ref"):
        return f"{created.ref.name or created.ref.type} {created.ref.artifact_id}"
    return f"{created.inline.name or created.type}, {len(created.inline.data)} bytes"


def _tool_end(result: result_pb2.RunResult) -> str:
    completed = result.tool_call_completed
    if completed.error_code:
        return f"{completed.tool_name} {completed.error_code}: {completed.error_message}"
    return completed.tool_name


def _state(result: result_pb2.RunResult) -> str:
    updated = result.state_updated
    scope = result_pb2.StateScope.Name(updated.scope) if updated.scope in _SCOPES else ""
    return f"{scope.removeprefix('STATE_SCOPE_').lower()} {updated.key}".strip()


_SCOPES = frozenset(result_pb2.StateScope.values())

_SHORT: Mapping[str, Callable[[result_pb2.RunResult], str]] = {
    "message_completed": _message,
    "tool_call_started": lambda result: result.tool_call_started.tool_name,
    "tool_call_completed": _tool_end,
    "artifact_created": _artifact,
    "state_updated": _state,
    "action_requested": lambda result: result.action_requested.action,
    "usage_reported": lambda result: ", ".join(
        each.model_id for each in result.usage_reported.usage
    ),
    "log": lambda result: result.log.text,
    "run_completed": lambda result: result.run_completed.finish_reason,
    "run_failed": lambda result: f"{result.run_failed.code}: {result.run_failed.message}",
}
