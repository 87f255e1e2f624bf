"""The golden messages: fixed values that set every field between host, runner and caller."""

from collections.abc import Iterator

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from runmesh.v1 import attach_pb2, discovery_pb2, gateway_pb2, run_pb2

from tests.contract.golden.contexts import run_request
from tests.contract.golden.events import bare_event, joined_event, message_event
from tests.contract.golden.files import file_name
from tests.contract.golden.manifests import manifest, smallest_manifest
from tests.contract.golden.results import every_result, frame
from tests.contract.golden.values import BEYOND_DOUBLE, EARLY, JSON, LATE, RUN_ID, TEXT, TIME, usage

# Field 3, `on_disconnect`, with a value that no enum has yet, and an unknown field 1000 with text.
_FROM_A_LATER_VERSION = b"\x18\x63" + b"\xc2\x3e\x05later"


def golden_messages() -> dict[str, Message]:
    """Returns every golden message by the name of its files."""
    return {file_name(message, case): message for case, message in _cases()}


def _cases() -> Iterator[tuple[str, Message]]:
    yield "full", run_request()
    yield "minimal", run_pb2.RunRequest(runner_id="plugin:runmesh/echo/default")
    for result in every_result():
        yield str(result.WhichOneof("payload")), run_pb2.RunResponse(results=[result])
    yield "frame", frame()
    yield (
        "default",
        run_pb2.InterruptRequest(run_id=RUN_ID, reason="follow_up", grace=Duration(seconds=5)),
    )
    yield "default", run_pb2.InterruptResponse(was_active=True)
    yield "message", message_event()
    yield "without_input", joined_event()
    yield "set_to_defaults", bare_event()
    yield "full", manifest()
    yield "minimal", smallest_manifest()
    yield "default", handshake_request()
    yield "default", handshake_response()
    yield from _gateway()
    yield from _attach()
    yield from _errors()


def handshake_request() -> discovery_pb2.HandshakeRequest:
    """The host's half of the handshake."""
    return discovery_pb2.HandshakeRequest(
        host_id="host-1",
        host_name=TEXT,
        host_version="0.1.0",
        protocol_versions=["1", "2"],
        settings_json=JSON,
    )


def handshake_response() -> discovery_pb2.HandshakeResponse:
    """The runner's half of the handshake."""
    return discovery_pb2.HandshakeResponse(
        protocol_version="1",
        plugin_id="acme/echo",
        plugin_version="1.2.3",
        sdk_name="acme-sdk",
        sdk_language="go",
        sdk_version="0.9.0",
        max_concurrent_runs=2147483647,
        instance_id="3f0e5a0c",
    )


def run() -> gateway_pb2.Run:
    """A run with everything that can be said of one."""
    return gateway_pb2.Run(
        run_id=RUN_ID,
        event_id="evt-1",
        status=gateway_pb2.RUN_STATUS_FAILED,
        agent_id="default",
        binding_id="default",
        runner_id="plugin:runmesh/echo/default",
        instance_id="3f0e5a0c",
        conversation_key="w/b/c/t",
        session_key="s",
        created_at=EARLY,
        queued_at=TIME,
        started_at=TIME,
        first_delta_at=TIME,
        ended_at=LATE,
        deadline=LATE,
        usage=[usage()],
        failure=gateway_pb2.RunFailure(
            code="runner.error", message=TEXT, retryable=True, details={"b": "2", "a": "1", "": ""}
        ),
        warnings=[gateway_pb2.RunWarning(code="sequence_gap", message=TEXT, time=TIME)],
        last_sequence=BEYOND_DOUBLE,
        duplicate=True,
        replay_of="0198c0de-0000-7000-8000-000000000002",
        steered_into="0198c0de-0000-7000-8000-000000000003",
    )


def _gateway() -> Iterator[tuple[str, Message]]:
    yield (
        "full",
        gateway_pb2.DispatchRequest(
            event=message_event(),
            agent_id="default",
            on_disconnect=gateway_pb2.ON_DISCONNECT_CANCEL,
            follow_up=gateway_pb2.FOLLOW_UP_STEER,
        ),
    )
    later = gateway_pb2.DispatchRequest(event=joined_event())
    later.MergeFromString(_FROM_A_LATER_VERSION)
    yield "from_a_later_version", later
    batch = gateway_pb2.ResultBatch(results=every_result())
    for kind, item in (("accepted", run()), ("results", batch), ("ended", run())):
        yield kind, gateway_pb2.DispatchResponse(**{kind: item})  # type: ignore[arg-type]
        yield kind, gateway_pb2.WatchRunResponse(**{kind: item})  # type: ignore[arg-type]
    yield "bookmark", gateway_pb2.DispatchResponse(bookmark=BEYOND_DOUBLE)
    yield "bookmark_at_zero", gateway_pb2.DispatchResponse(bookmark=0)
    yield "bookmark", gateway_pb2.WatchRunResponse(bookmark=BEYOND_DOUBLE)


def _attach() -> Iterator[tuple[str, Message]]:
    hello = attach_pb2.AttachHello(
        protocol_versions=["1"], handshake=handshake_response(), runners=[manifest()]
    )
    welcome = attach_pb2.AttachWelcome(
        host=handshake_request(), protocol_version="1", initial_credit=64
    )
    yield "hello", attach_pb2.AttachRequest(hello=hello)
    developers = attach_pb2.AttachHello(
        protocol_versions=["1"],
        handshake=handshake_response(),
        runners=[manifest()],
        development=True,
        host_address="host.example:7443",
    )
    yield "hello_of_a_developer", attach_pb2.AttachRequest(hello=developers)
    yield (
        "results",
        attach_pb2.AttachRequest(
            results=attach_pb2.AttachResults(run_id=RUN_ID, results=frame().results)
        ),
    )
    yield (
        "run_ended",
        attach_pb2.AttachRequest(
            run_ended=attach_pb2.AttachRunEnded(run_id=RUN_ID, status_code=14, status_message=TEXT)
        ),
    )
    yield (
        "interrupt_answer",
        attach_pb2.AttachRequest(
            interrupt_answer=attach_pb2.AttachInterruptAnswer(run_id=RUN_ID, was_active=True)
        ),
    )
    yield "health", attach_pb2.AttachRequest(health=attach_pb2.AttachHealth(serving=True))
    # Nothing but the choice itself is on the wire.
    yield "health_not_serving", attach_pb2.AttachRequest(health=attach_pb2.AttachHealth())
    yield "welcome", attach_pb2.AttachResponse(welcome=welcome)
    yield "run", attach_pb2.AttachResponse(run=run_request())
    traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    yield "run_with_metadata", attach_pb2.AttachResponse(run=run_request(), metadata=traced)
    yield "interrupt", attach_pb2.AttachResponse(interrupt=run_pb2.InterruptRequest(run_id=RUN_ID))
    yield (
        "cancel",
        attach_pb2.AttachResponse(cancel=attach_pb2.AttachCancel(run_id=RUN_ID, reason=TEXT)),
    )
    yield (
        "credit",
        attach_pb2.AttachResponse(
            credit=attach_pb2.AttachCredit(run_id=RUN_ID, results=2147483647)
        ),
    )


def _errors() -> Iterator[tuple[str, Message]]:
    violation = error_details_pb2.BadRequest.FieldViolation(
        field="event.actor.id",
        description="event.actor.id: up to 255 bytes; got string of 300 bytes",
    )
    yield (
        "invalid_argument",
        _status(
            code_pb2.INVALID_ARGUMENT,
            _info("INVALID_ARGUMENT", {"run_id": RUN_ID}),
            error_details_pb2.BadRequest(field_violations=[violation]),
        ),
    )
    yield (
        "overloaded",
        _status(
            code_pb2.RESOURCE_EXHAUSTED,
            _info("OVERLOADED", {}),
            error_details_pb2.RetryInfo(retry_delay=Duration(seconds=1, nanos=500000000)),
        ),
    )


def _info(reason: str, metadata: dict[str, str]) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain="runmesh", metadata=metadata)


def _status(code: int, *details: Message) -> status_pb2.Status:
    packed = []
    for detail in details:
        holder = Any()
        holder.Pack(detail, deterministic=True)
        packed.append(holder)
    return status_pb2.Status(code=code, message=TEXT, details=packed)
