"""Calls of tools and their results, as later turns are told of them.

The transcript has what people read: questions and answers. What tools were called in between is
kept in the conversation's state, in a short form, and before the tools are called: a run that is
cancelled meanwhile leaves its calls, and the next turn knows of what may have had an effect.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from runmesh.v1 import types_pb2
from runmesh.v1.types_pb2 import ChatMessage, ToolCall

from runner_sdk import RunContext
from runner_sdk.messages import tool_message

from .budget import cut_text
from .remembered import Remembered
from .tokens import text_tokens

_KEY = "tool_rounds"
_CANCELLED = "[No result: the run ended before the call did. It may have had its effect.]"
_ARGUMENT_TOKENS = 200
_RESULT_TOKENS = 250
_ROUNDS = 8
_MOST_BYTES = 96 * 1024

Round = dict[str, Any]
"""`calls` (id, name and arguments of each) and `results` (by the call's id).

What was said beside the calls is part of the answer, which the transcript has.
"""


class Exchanges:
    """The rounds of tool calls of a conversation, by the event that they answered.

    Args:
        ctx: The run.
    """

    def __init__(self, ctx: RunContext) -> None:
        self._kept = Remembered(ctx, "conversation", _KEY)
        self._event_id = ctx.event.event_id
        self._rounds: dict[str, list[Round]] = {}
        self._written: list[Round] = []

    async def load(self) -> None:
        """Takes in what earlier turns left."""
        self._rounds = _read(await self._kept.read())

    def told(self) -> dict[str, list[ChatMessage]]:
        """Returns the messages by event: each answer with calls, then a result for every call."""
        return {
            event_id: [message for each in rounds for message in _messages(each)]
            for event_id, rounds in self._rounds.items()
            if event_id != self._event_id
        }

    async def keep(self, turn: Sequence[ChatMessage]) -> None:
        """Keeps the rounds of this turn, so far as they got."""
        rounds = _rounds_of(turn)[-_ROUNDS:]
        if not rounds or rounds == self._written:
            return
        self._written = rounds
        # Another run of the conversation may write at once: both are kept.
        await self._kept.change(lambda kept: _bounded({**_read(kept), self._event_id: rounds}))

    async def forget(self, event_ids: Collection[str]) -> None:
        """Removes the rounds of events that the checkpoint covers now."""
        if not self._rounds.keys() & event_ids:
            return
        await self._kept.change(
            lambda kept: {
                event_id: rounds
                for event_id, rounds in _read(kept).items()
                if event_id not in event_ids
            }
        )


def _rounds_of(turn: Sequence[ChatMessage]) -> list[Round]:
    rounds: list[Round] = []
    for message in turn:
        if message.tool_calls:
            rounds.append({"calls": [_call(call) for call in message.tool_calls], "results": {}})
        elif message.role == types_pb2.CHAT_ROLE_TOOL and rounds:
            text = "".join(part.text for part in message.parts)
            rounds[-1]["results"][message.tool_call_id] = cut_text(text, _RESULT_TOKENS)
    return rounds


def _call(call: ToolCall) -> list[str]:
    arguments = call.arguments_json
    if text_tokens(arguments) > _ARGUMENT_TOKENS:
        # Half of a JSON object is none.
        arguments = json.dumps({"left_out": f"{len(arguments)} characters of arguments"})
    elif not _is_object(arguments):
        arguments = "{}"
    return [call.id, call.name, arguments]


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _messages(each: Round) -> list[ChatMessage]:
    called = ChatMessage(
        role=types_pb2.CHAT_ROLE_ASSISTANT,
        tool_calls=[
            ToolCall(id=call_id, name=name, arguments_json=arguments)
            for call_id, name, arguments in each["calls"]
        ],
    )
    results = each["results"]
    return [
        called,
        *(
            tool_message(call_id, results.get(call_id, _CANCELLED), name=name)
            for call_id, name, _ in each["calls"]
        ),
    ]


def _read(kept: Any) -> dict[str, list[Round]]:
    """Returns what is kept so far as it has the form that is written here."""
    if not isinstance(kept, Mapping):
        return {}
    return {
        event_id: [each for each in rounds if _is_round(each)]
        for event_id, rounds in kept.items()
        if isinstance(rounds, list)
    }


def _is_round(each: Any) -> bool:
    return (
        isinstance(each, dict)
        and isinstance(results := each.get("results"), dict)
        and all(isinstance(text, str) for text in results.values())
        and isinstance(calls := each.get("calls"), list)
        and bool(calls)
        and all(
            isinstance(call, list)
            and len(call) == 3
            and all(isinstance(text, str) for text in call)
            for call in calls
        )
    )


def _bounded(rounds: dict[str, list[Round]]) -> dict[str, list[Round]]:
    """Returns the newest of the rounds, as many as may be kept; the last event's in any case."""
    while len(rounds) > 1 and len(json.dumps(rounds, ensure_ascii=False).encode()) > _MOST_BYTES:
        del rounds[next(iter(rounds))]
    return rounds
