"""Events of a conversation, page by page."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_BELONGS = sa.text("conversation_key <> ''")


def upgrade() -> None:
    """Index the events of each conversation in the order of their arrival, with their types."""
    op.create_index(
        "ix_events_conversation",
        "events",
        ["conversation_key", "position", "type"],
        sqlite_where=_BELONGS,
        postgresql_where=_BELONGS,
    )


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("ix_events_conversation", "events")
