"""Traces: one for a run, from the caller through host and runner to what the runner calls.

Spans follow the OpenTelemetry conventions for RPC servers and for generative AI agents. They leave
the process only where the standard variables say so (`OTEL_EXPORTER_OTLP_ENDPOINT` and the like),
in batches and in the background: no exporter slows or stops a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context as otel_context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from stores.records import RunRecord

_PROPAGATOR = TraceContextTextMapPropagator()


class Telemetry:
    """Makes the spans of one host.

    Args:
        service_version: The host's version.
        host_id: The host, as `service.instance.id`.
    """

    def __init__(self, *, service_version: str, host_id: str) -> None:
        resource = Resource.create(
            {
                "service.name": "runmesh",
                "service.version": service_version,
                "service.instance.id": host_id,
            }
        )
        self._provider = TracerProvider(resource=resource)
        if _wants_export(os.environ):
            self._export()
        self._tracer = self._provider.get_tracer("runmesh", service_version)

    def _export(self) -> None:
        # The exporter takes longer to import than the host to start, and most hosts have none.
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    @contextmanager
    def call_span(self, service: str, method: str, metadata: Mapping[str, str]) -> Iterator[None]:
        """Span one call that the host serves, below the caller's span if its metadata names one."""
        parent = _PROPAGATOR.extract(metadata)
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        span = self._tracer.start_span(f"{service}/{method}", parent, SpanKind.SERVER, attributes)
        token = otel_context.attach(set_span_in_context(span, parent))
        try:
            yield
        except Exception as error:
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise
        finally:
            otel_context.detach(token)
            span.end()

    @contextmanager
    def run_span(self, run: RunRecord) -> Iterator[None]:
        """Span one run, from its acceptance to its end."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": run.agent_id,
            "runmesh.run.id": run.run_id,
            "runmesh.runner.id": run.runner_id,
        }
        span = self._tracer.start_span(f"invoke_agent {run.agent_id}", attributes=attributes)
        token = otel_context.attach(set_span_in_context(span))
        try:
            yield
        finally:
            otel_context.detach(token)
            span.end()

    @contextmanager
    def model_span(
        self, operation: str, *, provider: str, model_id: str, model_name: str
    ) -> Iterator[ModelSpan]:
        """Span one call to a model, below the call that it is made for.

        It is not the current span of what happens meanwhile: an answer that is streamed comes to
        others between its pieces.

        Args:
            operation: `chat`, `embeddings` or `rerank`.
            provider: Who serves the model.
            model_id: The catalogue's id of it.
            model_name: What its provider calls it.
        """
        attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model_name,
            "runmesh.model.id": model_id,
        }
        span = self._tracer.start_span(
            f"{operation} {model_name}", kind=SpanKind.CLIENT, attributes=attributes
        )
        model_span = ModelSpan(span)
        try:
            yield model_span
        except BaseException as error:
            model_span.fail(type(error).__name__)
            raise
        finally:
            span.end()

    @contextmanager
    def tool_span(self, name: str, call_id: str) -> Iterator[ToolSpan]:
        """Span one call of a tool; its parameters and its result are not in it.

        Args:
            name: The tool.
            call_id: The model's id of the call, or empty.
        """
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        if call_id:
            attributes["gen_ai.tool.call.id"] = call_id
        span = self._tracer.start_span(
            f"execute_tool {name}", kind=SpanKind.CLIENT, attributes=attributes
        )
        tool_span = ToolSpan(span)
        token = otel_context.attach(set_span_in_context(span))
        try:
            yield tool_span
        except BaseException as error:
            tool_span.failed(type(error).__name__)
            raise
        finally:
            otel_context.detach(token)
            span.end()

    def outgoing(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata that carries the current span to a runner."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return tuple(carrier.items())

    def trace_id(self) -> str:
        """Return the current trace id: 32 hexadecimal digits."""
        return format_trace_id(get_current_span().get_span_context().trace_id)

    def close(self) -> None:
        """Send what waits, within the exporter's own time limit."""
        self._provider.shutdown()


class ModelSpan:
    """The span of one call to a model, by the conventions for generative AI.

    Args:
        span: The span.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        self._has_failed = False

    def answer(self, *, response_model: str = "", finish_reason: str = "") -> None:
        """Note what kind of answer came; nothing of its text.

        Args:
            response_model: What the provider calls the model that answered.
            finish_reason: Why the answer ended.
        """
        if response_model:
            self._span.set_attribute("gen_ai.response.model", response_model)
        if finish_reason:
            self._span.set_attribute("gen_ai.response.finish_reasons", (finish_reason,))

    def use(self, input_tokens: int | None, output_tokens: int | None) -> None:
        """Note what the call cost; None: unknown."""
        if input_tokens is not None:
            self._span.set_attribute("gen_ai.usage.input_tokens", input_tokens)
        if output_tokens is not None:
            self._span.set_attribute("gen_ai.usage.output_tokens", output_tokens)

    def fail(self, kind: str) -> None:
        """Note why the call failed; the first word holds."""
        if not self._has_failed:
            self._has_failed = True
            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, kind))


class ToolSpan:
    """The span of one call of a tool, by the conventions for generative AI.

    Args:
        span: The span.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        self._has_failed = False

    def failed(self, kind: str) -> None:
        """Note why the call failed; the first word holds."""
        if not self._has_failed:
            self._has_failed = True
            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, kind))


def _wants_export(environment: Mapping[str, str]) -> bool:
    if (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environment.get("OTEL_TRACES_EXPORTER") == "none"
    ):
        return False
    return any(environment.get(f"OTEL_EXPORTER_OTLP_{kind}ENDPOINT") for kind in ("", "TRACES_"))
