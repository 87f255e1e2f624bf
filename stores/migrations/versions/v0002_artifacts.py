"""Artifacts, and the blobs that hold their bytes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _key(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, KEY, nullable=nullable)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _integer(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def upgrade() -> None:
    """Create them."""
    op.create_table(
        "blobs",
        _key("name"),
        sa.Column("sha256", sa.LargeBinary, nullable=False),
        _integer("size_bytes"),
        _integer("touched_at"),
        _integer("condemned_at", nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_blobs"),
    )
    _create_index("blobs", "living", ["sha256"], where="condemned_at IS NULL", unique=True)
    _create_index("blobs", "condemned", ["name"], where="condemned_at IS NOT NULL")
    op.create_table(
        "artifacts",
        _key("artifact_id"),
        _key("workspace"),
        _key("bot"),
        _key("conversation_key"),
        _key("run_id", nullable=True),
        _key("type"),
        _text("mime_type"),
        _text("name"),
        _text("summary"),
        _integer("created_at"),
        _integer("expires_at", nullable=True),
        _key("blob_name"),
        sa.PrimaryKeyConstraint("artifact_id", name="pk_artifacts"),
        sa.ForeignKeyConstraint(["blob_name"], ["blobs.name"], name="fk_artifacts_blob_name_blobs"),
    )
    ordered = ["created_at", "artifact_id"]
    _create_index("artifacts", "run", ["run_id", *ordered], where="run_id IS NOT NULL")
    _create_index("artifacts", "conversation", ["conversation_key", *ordered])
    _create_index("artifacts", "workspace", ["workspace", *ordered])
    _create_index("artifacts", "expires", ["expires_at"], where="expires_at IS NOT NULL")
    _create_index("artifacts", "blob", ["blob_name"])


def _create_index(
    table: str, name: str, columns: list[str], *, where: str | None = None, unique: bool = False
) -> None:
    condition = None if where is None else sa.text(where)
    op.create_index(
        f"ix_{table}_{name}",
        table,
        columns,
        unique=unique,
        sqlite_where=condition,
        postgresql_where=condition,
    )


def downgrade() -> None:
    """Drop them; the blobs' bytes stay where they are."""
    op.drop_table("artifacts")
    op.drop_table("blobs")
