"""The trace a run belongs to: W3C trace context in, a span around the run, trace context out.

Only OpenTelemetry's API is used. Where the author has configured a tracer provider the spans of
the runner join the host's trace; where not, what came in is passed on as it is.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_propagator = TraceContextTextMapPropagator()
_CARRIED = frozenset({"traceparent", "tracestate"})


class RunTrace:
    """The trace context that came with one run."""

    __slots__ = ("_context",)

    def __init__(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        carrier = {
            key: value for key, value in metadata if key in _CARRIED and isinstance(value, str)
        }
        self._context: Context | None = _propagator.extract(carrier) if carrier else None

    def span(self, runner: str, run_id: str) -> AbstractContextManager[Span]:
        """Opens the span of the run. Enter and leave it in the same task."""
        return trace.get_tracer("runner_sdk").start_as_current_span(
            f"runner {runner}",
            context=self._context,
            kind=SpanKind.SERVER,
            attributes={"runmesh.run_id": run_id},
        )

    def outgoing(self) -> tuple[tuple[str, str], ...]:
        """Returns metadata that puts a call into the trace: the current span's, or the run's."""
        carrier: dict[str, str] = {}
        if trace.get_current_span().get_span_context().is_valid:
            _propagator.inject(carrier)
        elif self._context is not None:
            _propagator.inject(carrier, self._context)
        return tuple(carrier.items())
