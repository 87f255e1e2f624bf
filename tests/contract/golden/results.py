"""Golden results: one of each type."""

from runmesh.v1 import result_pb2, run_pb2, types_pb2

from tests.contract.golden.values import (
    BEYOND_DOUBLE,
    JSON,
    JSON_VALUE,
    METADATA,
    RUN_ID,
    TEXT,
    TIME,
    artifact,
    chat_message,
    parts,
    usage,
)


def every_result() -> list[result_pb2.RunResult]:
    """Returns a result of each type, each with everything that it can carry."""
    inline = types_pb2.InlineContent(data=b"\x00\x01", mime_type="text/plain", name="a.txt")
    return [
        result_pb2.RunResult(
            run_id=RUN_ID,
            message_delta=result_pb2.MessageDelta(
                message_id="msg-1", text=TEXT, reasoning_text=TEXT, parts=parts()
            ),
        ),
        _durable(
            message_completed=result_pb2.MessageCompleted(message=chat_message(), incomplete=True)
        ),
        _durable(
            tool_call_started=result_pb2.ToolCallStarted(
                call_id="call-1", tool_name="search", parameters_json=JSON, preview=TEXT
            )
        ),
        _durable(
            tool_call_completed=result_pb2.ToolCallCompleted(
                call_id="call-1",
                tool_name="search",
                result_json=JSON_VALUE,
                preview=TEXT,
                error_code="timeout",
                error_message=TEXT,
            )
        ),
        _durable(
            artifact_created=result_pb2.ArtifactCreated(inline=inline, type="file", summary=TEXT)
        ),
        _durable(
            state_updated=result_pb2.StateUpdated(
                scope=result_pb2.STATE_SCOPE_CONVERSATION, key="counter", value_json="null"
            )
        ),
        _durable(
            action_requested=result_pb2.ActionRequested(
                action="message.send",
                target_json=JSON,
                payload_json=JSON,
                idempotency_key="key-1",
                approval_hint=result_pb2.APPROVAL_HINT_ADVISED,
            )
        ),
        _durable(usage_reported=result_pb2.UsageReported(usage=[usage()])),
        _durable(log=result_pb2.LogLine(level=result_pb2.LOG_LEVEL_WARNING, text=TEXT)),
        _durable(
            run_completed=result_pb2.RunCompleted(
                finish_reason="stop", message=chat_message(), usage=[usage()]
            )
        ),
        _durable(
            run_failed=result_pb2.RunFailed(
                code="runner.error",
                message=TEXT,
                retryable=True,
                details={"zeta": "1", "alpha": "2"},
            )
        ),
    ]


def frame() -> run_pb2.RunResponse:
    """Several results sent together, as runners send them."""
    deltas = [
        result_pb2.RunResult(
            run_id=RUN_ID, sequence=number, message_delta=result_pb2.MessageDelta(text=text)
        )
        for number, text in enumerate(("明", "天", ""), start=1)
    ]
    uploaded = result_pb2.RunResult(
        run_id=RUN_ID,
        sequence=4,
        artifact_created=result_pb2.ArtifactCreated(ref=artifact("art-5")),
    )
    end = result_pb2.RunResult(
        run_id=RUN_ID,
        sequence=5,
        timestamp=TIME,
        run_completed=result_pb2.RunCompleted(finish_reason="stop"),
    )
    return run_pb2.RunResponse(results=[*deltas, uploaded, end])


def _durable(**payload: object) -> result_pb2.RunResult:
    """A result as a host delivers it, with numbers beyond a double."""
    return result_pb2.RunResult(
        run_id=RUN_ID,
        sequence=BEYOND_DOUBLE + 1,
        first_sequence=BEYOND_DOUBLE,
        timestamp=TIME,
        must_understand=True,
        metadata=METADATA,
        **payload,  # type: ignore[arg-type]
    )
