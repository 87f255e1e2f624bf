"""Spans of tool calls: what was called and how it ended, and nothing of what was said."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from host_service.capabilities.tool_calls import ToolCalls
from host_service.capabilities.uploads import Owner
from host_service.errors import InvalidArgument
from host_service.limits import Limits
from host_service.telemetry import Telemetry
from stores import Stores
from tests.conformance.stores.conftest import (  # noqa: F401 - fixtures
    database_url,
    migrated_file,
    migrated_server,
    postgresql_server,
    stores,
)
from tests.integration.tools.kept import Kept, keeping, stateful

OWNER = Owner(workspace="w", bot="b")
SECRET = "the launch code is 4711"


class Traced:
    """Calls of the tools of one server, and their spans."""

    def __init__(self, kept: Kept, artifacts: Any) -> None:
        self.spans = InMemorySpanExporter()
        telemetry = Telemetry(service_version="1", host_id="host")
        telemetry._provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self._kept = kept
        self._calls = ToolCalls(
            servers=kept.servers,
            artifacts=artifacts,
            limits=Limits(),
            telemetry=telemetry,
            clock=lambda: datetime.now(UTC),
        )

    async def call(self, name: str, parameters_json: str, call_id: str = "") -> ReadableSpan:
        """Calls a tool, and returns its span."""
        tool = self._kept.servers.toolset.get(f"s__{name}")
        assert tool is not None
        await self._calls.call(tool, parameters_json, OWNER, call_id=call_id)
        [span] = self.spans.get_finished_spans()
        return span


@pytest.fixture
async def traced(tmp_path: Path, stores: Stores) -> AsyncIterator[Traced]:  # noqa: F811
    async with keeping(tmp_path / "tool-servers") as kept:
        await kept.have(stateful(tmp_path / "note"))
        await kept.ready()
        yield Traced(kept, stores.artifacts)


async def test_call_has_a_span_by_the_conventions_without_what_was_said(traced: Traced) -> None:
    span = await traced.call("echo", f'{{"value": "{SECRET}"}}', call_id="call-7")
    assert span.name == "execute_tool s__echo"
    assert span.kind is SpanKind.CLIENT
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "s__echo",
        "gen_ai.tool.call.id": "call-7",
    }
    assert span.status.status_code is StatusCode.UNSET
    assert SECRET not in span.to_json()


async def test_failed_call_is_marked_in_its_span_and_says_no_more(traced: Traced) -> None:
    span = await traced.call("fail", f'{{"reason": "{SECRET}"}}')
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "tool_error"
    assert "gen_ai.tool.call.id" not in (span.attributes or {})
    assert SECRET not in span.to_json()


async def test_call_that_is_refused_before_it_is_made_has_no_span(traced: Traced) -> None:
    with pytest.raises(InvalidArgument):
        await traced.call("count", '{"by": "many"}')
    assert traced.spans.get_finished_spans() == ()
