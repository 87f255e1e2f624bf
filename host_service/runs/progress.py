"""The text of messages in progress: what was shown in deltas and is not yet a completed message.

Deltas are only noted on the way through. They are folded into text later, off the way: at a
checkpoint, before a durable result, or when many have gathered.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from runmesh.v1 import result_pb2, types_pb2

from host_service.identity import new_id

# Folding so many at a time keeps what the notes hold small, and costs no more than folding them one
# by one.
_FOLD_AT = 1024
# The key of the message whose deltas carry no id.
_ANONYMOUS = ""
# What a part has around it in a list of parts.
_PART_BYTES = 6
# What a message in progress takes beside what it says, in characters.
_MESSAGE_SIZE = 1024


def _numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class OpenMessage:
    """A message in progress.

    Attributes:
        message_id: The runner's id of it, or one that the host made.
        named: Whether the runner gave the id, so that deltas carry it.
        first_sequence: The delivered number of its first delta.
        text: Pieces of its text.
        reasoning: Pieces of its reasoning text.
        parts: Its other parts.
        size: Characters of text and reasoning text, and bytes of parts.
    """

    message_id: str
    named: bool
    first_sequence: int
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    parts: list[types_pb2.ContentPart] = field(default_factory=list)
    size: int = 0
    # For each part, how many pieces of text there were before it.
    _places: array[int] = field(default_factory=_numbers)
    # For each delta that says something: its delivered number, the number up to which nothing
    # else came, and how many pieces there were after it.
    _firsts: array[int] = field(default_factory=_numbers)
    _lasts: array[int] = field(default_factory=_numbers)
    _text_ends: array[int] = field(default_factory=_numbers)
    _reasoning_ends: array[int] = field(default_factory=_numbers)
    _part_ends: array[int] = field(default_factory=_numbers)
    # How many pieces of text and of reasoning text the last checkpoint held.
    _saved: tuple[int, int] = (0, 0)

    @property
    def last_sequence(self) -> int:
        """The delivered number of its newest delta that says something."""
        return self._lasts[-1]

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
        text, reasoning, parts = delta.text, delta.reasoning_text, delta.parts
        if not text and not reasoning and not parts:
            if self._lasts and self._lasts[-1] == number - 1:
                self._lasts[-1] = number
            return
        if text:
            self.text.append(text)
        if reasoning:
            self.reasoning.append(reasoning)
        if parts:
            self.parts.extend(parts)
            self._places.extend([len(self.text)] * len(parts))
            self.size += sum([part.ByteSize() for part in parts])
        self.size += len(text) + len(reasoning)
        self._firsts.append(number)
        self._lasts.append(number)
        self._text_ends.append(len(self.text))
        self._reasoning_ends.append(len(self.reasoning))
        self._part_ends.append(len(self.parts))

    def append_texts(self, first: int, texts: Sequence[str]) -> None:
        """Take in texts under delivered numbers that follow each other; none is empty."""
        count, before = len(texts), len(self.text)
        self.text.extend(texts)
        if count == 1:
            self.size += len(texts[0])
            self._firsts.append(first)
            self._lasts.append(first)
            self._text_ends.append(before + 1)
            self._reasoning_ends.append(len(self.reasoning))
            self._part_ends.append(len(self.parts))
            return
        self.size += sum(map(len, texts))
        self._firsts.extend(range(first, first + count))
        self._lasts.extend(range(first, first + count))
        self._text_ends.extend(range(before + 1, before + count + 1))
        self._reasoning_ends.extend(array("q", (len(self.reasoning),)) * count)
        self._part_ends.extend(array("q", (len(self.parts),)) * count)

    def completed(self, *, incomplete: bool) -> result_pb2.MessageCompleted:
        """Return the message that its deltas make: texts joined, everything in its order."""
        message = types_pb2.ChatMessage(
            message_id=self.message_id, role=types_pb2.CHAT_ROLE_ASSISTANT
        )
        begin = 0
        for place, part in zip((*self._places, len(self.text)), (*self.parts, None), strict=True):
            if place > begin:
                message.parts.add(text="".join(self.text[begin:place]))
                begin = place
            if part is not None:
                message.parts.append(part)
        if self.reasoning:
            message.reasoning_text = "".join(self.reasoning)
        return result_pb2.MessageCompleted(message=message, incomplete=incomplete)

    def tail(self, run_id: str, after: int, *, limit_bytes: int) -> Iterator[result_pb2.RunResult]:
        """Yield what came after a delivered number, in as few deltas as may be.

        Deltas are joined where nothing else came in between, so that who has seen the results up to
        any number lacks exactly what stands above it; and up to a size, one of them at least.
        """
        begin = bisect_right(self._firsts, after)
        while begin < len(self._firsts):
            end, size = begin + 1, self._bytes_of(begin)
            while end < len(self._firsts) and self._goes_on(begin, end):
                size += self._bytes_of(end)
                if size > limit_bytes:
                    break
                end += 1
            yield self._joined(run_id, begin, end)
            begin = end

    def _goes_on(self, begin: int, end: int) -> bool:
        """Return whether a delta can be joined to those before it, from another one on."""
        parts_before = self._part_ends[begin - 1] if begin else 0
        text_after_part = (
            self._part_ends[end - 1] > parts_before
            and self._text_ends[end] > self._text_ends[end - 1]
        )
        return self._firsts[end] == self._lasts[end - 1] + 1 and not text_after_part

    def _bytes_of(self, index: int) -> int:
        """Return about how many bytes one delta adds to those it is joined to."""
        before = index - 1
        texts = (
            *self.text[self._text_ends[before] if index else 0 : self._text_ends[index]],
            *self.reasoning[
                self._reasoning_ends[before] if index else 0 : self._reasoning_ends[index]
            ],
        )
        parts = self.parts[self._part_ends[before] if index else 0 : self._part_ends[index]]
        return sum(len(text.encode()) for text in texts) + sum(
            part.ByteSize() + _PART_BYTES for part in parts
        )

    def _joined(self, run_id: str, begin: int, end: int) -> result_pb2.RunResult:
        def pieces(ends: array[int]) -> slice:
            return slice(ends[begin - 1] if begin else 0, ends[end - 1])

        delta = result_pb2.MessageDelta(
            message_id=self.message_id if self.named else "",
            text="".join(self.text[pieces(self._text_ends)]),
            reasoning_text="".join(self.reasoning[pieces(self._reasoning_ends)]),
            parts=self.parts[pieces(self._part_ends)],
        )
        return result_pb2.RunResult(
            run_id=run_id,
            first_sequence=self._firsts[begin],
            sequence=self._lasts[end - 1],
            message_delta=delta,
        )


class Progress:
    """All messages in progress of one run.

    Plain deltas pass the host without a look at their fields. Here, off the way, the first of each
    message and those with parts are held to the contract's rules.

    Args:
        find_fault: Returns what is wrong with a delta, or None.

    Attributes:
        fault: What was wrong with the first bad delta; None while there was none.
    """

    def __init__(
        self, *, find_fault: Callable[[result_pb2.RunResult], str | None] = lambda _result: None
    ) -> None:
        self._find_fault = find_fault
        self.fault: str | None = None
        self._noted: list[result_pb2.RunResult] = []
        self._open: dict[str, OpenMessage] = {}
        self._current = _ANONYMOUS
        self._size = 0

    def note(self, deltas: Iterable[result_pb2.RunResult]) -> None:
        """Take in delivered deltas."""
        self._noted.extend(deltas)
        if len(self._noted) >= _FOLD_AT:
            self._fold()

    def note_texts(self, first: int, texts: Sequence[str]) -> None:
        """Take in delivered texts of the message in progress; their numbers follow each other."""
        if self._noted:
            self._fold()
        message = self._open.get(self._current)
        if message is None:
            message = self._open[self._current] = OpenMessage(
                message_id=self._current or new_id(),
                named=bool(self._current),
                first_sequence=first,
            )
            self._size += _MESSAGE_SIZE
        before = message.size
        message.append_texts(first, texts)
        self._size += message.size - before

    @property
    def size(self) -> int:
        """About how many characters it holds, without what was noted last."""
        return self._size

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
        if closed is not None:
            self._size -= _MESSAGE_SIZE + closed.size
        if key == self._current:
            # Deltas without an id go on with the newest message that is still in progress.
            self._current = next(reversed(self._open), _ANONYMOUS)
        return closed

    def close_all(self) -> list[OpenMessage]:
        """Take out all messages in progress that were shown anything of, oldest first."""
        self._fold()
        messages = [each for each in self._open.values() if each.has_content or each.reasoning]
        self._open.clear()
        self._current, self._size = _ANONYMOUS, 0
        return messages

    def _fold(self) -> None:
        noted, self._noted = self._noted, []
        for result in noted:
            delta = result.message_delta
            key = delta.message_id or self._current
            message = self._open.get(key)
            if message is None or delta.parts:
                fault = self._find_fault(result)
                if fault is not None:
                    # It ends the run; of what was wrong nothing is kept.
                    self.fault = self.fault or fault
                    continue
            if message is None:
                message = self._open[key] = OpenMessage(
                    message_id=key or new_id(), named=bool(key), first_sequence=result.sequence
                )
                self._size += _MESSAGE_SIZE
            self._current = key
            before = message.size
            message.append(result.sequence, delta)
            self._size += message.size - before
