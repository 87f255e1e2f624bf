"""Pages of the transcript as they go out: stored bytes put together, the rest decoded.

What flows where::

    store ── content ──┬── nothing but a text, and short ──> as it is ──┬── its place behind it ──>
                       └── parts, artifacts, a long text ──> decoded ───┘
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from google.protobuf.message import Message
from runmesh.v1 import host_api_pb2

from host_service.authorization.snapshot import Snapshot
from host_service.capabilities.whole_texts import WholeTexts
from host_service.limits import Limits
from host_service.pages import PageTokens, foreign_token
from host_service.runs.artifact_refs import hand_to_run
from host_service.runs.conversation import Conversation
from host_service.runs.cursors import Cursors
from host_service.runs.transcript import is_plain, message_of, message_of_record
from host_service.validation.wire_texts import varint
from stores.records import PlacedContent
from stores.transcript import Transcript

# On the wire: fields 1 and 2 of every response that is a page, and 5, 6 and 14 of an item; all
# length-delimited.
_ITEM, _NEXT_PAGE_TOKEN = b"\x0a", b"\x12"
_CONVERSATION_ID, _THREAD_ID, _CURSOR = b"\x2a", b"\x32", b"\x72"
# More than positions have, and less than 64 bits.
_POSITION_DIGITS = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who reads, and what of it.

    Attributes:
        with_artifacts: Whether refs of artifacts are asked for.
        run: The rights of the run that reads; None: a caller, who may do what a ref says.
        sees_artifacts: Whether the run may see artifacts of the conversation, as far as it was
            granted to.
    """

    with_artifacts: bool
    run: Snapshot | None = None
    sees_artifacts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Which items to read.

    Attributes:
        at_or_before: The highest position; None: no bound.
        after: The position below the lowest; None: no bound.
        newest_first: The order.
        size: How many at most.
    """

    at_or_before: int | None
    after: int | None
    newest_first: bool
    size: int

    def going_on(self, last: int | None) -> Span:
        """Return what there is behind the last item of a page; None: that was no page yet."""
        if last is None:
            return self
        if self.newest_first:
            below = last - 1 if self.at_or_before is None else min(last - 1, self.at_or_before)
            return replace(self, at_or_before=below)
        return replace(self, after=max(last, self.after or 0))


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """A page on the wire.

    Attributes:
        items: The items, encoded as field 1 of the response.
        last: The position of the last item; None: there are none after it.
    """

    items: bytes
    last: int | None


class TranscriptPages:
    """Reads and encodes pages of the transcript.

    Args:
        transcript: Where items are.
        texts: Cuts texts that are too long.
        limits: How much a page has, and a text in it.
    """

    def __init__(self, *, transcript: Transcript, texts: WholeTexts, limits: Limits) -> None:
        self._transcript = transcript
        self._texts = texts
        self._limits = limits

    async def read(self, conversation: Conversation, span: Span, reader: Reader) -> EncodedPage:
        """Return a page of a conversation."""
        page = await self._transcript.contents(
            conversation.key,
            at_or_before=span.at_or_before,
            after=span.after,
            limit=span.size,
            newest_first=span.newest_first,
            most_bytes=self._limits.page_bytes,
        )
        return await self._encode(conversation, page.items, page.next_cursor, reader)

    async def search(
        self,
        conversation: Conversation,
        query: str,
        *,
        before: int | None,
        size: int,
        reader: Reader,
    ) -> EncodedPage:
        """Return a page of the items that a query finds, newest first."""
        found = await self._transcript.search(conversation.key, query, before=before, limit=size)
        placed = [PlacedContent(item.position, item.content) for item in found.items]
        return await self._encode(conversation, placed, found.next_cursor, reader)

    async def exists(self, conversation: Conversation) -> bool:
        """Return whether anything was ever said in a conversation."""
        return await self._transcript.latest_position(conversation.key) is not None

    async def _encode(
        self,
        conversation: Conversation,
        placed: Sequence[PlacedContent],
        last: int | None,
        reader: Reader,
    ) -> EncodedPage:
        cursors = Cursors.of(conversation.key)
        place = _place(conversation)
        most, text_bytes = self._limits.page_bytes, self._limits.page_item_text_bytes
        pieces: list[bytes] = []
        held, before = 0, None
        for position, content in placed:
            if len(content) > text_bytes or not is_plain(content):
                message = await self._message(conversation, position, content)
                if message is None:
                    continue
                content = await self._shown(conversation, message, reader)
            cursor = cursors.encode(position).encode()
            body = b"%b%b%b%c%b" % (content, place, _CURSOR, len(cursor), cursor)
            piece = _field(_ITEM, body)
            held += len(piece)
            if pieces and held > most:
                return EncodedPage(b"".join(pieces), before)
            pieces.append(piece)
            before = position
        return EncodedPage(b"".join(pieces), last)

    async def _message(
        self, conversation: Conversation, position: int, content: bytes
    ) -> host_api_pb2.TranscriptItem | None:
        """Decode an item; None if it was deleted before its record could be read."""
        message = message_of(content)
        if message is None:
            page = await self._transcript.page(conversation.key, at_or_before=position, limit=1)
            if page.items and page.items[0].position == position:
                message = message_of_record(page.items[0])
        return message

    async def _shown(
        self, conversation: Conversation, message: host_api_pb2.TranscriptItem, reader: Reader
    ) -> bytes:
        """Return an item as a reader gets it, all but its place."""
        if not reader.with_artifacts:
            del message.artifacts[:]
        await self._texts.cut(message, conversation)
        if reader.run is not None:
            hand_to_run(message, reader.run, sees=reader.sees_artifacts)
        return message.SerializeToString()


def read_token(pages: PageTokens, request: Message, conversation: Conversation) -> int | None:
    """Return the position that a page goes on behind; None for the first page.

    Raises:
        InvalidArgument: It is no token, or one of another query or conversation.
    """
    cursor = pages.read(request, within=conversation.key)
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < _POSITION_DIGITS):
        raise foreign_token("a token made by hand")
    return int(cursor)


def issue_token(
    pages: PageTokens, request: Message, page: EncodedPage, conversation: Conversation
) -> str:
    """Return the token of the page behind one; empty at the end."""
    last = None if page.last is None else str(page.last)
    return pages.issue(request, last, within=conversation.key)


def end_of_page(next_page_token: str) -> bytes:
    """Return what follows the items of a response that is a page."""
    return _field(_NEXT_PAGE_TOKEN, next_page_token.encode()) if next_page_token else b""


def _place(conversation: Conversation) -> bytes:
    """Return the fields of an item that its conversation has for all."""
    fields = _field(_CONVERSATION_ID, conversation.conversation_id.encode())
    if conversation.thread_id:
        fields += _field(_THREAD_ID, conversation.thread_id.encode())
    return fields


def _field(tag: bytes, data: bytes) -> bytes:
    size = len(data)
    if size < 0x80:
        return b"%b%c%b" % (tag, size, data)
    # Two bytes say the size of nearly all items.
    if size < 0x4000:
        return b"%b%c%c%b" % (tag, size & 0x7F | 0x80, size >> 7, data)
    return tag + varint(size) + data
