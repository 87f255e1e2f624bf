"""Events that were handed to a run that was under way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Let a run name the one that took its event up instead."""
    op.add_column("runs", sa.Column("steered_into", KEY, nullable=True))


def downgrade() -> None:
    """Take that name away."""
    op.drop_column("runs", "steered_into")
