"""How many tokens a text is, without asking anybody: an estimate that would rather say too many.

Tokenizers differ by model and none is at hand, so kinds of characters are weighed: about what the
byte-pair tokenizers of today need, on the high side. What a provider reports corrects it, see
`calibration`.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from runmesh.v1.types_pb2 import ChatMessage, ContentPart, ToolDefinition

MESSAGE_TOKENS = 5
"""What a message costs beside its content: its role and the marks around it."""

IMAGE_TOKENS = 1600
"""What an image costs at most with the providers that say so, whatever its size."""

# What starts an answer.
_REPLY_TOKENS = 3
_CALL_TOKENS = 10
_TOOL_TOKENS = 12
# A platform's id, a URL's or an artifact's reference, where a text stands for it.
_REFERENCE_TOKENS = 40

# Bytes that are written as text: keys, digests, files in base64.
_UNBROKEN = re.compile(r"[A-Za-z0-9]{24,}")
_HAS_DIGIT = re.compile(r"[0-9]")
_ENCODED_WEIGHT = 0.75
# Words are split where the case changes, as tokenizers do.
_ASCII_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
# Digits go two by two between tokenizers that take three at once and those that take one.
_ASCII_SIGNS = re.compile(r"[0-9]{1,2}|\n{1,16}|[!-/:-@\[-`{-~\x00-\x08\x0b-\x1f\x7f]")
_WIDE_SPACES = re.compile(r"[ \t]{2,}")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_SHORT_WORD = 6
_LONG_WORD = 16

# Tokens a character, by the last code point that it holds for.
_WEIGHTS: tuple[tuple[int, float], ...] = (
    (0x024F, 0.9),  # Latin with marks
    (0x058F, 0.8),  # Greek, Cyrillic, Armenian
    (0x06FF, 0.9),  # Hebrew, Arabic
    (0x1FFF, 1.5),  # scripts of South and Southeast Asia, and others
    (0x2FFF, 1.6),  # signs, arrows, boxes
    (0x30FF, 1.1),  # CJK punctuation, kana
    (0x33FF, 1.6),  # the rest of what is compatible with CJK
    (0x9FFF, 1.45),  # Han
    (0xD7FF, 1.4),  # Yi, Hangul
    (0xFFFF, 1.6),  # compatibility forms, full width
)
_ASTRAL_WEIGHT = 3.2  # emoji, rare Han


# The most that one token stands for: a run of blanks.
_CHARACTERS_A_TOKEN = 17
# A text is weighed piece by piece: whoever waits for the interpreter waits for one at most.
_PIECE_CHARACTERS = 32 * 1024
# A long text is asked for again and again while a prompt is made of it; few are at once.
_LONG_TEXTS = 8


def text_tokens(text: str) -> int:
    """Returns about how many tokens a text is; 0 for none."""
    return _piece_tokens(text) if len(text) <= _PIECE_CHARACTERS else _long_text_tokens(text)


def text_tokens_up_to(most: int, text: str) -> int:
    """Returns about how many tokens a text is, or more than `most` where it surely has more.

    Such a text is not weighed: it takes no time, however long it is.
    """
    is_more = len(text) > _CHARACTERS_A_TOKEN * (max(0, most) + 1)
    return max(0, most) + 1 if is_more else text_tokens(text)


@lru_cache(maxsize=_LONG_TEXTS)
def _long_text_tokens(text: str) -> int:
    starts = range(0, len(text), _PIECE_CHARACTERS)
    return sum(_piece_tokens(text[start : start + _PIECE_CHARACTERS]) for start in starts)


def _piece_tokens(text: str) -> int:
    encoded = [run for run in _UNBROKEN.findall(text) if _HAS_DIGIT.search(run)]
    tokens = _ENCODED_WEIGHT * sum(map(len, encoded))
    if encoded:
        text = _UNBROKEN.sub(lambda run: " " if _HAS_DIGIT.search(run[0]) else run[0], text)
    lengths = Counter(map(len, _ASCII_WORDS.findall(text)))
    tokens += sum(_word_tokens(length) * count for length, count in lengths.items())
    tokens += len(_ASCII_SIGNS.findall(text))
    tokens += sum(1 + len(run) // 16 for run in _WIDE_SPACES.findall(text))
    if not text.isascii():
        # Counted first: a long text has few different characters.
        signs = Counter("".join(_NOT_ASCII.findall(text)))
        tokens += sum(_weight(ord(each)) * count for each, count in signs.items())
    return math.ceil(tokens)


def _word_tokens(length: int) -> int:
    if length <= _SHORT_WORD:
        return 1
    if length <= _LONG_WORD:
        return 1 + math.ceil((length - _SHORT_WORD) / 4)
    # No word of a language: letters in a row that no vocabulary has.
    return math.ceil(length / 2)


def _weight(code_point: int) -> float:
    for last, weight in _WEIGHTS:
        if code_point <= last:
            return weight
    return _ASTRAL_WEIGHT


def part_tokens(part: ContentPart) -> int:
    """Returns about how many tokens a part of a message is."""
    if part.HasField("text"):
        return text_tokens(part.text)
    return IMAGE_TOKENS if is_image(part) else _REFERENCE_TOKENS


def is_image(part: ContentPart) -> bool:
    """Returns whether a part is an image, whoever keeps its bytes."""
    kind = part.WhichOneof("content")
    if kind is None or kind == "text":
        return False
    content = getattr(part, kind)
    return content.mime_type.startswith("image/") or getattr(content, "type", "") == "image"


def message_tokens(message: ChatMessage) -> int:
    """Returns about how many tokens a message takes of a prompt."""
    return bare_tokens(message) + sum(map(text_tokens, texts_of(message)))


def bare_tokens(message: ChatMessage) -> int:
    """Returns about how many tokens a message takes of a prompt without its texts."""
    return (
        MESSAGE_TOKENS
        + sum(part_tokens(part) for part in message.parts if not part.HasField("text"))
        + text_tokens(message.reasoning_text)
        + text_tokens(message.name)
        + text_tokens(message.tool_call_id)
        + sum(
            _CALL_TOKENS + sum(map(text_tokens, (call.id, call.name, call.arguments_json)))
            for call in message.tool_calls
        )
    )


def texts_of(message: ChatMessage) -> list[str]:
    """Returns the texts of a message."""
    return [part.text for part in message.parts if part.HasField("text")]


def messages_tokens(messages: Iterable[ChatMessage]) -> int:
    """Returns about how many tokens messages take of a prompt."""
    return sum(map(message_tokens, messages))


def tools_tokens(tools: Iterable[ToolDefinition]) -> int:
    """Returns about how many tokens the tools take, and the start of the answer."""
    return _REPLY_TOKENS + sum(
        _TOOL_TOKENS
        + text_tokens(tool.name)
        + text_tokens(tool.description)
        + text_tokens(tool.parameters_schema_json)
        for tool in tools
    )
