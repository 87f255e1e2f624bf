"""Actions that runs ask for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _key(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, KEY, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _integer(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def upgrade() -> None:
    """Create their table."""
    op.create_table(
        "actions",
        _key("action_id"),
        _key("scope_key"),
        _key("idempotency_key"),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        _key("run_id"),
        _key("workspace"),
        _key("agent_id"),
        _key("runner_id"),
        _key("name"),
        _text("target", nullable=True),
        _text("payload", nullable=True),
        _integer("hint"),
        sa.Column("status", sa.SmallInteger, nullable=False),
        _text("missing"),
        _text("result", nullable=True),
        _text("detail"),
        _integer("requested_at"),
        _integer("decided_at", nullable=True),
        _key("decided_by", nullable=True),
        _integer("started_at", nullable=True),
        _integer("ended_at", nullable=True),
        _key("host_id"),
        _key("host_incarnation"),
        sa.PrimaryKeyConstraint("action_id", name="pk_actions"),
        sa.UniqueConstraint(
            "scope_key", "idempotency_key", name="uq_actions_scope_key_idempotency_key"
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.run_id"], name="fk_actions_run_id_runs", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_actions_run", "actions", ["run_id", "action_id"])
    op.create_index("ix_actions_agent", "actions", ["agent_id", "action_id"])
    is_open = sa.text("status < 3")
    op.create_index(
        "ix_actions_open",
        "actions",
        ["action_id"],
        sqlite_where=is_open,
        postgresql_where=is_open,
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("actions")
