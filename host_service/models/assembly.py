"""A chat model's answer out of the records of a stream, whatever the provider puts into them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from host_service.models.answers import Answer, Delta, Fragment
from host_service.models.failures import Kind, ProviderFailure, failed, failure_of_record
from host_service.models.sse import Record
from host_service.models.texts import MendedText
from host_service.models.tool_calls import ToolCallAssembly
from host_service.models.usage import UsageTally
from host_service.validation.json_exact import Number

_DONE = "[DONE]"
_REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
_THOUGHTS = frozenset({"thinking", "reasoning"})
_SIGNS_OF_LIFE = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})
_CALLING = frozenset({"stop", "function_call", "tool_use", "tool_call"})

# Integers and text become what they are in Python; other numbers stay as they were written, since
# they occur only in arguments that come as an object.
_decode = json.JSONDecoder(parse_float=Number).decode


class AnswerAssembly:
    """Makes one answer.

    Args:
        model_id: The catalogue's id of the model.
        most_bytes: How large its texts may be together, in UTF-8.
        new_id: Makes an id for a tool call that has none.

    Attributes:
        is_done: Whether the provider said that nothing more comes.
        has_begun: Whether anything of the answer has come.
    """

    def __init__(self, *, model_id: str, most_bytes: int, new_id: Callable[[], str]) -> None:
        self._model_id = model_id
        self._most_bytes = most_bytes
        self._bytes = 0
        self._text = _Text()
        self._reasoning = _Text()
        self._calls = ToolCallAssembly(new_id=new_id)
        self._usage = UsageTally()
        self._finish_reason = ""
        self._response_model = ""
        self._choice: object = None
        self.is_done = False
        self.has_begun = False

    def take(self, record: Record) -> Iterator[Delta]:
        """Take a record of the stream, and yield what it adds.

        Raises:
            ProviderFailure: It tells of an error, or is none that can be read.
        """
        data = record.data.strip()
        if data.startswith(_DONE):
            self.is_done = True
        elif data and record.event not in _SIGNS_OF_LIFE:
            yield from self.take_chunk(self._read(record, data), event=record.event)
        elif record.event == "error":
            raise failed(Kind.UNAVAILABLE, "an error without a word")

    def take_chunk(self, chunk: object, *, event: str = "") -> Iterator[Delta]:
        """Take a chunk of the stream, or a whole answer, and yield what it adds.

        Raises:
            ProviderFailure: It tells of an error, or the answer becomes too large.
        """
        if event == "error" or _is_error(chunk):
            raise failure_of_record(chunk)
        if not isinstance(chunk, Mapping):
            return
        model = chunk.get("model")
        if isinstance(model, str) and model:
            self._response_model = model
        self._usage.take(chunk.get("usage"))
        choice = self._own_choice(chunk.get("choices"))
        if choice is None:
            return
        self._usage.take(choice.get("usage"))
        # A message at the end of a stream repeats what was streamed.
        names = ("delta",) if self.has_begun else ("delta", "message")
        delta = self._delta(_content(choice, names))
        if delta is not None:
            yield delta
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            if reason == "error":
                raise failed(Kind.UNAVAILABLE, "the provider ended the answer with an error")
            self._finish_reason = reason

    def end(self) -> Iterator[Delta]:
        """Yield what was held back, when nothing more comes.

        Raises:
            ProviderFailure: The answer is not whole.
        """
        if not self.is_done and not self._finish_reason:
            raise failed(Kind.CUT, "the stream ended before the answer did")
        text, reasoning = self._text.end(), self._reasoning.end()
        fragments = tuple(self._calls.end())
        if text or reasoning or fragments:
            yield self._made(text, reasoning, fragments)

    @property
    def is_whole(self) -> bool:
        """Whether the provider gave a reason why the answer ended, or said that it did."""
        return self.is_done or bool(self._finish_reason)

    def answer(self) -> Answer:
        """Return the whole answer, after `end`."""
        return Answer(
            text=self._text.whole(),
            reasoning_text=self._reasoning.whole() or None,
            tool_calls=self._calls.calls(),
            finish_reason=self._reason(),
            usage=self._usage.total(self._model_id),
            response_model=self._response_model,
        )

    def _reason(self) -> str:
        reason = self._finish_reason
        if self._calls and (not reason or reason in _CALLING):
            return "tool_calls"
        return reason or "stop"

    def _read(self, record: Record, data: str) -> object:
        try:
            return _decode(data)
        except (ValueError, RecursionError):
            pass
        if record.event == "error":
            return {"error": data}
        if not record.is_whole:
            # The rest of it is what was cut off.
            return None
        raise failed(Kind.BAD_ANSWER, f"a record that is no JSON: {data}")

    def _own_choice(self, choices: object) -> Mapping[str, Any] | None:
        """Return the choice that the answer is made of: the first that comes, and no other."""
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, Mapping):
                continue
            index = choice.get("index")
            if self._choice is None:
                self._choice = index
            if index is None or index == self._choice:
                return choice
        return None

    def _delta(self, content: Mapping[str, Any]) -> Delta | None:
        said, thought = _said(content.get("content"))
        if refusal := content.get("refusal"):
            said += refusal if isinstance(refusal, str) else ""
        for name in _REASONING:
            value = content.get(name)
            if isinstance(value, str) and value:
                thought += value
                break
        calls = content.get("tool_calls")
        fragments = [
            *self._calls.take(calls if isinstance(calls, list) else ()),
            *self._calls.take_legacy(content.get("function_call")),
        ]
        self.has_begun = self.has_begun or bool(said or thought or self._calls)
        text, reasoning = self._text.add(said), self._reasoning.add(thought)
        if not (text or reasoning or fragments):
            return None
        return self._made(text, reasoning, tuple(fragments))

    def _made(self, text: str, reasoning: str, fragments: tuple[Fragment, ...]) -> Delta:
        pieces = (text, reasoning, *(each.arguments for each in fragments))
        self._bytes += sum(len(piece.encode()) for piece in pieces)
        if self._bytes > self._most_bytes:
            raise failed(Kind.BAD_ANSWER, f"the answer has more than {self._most_bytes} bytes")
        return Delta(text=text, reasoning_text=reasoning, tool_calls=fragments)


class _Text:
    """A text that grows."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._mended = MendedText()

    def add(self, piece: str) -> str:
        return self._kept(self._mended.add(piece))

    def end(self) -> str:
        return self._kept(self._mended.end())

    def whole(self) -> str:
        return "".join(self._pieces)

    def _kept(self, text: str) -> str:
        if text:
            self._pieces.append(text)
        return text


def read_answer(body: str, assembly: AnswerAssembly) -> Iterator[Delta]:
    """Take an answer that came whole, and yield it as one piece.

    Raises:
        ProviderFailure: It is an error, or no answer.
    """
    try:
        content = _decode(body.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        raise failed(Kind.BAD_ANSWER, f"no JSON: {body}") from None
    yield from assembly.take_chunk(content)
    if not (isinstance(content, Mapping) and content.get("choices")):
        raise failed(Kind.BAD_ANSWER, f"an answer without `choices`: {body}")
    # A whole answer is whole, whether or not it says why it ended.
    assembly.is_done = True
    yield from assembly.end()


def _content(choice: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
    for name in names:
        value = choice.get(name)
        if isinstance(value, Mapping):
            return value
    text = choice.get("text")
    return {"content": text} if isinstance(text, str) else {}


def _said(content: object) -> tuple[str, str]:
    """Return the text and the reasoning text of a content, which may be a list of parts."""
    if isinstance(content, str):
        return content, ""
    said, thought = "", ""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            said += part
        elif isinstance(part, Mapping):
            kind = part.get("type")
            inner = next(
                (
                    part[name]
                    for name in ("text", "thinking", "reasoning", "refusal")
                    if part.get(name)
                ),
                None,
            )
            text, thoughts = _said(inner)
            if kind in _THOUGHTS:
                text, thoughts = "", thoughts + text
            said, thought = said + text, thought + thoughts
    return said, thought


def _is_error(chunk: object) -> bool:
    if not isinstance(chunk, Mapping):
        return False
    return bool(chunk.get("error")) or "error" in (chunk.get("object"), chunk.get("type"))


__all__ = ["AnswerAssembly", "ProviderFailure", "read_answer"]
