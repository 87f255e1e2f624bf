"""The text of messages in progress: what was shown in deltas and is not yet a completed message.

Deltas are only noted on the way through. They are folded into text later, off the way: at a
checkpoint, before a durable result, or when many have gathered.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from runmesh.v1 import result_pb2, types_pb2

from host_service.identity import new_id

# Folding so many at a time keeps what the notes hold small, and costs no more than folding them one
# by one.
_FOLD_AT = 1024
# The key of the message whose deltas carry no id.
_ANONYMOUS = ""


@dataclass(slots=True)
class OpenMessage:
    """A message in progress.

    Attributes:
        message_id: The runner's id of it, or one that the host made.
        named: Whether the runner gave the id, so that deltas carry it.
        text: Pieces of its text.
        reasoning: Pieces of its reasoning text.
        parts: Its other parts.
        first_sequence: The delivered number of its first delta.
        size: Characters of text and reasoning text.
    """

    message_id: str
    named: bool
    first_sequence: int
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    parts: list[types_pb2.ContentPart] = field(default_factory=list)
    size: int = 0
    # For each delta its delivered number, and how many pieces there were after it.
    _numbers: array[int] = field(default_factory=lambda: array("q"))
    _text_ends: array[int] = field(default_factory=lambda: array("q"))
    _reasoning_ends: array[int] = field(default_factory=lambda: array("q"))
    # How many pieces of text and of reasoning text the last checkpoint held.
    _saved: tuple[int, int] = (0, 0)

    @property
    def last_sequence(self) -> int:
        """The delivered number of its newest delta."""
        return self._numbers[-1]

    @property
    def has_content(self) -> bool:
        """Whether it says anything; reasoning alone does not."""
        return bool(self.text or self.parts)

    def take_unsaved(self) -> tuple[str, str] | None:
        """Return text and reasoning text since the last time, or None if there is nothing new."""
        text_from, reasoning_from = self._saved
        self._saved = (len(self.text), len(self.reasoning))
        if self._saved == (text_from, reasoning_from):
            return None
        return "".join(self.text[text_from:]), "".join(self.reasoning[reasoning_from:])

    def append(self, number: int, delta: result_pb2.MessageDelta) -> None:
        """Take in one delta under its delivered number."""
        text, reasoning = delta.text, delta.reasoning_text
        if text:
            self.text.append(text)
        if reasoning:
            self.reasoning.append(reasoning)
        if delta.parts:
            self.parts.extend(delta.parts)
        self.size += len(text) + len(reasoning)
        self._numbers.append(number)
        self._text_ends.append(len(self.text))
        self._reasoning_ends.append(len(self.reasoning))

    def completed(self, *, incomplete: bool) -> result_pb2.MessageCompleted:
        """Return the message that its deltas make."""
        parts = [types_pb2.ContentPart(text="".join(self.text))] if self.text else []
        message = types_pb2.ChatMessage(
            message_id=self.message_id,
            role=types_pb2.CHAT_ROLE_ASSISTANT,
            parts=[*parts, *self.parts],
        )
        if self.reasoning:
            message.reasoning_text = "".join(self.reasoning)
        return result_pb2.MessageCompleted(message=message, incomplete=incomplete)

    def tail(self, run_id: str, after: int) -> result_pb2.RunResult | None:
        """Return everything after a delivered number as one delta; None if there is nothing."""
        index = bisect_right(self._numbers, after)
        if index == len(self._numbers):
            return None
        text_from = self._text_ends[index - 1] if index else 0
        reasoning_from = self._reasoning_ends[index - 1] if index else 0
        delta = result_pb2.MessageDelta(
            message_id=self.message_id if self.named else "",
            text="".join(self.text[text_from:]),
            reasoning_text="".join(self.reasoning[reasoning_from:]),
            parts=self.parts if index == 0 else (),
        )
        return result_pb2.RunResult(
            run_id=run_id,
            first_sequence=self._numbers[index],
            sequence=self._numbers[-1],
            message_delta=delta,
        )


class Progress:
    """All messages in progress of one run."""

    def __init__(self) -> None:
        self._noted: list[result_pb2.RunResult] = []
        self._open: dict[str, OpenMessage] = {}
        self._current = _ANONYMOUS

    def note(self, deltas: Iterable[result_pb2.RunResult]) -> None:
        """Take in delivered deltas."""
        self._noted.extend(deltas)
        if len(self._noted) >= _FOLD_AT:
            self._fold()

    @property
    def largest(self) -> int:
        """Characters of the largest message in progress, without what was noted last."""
        return max((message.size for message in self._open.values()), default=0)

    def messages(self) -> Iterator[OpenMessage]:
        """Yield the messages in progress, oldest first."""
        self._fold()
        yield from self._open.values()

    def close(self, message_id: str) -> OpenMessage | None:
        """Take out the message that a completed message replaces, or None if none is in progress.

        Args:
            message_id: The completed message's id; empty: the message in progress. Deltas without
                an id belong to whichever message is completed next.
        """
        self._fold()
        key = (
            message_id if message_id in self._open else _ANONYMOUS if message_id else self._current
        )
        closed = self._open.pop(key, None)
        self._current = _ANONYMOUS
        return closed

    def close_all(self) -> list[OpenMessage]:
        """Take out all messages in progress, oldest first."""
        self._fold()
        messages = list(self._open.values())
        self._open.clear()
        return messages

    def _fold(self) -> None:
        noted, self._noted = self._noted, []
        for result in noted:
            delta = result.message_delta
            key = delta.message_id or self._current
            message = self._open.get(key)
            if message is None:
                message = self._open[key] = OpenMessage(
                    message_id=key or new_id(), named=bool(key), first_sequence=result.sequence
                )
            self._current = key
            message.append(result.sequence, delta)
