"""What a session is held over: a pair of streams, and what is known of the other side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams


class Transport:
    """A connection that carries one session.

    Attributes:
        streams: What the session reads and writes.
        over: Set when nothing more will come.
        forgot_session: Whether the other side said that it does not know the session.
    """

    streams: TransportStreams

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.forgot_session = False
        self._fault = ""

    def last_words(self) -> str:
        """The last that the other side wrote beside its messages."""
        return ""

    async def trouble(self) -> str:
        """Why it is over, or why nothing can be heard."""
        return self._fault
