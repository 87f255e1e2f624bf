"""How many tokens of what fit into a prompt, and how text is cut to fit.

All numbers are tokens as `tokens` estimates them; what the provider reported of the model before
(`ratio`) makes the window smaller or larger in them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from runmesh.v1.context_pb2 import ModelResource
from runmesh.v1.types_pb2 import ChatMessage

from .settings import Settings
from .tokens import text_tokens, text_tokens_up_to

UNKNOWN_WINDOW = 8192
"""What a model of an unknown window is taken to hold: few hold less."""

_MOST_REPLY = 4096
# An estimate is one: so much of the window stays free.
_CAUTION = 0.96
_REPLY_ARGUMENTS = ("max_completion_tokens", "max_tokens")
_SMALLEST_MESSAGE = 48
# No text of a language has more.
_CHARACTERS_A_TOKEN = 12
# A text that is cut fills so much of what it may have; the rest would take longer to be found.
_FULL = 0.97
_GUESSES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What fits into the prompts of one model.

    Attributes:
        window: Tokens that the model holds, as the model counts them.
        reply: Tokens of the window that are kept for the answer.
        prompt: Tokens of a whole prompt at most, tools included.
        history: Tokens of the conversation before the turn at most, its summary included.
    """

    window: int
    reply: int
    prompt: int
    history: int

    @classmethod
    def of(cls, model: ModelResource, settings: Settings, *, ratio: float = 1.0) -> Self:
        """Makes a model's budget.

        Args:
            model: The model.
            settings: What the configuration says of history and answers.
            ratio: Tokens as the model counts them for each that was estimated.
        """
        window = (
            model.context_window_tokens
            if model.HasField("context_window_tokens") and model.context_window_tokens > 0
            else UNKNOWN_WINDOW
        )
        reply = _reply(settings, window)
        prompt = int((window - reply) / ratio * _CAUTION)
        history = int(prompt * settings.history_share)
        if settings.history_tokens is not None:
            history = min(int(settings.history_tokens / ratio), prompt)
        return cls(window=window, reply=reply, prompt=prompt, history=history)

    @property
    def message(self) -> int:
        """Tokens of one message of the history at most: none may push out all others."""
        return max(_SMALLEST_MESSAGE, self.history // 4)


def _reply(settings: Settings, window: int) -> int:
    """Returns what the answer is left: what it may have at most, but never most of the window."""
    for name in _REPLY_ARGUMENTS:
        asked = settings.extra_args.get(name)
        if isinstance(asked, int) and asked > 0:
            return min(asked, window // 2)
    return min(_MOST_REPLY, window // 4)


def cut_text(text: str, tokens: int, *, where: str = "") -> str:
    """Returns a text of at most so many tokens: its beginning and its end, and a note between.

    Args:
        text: The text; returned as it is where it fits.
        tokens: How many tokens it may have; with very few, only the note is left.
        where: Where the whole is, to be told in the note.
    """
    if text_tokens_up_to(tokens, text) <= tokens:
        return text
    kept_low, kept_high = 0, min(len(text), _CHARACTERS_A_TOKEN * max(1, tokens))
    # Texts are much the same all along: from how many tokens some of it has, the place is found in
    # a few steps, each of which weighs what would be left. Halving finds it in any other.
    kept, steps = kept_high // 4, 0
    while kept_low < kept_high:
        kept, steps = min(max(kept, kept_low + 1), kept_high), steps + 1
        size = text_tokens(_without_middle(text, kept, where))
        if size > tokens:
            kept_high = kept - 1
        elif size >= tokens * _FULL:
            kept_low = kept_high = kept
        else:
            kept_low = kept
        kept = int(kept * tokens * (1 + _FULL) / 2 / max(1, size))
        if steps >= _GUESSES or not kept_low + 1 < kept < kept_high:
            kept = (kept_low + kept_high + 1) // 2
    return _without_middle(text, kept_low, where)


def _without_middle(text: str, kept: int, where: str) -> str:
    # More of the beginning: it says what the rest is about.
    head = (kept * 2 + 2) // 3
    tail = kept - head
    note = f"[... {len(text) - kept} characters left out{where and '; ' + where} ...]"
    return "\n".join(filter(None, (text[:head], note, text[len(text) - tail :])))


def cap_for(sizes: Sequence[int], total: int) -> int:
    """Returns the largest cap with which sizes, each cut to it, sum up to a total at most.

    Small ones stay whole as long as large ones can be cut. 0 where nothing fits.
    """
    left, cap = total, 0
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if size > share:
            return max(0, share)
        left -= size
        cap = size
    return cap


def cut_message(message: ChatMessage, tokens: int, *, where: str = "") -> ChatMessage:
    """Returns a message whose texts have at most so many tokens together.

    What is no text stays: it is small, or what the message is about.
    """
    texts = [part.text for part in message.parts if part.HasField("text")]
    sizes = [text_tokens_up_to(tokens, text) for text in texts]
    if sum(sizes) <= tokens:
        return message
    cap = cap_for(sizes, tokens)
    cut = ChatMessage()
    cut.CopyFrom(message)
    for part in cut.parts:
        if part.HasField("text"):
            part.text = cut_text(part.text, cap, where=where)
    return cut
