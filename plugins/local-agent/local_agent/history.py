"""The transcript as a model is told of it: items in, valid messages out.

What a model's protocol wants is an assistant's calls followed by a result for each. The transcript
has neither ids nor arguments of calls: those of this agent's own turns come from `exchanges`, whole
by construction; items of calls and results that others left are not told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import types_pb2
from runmesh.v1.types_pb2 import ChatMessage, ContentPart

from runner_sdk.messages import user_message

from .budget import cut_text
from .files import is_viewable
from .tokens import is_image, messages_tokens, part_tokens

_CUT_OFF = "[This answer was cut off: the run ended before it was complete.]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How items are told.

    Attributes:
        message_tokens: Tokens of one message at most.
        sees_images: Whether the model is shown images, or told their names.
        names_speakers: Whether several people speak, and a message says who.
        gone: The ids of images whose bytes are not there any more.
    """

    message_tokens: int
    sees_images: bool = False
    names_speakers: bool = False
    gone: frozenset[str] = frozenset()

    def message(self, item: api.TranscriptItem) -> ChatMessage | None:
        """Returns the message of an item; None where a model has nothing to be told of it."""
        if item.kind in _UNTOLD or item.role == types_pb2.CHAT_ROLE_TOOL:
            return None
        parts = self._parts(item)
        if not parts:
            return None
        if item.role == types_pb2.CHAT_ROLE_ASSISTANT:
            if item.incomplete:
                parts.append(_text(f"\n{_CUT_OFF}"))
            return ChatMessage(role=types_pb2.CHAT_ROLE_ASSISTANT, parts=_joined(parts))
        if item.role == types_pb2.CHAT_ROLE_SYSTEM:
            # Instructions in the middle are refused by some models; and these are none of ours.
            parts = [_text("[Notice in the conversation] "), *parts]
        elif self.names_speakers and (speaker := speaker_of(item)):
            parts = [_text(f"{speaker}: "), *parts]
        return user_message(*_joined(parts))

    def _parts(self, item: api.TranscriptItem) -> list[ContentPart]:
        where = _whole_text(item)
        given = list(item.parts)
        if item.HasField("text") and not any(part.HasField("text") for part in given):
            given.insert(0, _text(item.text))
        left = self.message_tokens
        told: list[ContentPart] = []
        for part in given:
            if part.HasField("text"):
                shown = self._shown(part.text, left, where) if part.text else None
            elif self._is_shown(part, item):
                shown = part
            else:
                shown = _text(f"[{_named(part)}]")
            if shown is not None:
                left = max(1, left - part_tokens(shown))
                told.append(shown)
        present = {part.artifact.artifact_id for part in item.parts if part.HasField("artifact")}
        told += [
            _text(f"\n[{_named(ContentPart(artifact=ref))}]")
            for ref in item.artifacts[1 if item.truncated else 0 :]
            if ref.artifact_id not in present
        ]
        return told

    def images(self, item: api.TranscriptItem) -> list[types_pb2.ArtifactRef]:
        """Returns the images of an item that a model is shown, so far as their bytes are there."""
        return [part.artifact for part in item.parts if self._is_shown(part, item)]

    def _is_shown(self, part: ContentPart, item: api.TranscriptItem) -> bool:
        # Models are shown images of people's alone; and an address may be none any more.
        return (
            self.sees_images
            and item.role == types_pb2.CHAT_ROLE_USER
            and part.HasField("artifact")
            and is_viewable(part)
            and part.artifact.artifact_id not in self.gone
        )

    def _shown(self, text: str, tokens: int, where: str) -> ContentPart:
        # Of a text that the host has cut already, the end is not at hand: it is marked like one
        # that is cut here.
        marked = f"{text}\n[... {where} ...]" if where else text
        return _text(cut_text(marked, tokens, where=where))


_UNTOLD = frozenset({api.TRANSCRIPT_KIND_TOOL_CALL, api.TRANSCRIPT_KIND_TOOL_RESULT})


def speaker_of(item: api.TranscriptItem) -> str:
    """Returns who said an item, on one line; empty where nobody is named."""
    return " ".join((item.actor.name or item.actor.id).split())[:80]


def _whole_text(item: api.TranscriptItem) -> str:
    if not item.truncated:
        return ""
    kept = item.artifacts[0].artifact_id if item.artifacts else ""
    return f"the whole text is the artifact {kept}" if kept else "this is only the beginning"


def _named(part: ContentPart) -> str:
    kind = part.WhichOneof("content")
    if kind is None:
        return "something that cannot be shown"
    content = getattr(part, kind)
    word = getattr(content, "type", "") or ("image" if is_image(part) else "file")
    name = content.name or (part.url.url if kind == "url" else "")
    summary = part.artifact.summary if kind == "artifact" else ""
    return " ".join(filter(None, (word, name[:200], summary and f"({summary[:300]})")))


def _text(text: str) -> ContentPart:
    return ContentPart(text=text)


def _joined(parts: Sequence[ContentPart]) -> list[ContentPart]:
    """Returns the parts with texts in a row joined: the plainest form, that every model takes."""
    joined: list[ContentPart] = []
    for part in parts:
        if part.HasField("text") and joined and joined[-1].HasField("text"):
            joined[-1] = _text(joined[-1].text + part.text)
        else:
            joined.append(part)
    return joined


@dataclass(slots=True)
class Passage:
    """What belongs together in the conversation: a person's message, and what followed it.

    Attributes:
        messages: As a model is told.
        cursor: Where its last item is.
        event_ids: The events that it is about.
        tokens: What it takes of a prompt.
    """

    messages: list[ChatMessage] = field(default_factory=list)
    cursor: str = ""
    event_ids: set[str] = field(default_factory=set)
    tokens: int = 0


def passages_of(
    items: Iterable[api.TranscriptItem],
    telling: Telling,
    exchanges: Mapping[str, Sequence[ChatMessage]],
) -> list[Passage]:
    """Returns the passages of items, oldest first.

    Args:
        items: Items of the transcript, oldest first.
        telling: How they are told.
        exchanges: Calls of tools and their results, by the event that they answered. They stand
            behind the event's own message, or before the first answer to an event without one.
    """
    passages: list[Passage] = []
    placed: set[str] = set()
    for item in items:
        is_user = item.role == types_pb2.CHAT_ROLE_USER
        if is_user or not passages:
            passages.append(Passage())
        passage = passages[-1]
        message = telling.message(item)
        exchange = [] if item.event_id in placed else exchanges.get(item.event_id, [])
        placed.add(item.event_id)
        told = [message] if message is not None else []
        added = [*told, *exchange] if is_user else [*exchange, *told]
        passage.messages += added
        passage.tokens += messages_tokens(added)
        passage.cursor = item.cursor
        passage.event_ids.add(item.event_id)
    return passages
