"""A conversation and thread: as its source numbers it, and as the host knows it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from host_service.runs.event import conversation_key


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """A conversation and thread.

    Attributes:
        workspace: Its workspace, or empty.
        bot: Its bot, or empty.
        conversation_id: Its id in the source's numbering; empty: there is none.
        thread_id: Its thread, or empty.
    """

    workspace: str
    bot: str
    conversation_id: str
    thread_id: str

    @cached_property
    def key(self) -> str:
        """What it is known by everywhere; empty for none."""
        return conversation_key(
            workspace=self.workspace,
            bot=self.bot,
            conversation=self.conversation_id,
            thread=self.thread_id,
        )
