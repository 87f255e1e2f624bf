"""What models are asked, and what they answer, apart from any provider's spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a chat model is asked.

    Attributes:
        messages: The messages in the form of OpenAI's chat protocol, in order; at least one.
        tools: Tools in the form of the protocol; their schemas may be `RawJson`.
        tool_choice: `auto`, `none`, `required`, a tool's name, or empty: the provider's default.
        extra_args_json: Further arguments, a JSON object; they win over the model's options.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = ""
    extra_args_json: str = "{}"

    @classmethod
    def of_text(cls, text: str, *, extra_args_json: str = "{}") -> Question:
        """Return a question of one message of a user's."""
        return cls(messages=({"role": "user", "content": text},), extra_args_json=extra_args_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens that a call cost; None is unknown, never zero.

    Attributes:
        model_id: The catalogue's id of the model.
        input_tokens: Tokens read, cached ones included.
        output_tokens: Tokens written, reasoning included.
        reasoning_tokens: Tokens of the output that were reasoning.
        cache_read_tokens: Tokens of the input that came from the provider's cache.
        cache_write_tokens: Tokens that were written into that cache.
    """

    model_id: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CalledTool:
    """A tool that the model wants called.

    Attributes:
        id: The call's id, unique within its answer; made here where the provider gives none.
        name: The tool.
        arguments_json: The arguments as the model wrote them; may be malformed.
    """

    id: str
    name: str
    arguments_json: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a tool call.

    Attributes:
        index: Which call of the answer, counted from 0, in the order of their beginnings.
        id: The call's id, in its first fragment; empty in others.
        name: The tool's name, in its first fragment; empty in others.
        arguments: Text to append to the arguments.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Something to append to an answer. It is never empty.

    Attributes:
        text: Text.
        reasoning_text: Reasoning text.
        tool_calls: Pieces of tool calls.
    """

    text: str = ""
    reasoning_text: str = ""
    tool_calls: tuple[Fragment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer of a chat model.

    Attributes:
        text: What it says; of a refusal, its text.
        reasoning_text: What it thought aloud; None: nothing.
        tool_calls: The tools that it wants called, in order.
        finish_reason: `stop`, `length`, `tool_calls`, `content_filter`, or the provider's word.
        usage: What it cost; None: unknown.
        response_model: What the provider calls the model that answered; empty: it did not say.
    """

    text: str = ""
    reasoning_text: str | None = None
    tool_calls: tuple[CalledTool, ...] = ()
    finish_reason: str = "stop"
    usage: Usage | None = None
    response_model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """Vectors of texts.

    Attributes:
        values: One vector for each text, in order, all of one length.
        usage: What they cost; None: unknown.
    """

    values: Sequence[Sequence[float]]
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Documents in the order of their relevance.

    Attributes:
        places: Index of the document and its score, most relevant first.
        usage: What it cost; None: unknown.
    """

    places: Sequence[tuple[int, float]]
    usage: Usage | None = None
