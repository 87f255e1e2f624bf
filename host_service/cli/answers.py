"""Shows the results of runs as they come: text as text, the rest as remarks.

Text goes to standard output byte for byte when that is a pipe; on a terminal its control characters
are made visible, so that no agent can drive the terminal. Remarks (tools, files, warnings) are dim
lines between the text on a terminal, and go to standard error otherwise. What a model thinks aloud
is shown on terminals only.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

from runmesh.v1 import result_pb2, types_pb2

from host_service.cli.failures import one_line, visible
from host_service.cli.sources import told_sources

_DIM = "\x1b[2m"
_PLAIN = "\x1b[0m"
_LONGEST_PREVIEW = 120


@dataclass(slots=True)
class _Message:
    """A message on its way: its id, as far as known, and what of its text was shown."""

    message_id: str
    shown: str = ""


class AnswerWriter:
    """Writes the results of one run.

    Args:
        output: Where the text of answers goes.
        remarks: Where everything else goes.
        colour: Whether remarks may be dimmed with escape codes.
    """

    def __init__(self, *, output: TextIO, remarks: TextIO, colour: bool) -> None:
        self._output = output
        self._on_terminal = output.isatty()
        # On a terminal both end up on the screen: in one stream they keep their order.
        self._remarks = output if self._on_terminal else remarks
        self._dim, self._plain = (_DIM, _PLAIN) if colour and self._on_terminal else ("", "")
        self._messages: dict[str, _Message] = {}
        self._current: _Message | None = None
        self._at_line_start = True
        self._reasoning = False

    def show(self, result: result_pb2.RunResult) -> None:
        """Shows one result; what is not for people is passed over."""
        kind = result.WhichOneof("payload")
        if kind == "message_delta":
            self._show_delta(result.message_delta)
        elif kind == "message_completed":
            self._show_message(result.message_completed.message)
        elif kind == "run_completed":
            self._show_final_message(result.run_completed)
        elif kind == "tool_call_started":
            started = result.tool_call_started
            preview = started.preview or started.parameters_json
            self.remark(f"→ {started.tool_name} {_preview(preview)}")
        elif kind == "tool_call_completed":
            self._show_tool_end(result.tool_call_completed)
        elif kind == "artifact_created" and result.artifact_created.HasField("ref"):
            self.remark(_file(result.artifact_created.ref))
        elif kind == "log" and result.log.level >= result_pb2.LOG_LEVEL_WARNING:
            self.remark(result.log.text)

    def remark(self, text: str) -> None:
        """Shows a line that is not part of the answer."""
        if self._on_terminal:
            self._end_line()
        self._remarks.write(f"{self._dim}{one_line(text)}{self._plain}\n")
        self._remarks.flush()

    def end(self) -> None:
        """Ends the line that is being written, if any."""
        self._end_line()
        self._output.flush()

    def _show_delta(self, delta: result_pb2.MessageDelta) -> None:
        if delta.reasoning_text:
            self._write_reasoning(delta.reasoning_text)
        if delta.text:
            self._write_text(self._message(delta.message_id), delta.text)
        self._show_parts(delta.parts)

    def _show_message(self, message: types_pb2.ChatMessage) -> None:
        text = "".join(part.text for part in message.parts if part.HasField("text"))
        current = self._message_of(message.message_id)
        if text.startswith(current.shown):
            self._write_text(current, text.removeprefix(current.shown))
        else:
            # It takes the place of what was shown, and what was shown cannot be taken back.
            self._end_line()
            current.shown = ""
            self._write_text(current, text)
        self._end_line()
        self._show_parts(part for part in message.parts if not part.HasField("text"))
        for artifact in message.artifacts:
            self.remark(_file(artifact))
        if sources := told_sources(message.metadata):
            self.remark(f"sources: {' · '.join(sources)}")
        self._current = None
        self._output.flush()

    def _show_final_message(self, completed: result_pb2.RunCompleted) -> None:
        message_id = completed.message.message_id
        # By the contract it counts only when nothing else was said, or when its id is new.
        if completed.HasField("message") and (
            not self._messages or (message_id and message_id not in self._messages)
        ):
            self._show_message(completed.message)

    def _show_tool_end(self, completed: result_pb2.ToolCallCompleted) -> None:
        if completed.error_code:
            reason = completed.error_message or completed.error_code
            self.remark(f"✗ {completed.tool_name}: {reason}")
        else:
            self.remark(f"✓ {completed.tool_name} {_preview(completed.preview)}")

    def _show_parts(self, parts: Iterable[types_pb2.ContentPart]) -> None:
        for part in parts:
            kind = part.WhichOneof("content")
            if kind == "text":
                self._write_text(self._message(""), part.text)
            elif kind == "artifact":
                self.remark(_file(part.artifact))
            elif kind == "inline":
                size = len(part.inline.data)
                self.remark(f"[{part.inline.name or part.inline.mime_type}, {size} bytes]")
            elif kind == "url":
                self.remark(f"[{part.url.name} {part.url.url}]")
            elif kind == "platform":
                self.remark(f"[{part.platform.name} {part.platform.platform_id}]")

    def _message(self, message_id: str) -> _Message:
        """The message that an id means; without one, the message in progress, or a new one."""
        current = self._current
        if current and message_id in {"", current.message_id}:
            return current
        if current and not current.message_id:
            # It was shown before its id was known.
            current.message_id = message_id
            self._messages[message_id] = current
            return current
        message = self._messages.get(message_id) or _Message(message_id)
        self._messages[message_id] = message
        self._end_line()
        self._current = message
        return message

    def _message_of(self, completed_id: str) -> _Message:
        """The message that a completed one is: deltas without an id belong to the next of them."""
        current = self._current
        if current and not current.message_id and completed_id not in self._messages:
            current.message_id = completed_id
            self._messages[completed_id] = self._messages.pop("")
        return self._message(completed_id)

    def _write_text(self, message: _Message, text: str) -> None:
        if self._reasoning:
            self._end_line()
        message.shown += text
        self._write(text)

    def _write_reasoning(self, text: str) -> None:
        if not self._on_terminal:
            return
        if not self._reasoning:
            self._end_line()
            self._output.write(self._dim)
            self._reasoning = True
        self._write(text)

    def _write(self, text: str) -> None:
        if not text:
            return
        self._output.write(visible(text) if self._on_terminal else text)
        self._output.flush()
        self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        if self._reasoning:
            self._output.write(self._plain)
            self._reasoning = False
        if not self._at_line_start:
            self._output.write("\n")
            self._at_line_start = True


def console_writer() -> AnswerWriter:
    """A writer for this process's own output."""
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return AnswerWriter(output=sys.stdout, remarks=sys.stderr, colour=colour)


def _file(artifact: types_pb2.ArtifactRef) -> str:
    name = artifact.name or artifact.type
    return f"[{name}, {artifact.mime_type}, {artifact.size_bytes} bytes: {artifact.artifact_id}]"


def _preview(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST_PREVIEW else f"{line[:_LONGEST_PREVIEW]}…"
