"""What a run was granted, and which run it replays."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Let a run name the one it replays, and say how it came to its agent and how it went."""
    op.add_column("runs", sa.Column("replay_of", KEY, nullable=True))
    op.add_column("runs", sa.Column("resolution", sa.Text, nullable=True))
    op.add_column("runs", sa.Column("course", sa.Text, nullable=True))
    is_replay = sa.text("replay_of IS NOT NULL")
    op.create_index(
        "ix_runs_replay_of",
        "runs",
        ["replay_of", "created_at", "run_id"],
        sqlite_where=is_replay,
        postgresql_where=is_replay,
    )


def downgrade() -> None:
    """Take that away."""
    op.drop_index("ix_runs_replay_of", "runs")
    for name in ("course", "resolution", "replay_of"):
        op.drop_column("runs", name)
