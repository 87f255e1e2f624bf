"""Giving artifacts that nobody has to a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from stores.sql.connection import Connection
from stores.sql.tables import artifacts

_is_artifact = artifacts.c.artifact_id == sa.bindparam("of_artifact")
_is_alive = sa.or_(artifacts.c.expires_at.is_(None), artifacts.c.expires_at > sa.bindparam("now"))

_SELECT = sa.select(
    artifacts.c.workspace,
    artifacts.c.bot,
    artifacts.c.conversation_key,
    artifacts.c.run_id,
).where(_is_artifact, _is_alive)
_UPDATE = (
    sa.update(artifacts)
    .where(_is_artifact)
    .values(
        workspace=sa.bindparam("to_workspace"),
        bot=sa.bindparam("to_bot"),
        conversation_key=sa.bindparam("to_conversation"),
    )
)


@dataclass(frozen=True, slots=True)
class Adoption:
    """One giving away, as work for the journal.

    All of it happens in one transaction, and transactions are one at a time: of two conversations
    that want the same artifact, one gets it.
    """

    artifact_ids: Sequence[str]
    workspace: str
    bot: str
    conversation_key: str
    now: int

    def __call__(self, connection: Connection) -> tuple[str, ...]:
        """Give all away, or none; return those that cannot be."""
        taken: list[str] = []
        free: list[str] = []
        for artifact_id in self.artifact_ids:
            row = connection.first(_SELECT, {"of_artifact": artifact_id, "now": self.now})
            place = (self.workspace, self.bot, self.conversation_key)
            if row is None:
                taken.append(artifact_id)
            elif self.conversation_key and row[:3] == place:
                continue
            elif self._is_free(*row):
                free.append(artifact_id)
            else:
                taken.append(artifact_id)
        if not taken:
            target = {
                "to_workspace": self.workspace,
                "to_bot": self.bot,
                "to_conversation": self.conversation_key,
            }
            connection.run_many(_UPDATE, [{"of_artifact": each, **target} for each in free])
        return tuple(taken)

    def _is_free(self, workspace: str, bot: str, conversation_key: str, run_id: str | None) -> bool:
        return (
            run_id is None
            and not conversation_key
            and workspace in {"", self.workspace}
            and bot in {"", self.bot}
        )
