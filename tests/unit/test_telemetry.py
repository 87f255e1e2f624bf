"""Tests of `host_service.telemetry`: one trace for a run, and nothing that slows it."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from host_service.telemetry import Telemetry, _wants_export
from stores.records import RunRecord
from tests.unit.runs.samples import NOON, RUNNER

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
RUN = RunRecord(
    run_id="run-1",
    workspace="",
    bot="",
    event_source="api",
    event_id="event-1",
    agent_id="helper",
    agent_revision=1,
    runner_id=RUNNER,
    conversation_key="",
    session_key="",
    created_at=NOON,
    host_id="host",
    host_incarnation="start",
    agent_snapshot=b"{}",
)


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def telemetry(spans: InMemorySpanExporter) -> Telemetry:
    telemetry = Telemetry(service_version="1.2", host_id="host")
    telemetry._provider.add_span_processor(SimpleSpanProcessor(spans))
    return telemetry


def test_callers_trace_goes_on_through_the_call_and_the_run_to_the_runner(
    telemetry: Telemetry, spans: InMemorySpanExporter
) -> None:
    metadata = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    serving = telemetry.call_span("runmesh.v1.GatewayService", "Dispatch", metadata)
    with serving, telemetry.run_span(RUN):
        outgoing = dict(telemetry.outgoing())
        assert telemetry.trace_id() == TRACE
    run, call = spans.get_finished_spans()
    assert (call.name, run.name) == (
        "runmesh.v1.GatewayService/Dispatch",
        "invoke_agent helper",
    )
    assert run.parent is not None
    assert call.context is not None
    assert run.context is not None
    assert run.parent.span_id == call.context.span_id
    assert call.parent is not None
    assert f"{call.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert outgoing["traceparent"] == f"00-{TRACE}-{run.context.span_id:016x}-01"


def test_run_without_a_callers_trace_has_one_of_its_own(telemetry: Telemetry) -> None:
    with telemetry.run_span(RUN):
        assert re.fullmatch("[0-9a-f]{32}", telemetry.trace_id())
        assert telemetry.trace_id() != "0" * 32


def test_span_of_a_run_follows_the_conventions_for_agents(
    telemetry: Telemetry, spans: InMemorySpanExporter
) -> None:
    with telemetry.run_span(RUN):
        pass
    (span,) = spans.get_finished_spans()
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": "helper",
        "runmesh.run.id": "run-1",
        "runmesh.runner.id": RUNNER,
    }
    assert span.resource.attributes["service.name"] == "runmesh"
    assert span.resource.attributes["service.version"] == "1.2"
    assert span.resource.attributes["service.instance.id"] == "host"


def test_failed_call_is_told_by_the_kind_of_its_error_and_none_of_its_words(
    telemetry: Telemetry, spans: InMemorySpanExporter
) -> None:
    serving = telemetry.call_span("S", "M", {"authorization": "Bearer rmk_canary"})
    with pytest.raises(ValueError, match="canary"), serving:
        raise ValueError("canary")
    (span,) = spans.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ValueError")
    assert "canary" not in span.to_json()


@pytest.mark.parametrize("traceparent", ["", "garbage", f"00-{'0' * 32}-00f067aa0ba902b7-01"])
def test_bad_trace_of_a_caller_is_as_good_as_none(telemetry: Telemetry, traceparent: str) -> None:
    with telemetry.call_span("S", "M", {"traceparent": traceparent}):
        assert telemetry.trace_id() not in {TRACE, "0" * 32}


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_spans_leave_the_process_only_where_the_standard_variables_say_so(
    environment: dict[str, str], *, wanted: bool
) -> None:
    assert _wants_export(environment) is wanted


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the names of the spans that it is sent."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def Export(self, request: Any, _context: Any) -> Any:  # noqa: N802 - gRPC's name
        self.names += [
            span.name
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return trace_service_pb2.ExportTraceServiceResponse()


def test_spans_reach_the_collector_that_the_variables_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collector, server = Collector(), grpc.server(ThreadPoolExecutor(1))
    register: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    register(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    telemetry = Telemetry(service_version="0", host_id="host")
    with telemetry.run_span(RUN):
        pass
    telemetry.close()
    server.stop(None)
    assert collector.names == ["invoke_agent helper"]
