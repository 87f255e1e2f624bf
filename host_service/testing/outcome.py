"""What came of a run, as a caller of the host saw it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runmesh.v1.gateway_pb2 import Run, RunStatus
from runmesh.v1.result_pb2 import RunResult
from runmesh.v1.types_pb2 import ChatMessage

_STATUS_PREFIX = "RUN_STATUS_"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        run: The run as it ended.
        results: All results, in the order in which they were delivered.
    """

    run: Run
    results: tuple[RunResult, ...] = field(repr=False)

    @property
    def status(self) -> str:
        """How it ended: `COMPLETED`, `FAILED`, `CANCELLED` or `TIMED_OUT`."""
        return RunStatus.Name(self.run.status).removeprefix(_STATUS_PREFIX)

    @property
    def failure(self) -> str:
        """The code of its failure, such as `runner.error`; empty where it ended well."""
        return self.run.failure.code

    @property
    def warnings(self) -> list[str]:
        """The codes of its warnings."""
        return [warning.code for warning in self.run.warnings]

    @property
    def messages(self) -> list[ChatMessage]:
        """The completed messages; the host completes those that came in deltas alone."""
        return [
            result.message_completed.message
            for result in self.results
            if result.HasField("message_completed")
        ]

    @property
    def streamed_text(self) -> str:
        """The text of all deltas, joined."""
        return "".join(result.message_delta.text for result in self.results)

    @property
    def text(self) -> str:
        """What the agent said: the text of its messages."""
        return "".join(part.text for message in self.messages for part in message.parts)

    def of_kind(self, kind: str) -> list[Any]:
        """Returns the payloads of one kind, such as `tool_call_started`."""
        return [
            getattr(result, kind) for result in self.results if result.WhichOneof("payload") == kind
        ]
