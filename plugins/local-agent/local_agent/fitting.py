"""A turn that is made to fit: results of tools are cut first, then whatever else is long."""

from collections.abc import Callable, Sequence

from runmesh.v1 import types_pb2
from runmesh.v1.types_pb2 import ChatMessage

from .budget import cap_for, cut_message
from .tokens import bare_tokens, messages_tokens, text_tokens_up_to, texts_of

# Less of a result than this tells a model nothing.
_SMALLEST_RESULT = 64
_SMALLEST_TEXT = 24


def fit_turn(turn: Sequence[ChatMessage], tokens: int) -> list[ChatMessage]:
    """Returns a turn of at most so many tokens: with cut texts, then without its first rounds.

    The calls of a model stay as they are, since half of an argument is none; where even they are
    too many, rounds of calls go as a whole, the oldest first.

    Args:
        turn: The messages of the turn: what was asked, and the rounds of tool calls so far.
        tokens: How many tokens it may have.

    Returns:
        The turn; longer than it may be only where nothing is left to be cut.
    """
    if sum(bare_tokens(each) + _text_size(each, tokens) for each in turn) <= tokens:
        return list(turn)
    kept = _rounds_that_fit(turn, tokens)
    fitted = _cut(kept, tokens, chosen=_is_result, least=_SMALLEST_RESULT)
    if messages_tokens(fitted) > tokens:
        fitted = _cut(kept, tokens, chosen=_is_any, least=_SMALLEST_TEXT)
    return fitted


def _is_result(message: ChatMessage) -> bool:
    return message.role == types_pb2.CHAT_ROLE_TOOL


def _is_any(_: ChatMessage) -> bool:
    return True


def _cut(
    messages: Sequence[ChatMessage],
    tokens: int,
    *,
    chosen: Callable[[ChatMessage], bool],
    least: int,
) -> list[ChatMessage]:
    """Returns the messages with the chosen ones cut so that all have so many tokens."""
    sizes = [_text_size(each, tokens) for each in messages if chosen(each)]
    others = sum(
        bare_tokens(each) + (0 if chosen(each) else _text_size(each, tokens)) for each in messages
    )
    cap = max(least, cap_for(sizes, tokens - others))
    return [cut_message(each, cap) if chosen(each) else each for each in messages]


def _text_size(message: ChatMessage, most: int) -> int:
    """Returns about how many tokens the texts of a message are, or more than so many."""
    return sum(text_tokens_up_to(most, text) for text in texts_of(message))


def _rounds_that_fit(messages: Sequence[ChatMessage], tokens: int) -> list[ChatMessage]:
    """Returns the messages without as many of the first rounds as have to go, calls and results."""
    sizes = [
        bare_tokens(each) + min(_text_size(each, _SMALLEST_TEXT), _SMALLEST_TEXT)
        for each in messages
    ]
    left = tokens - sum(sizes)
    kept: list[ChatMessage] = []
    goes = False
    for message, size in zip(messages, sizes, strict=True):
        if not _is_result(message):
            goes = left < 0 and bool(message.tool_calls)
        if goes:
            left += size
        else:
            kept.append(message)
    return kept


def newest_that_fit(sizes: Sequence[int], tokens: int) -> int:
    """Returns from which index on sizes, the newest last, sum up to so many tokens at most."""
    left, start = tokens, len(sizes)
    while start and sizes[start - 1] <= left:
        start -= 1
        left -= sizes[start]
    return start
