"""Tokens with which plugins attach to hosts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _integer(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def upgrade() -> None:
    """Create their table."""
    op.create_table(
        "attach_tokens",
        sa.Column("token_id", KEY, nullable=False),
        sa.Column("plugin_id", KEY, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        _integer("created_at"),
        _integer("expires_at"),
        _integer("revoked_at", nullable=True),
        _integer("last_used_at", nullable=True),
        sa.PrimaryKeyConstraint("token_id", name="pk_attach_tokens"),
        sa.UniqueConstraint("hash", name="uq_attach_tokens_hash"),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("attach_tokens")
