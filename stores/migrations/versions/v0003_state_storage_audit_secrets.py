"""State, storage, audit, the further kinds of the catalogue, and secrets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _key(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, KEY, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _integer(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _bytes(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=False)


def _primary(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=f"pk_{table}")


def upgrade() -> None:
    """Create them."""
    _create_state()
    _create_storage()
    _create_audit()
    _create_catalogue()


def _create_state() -> None:
    op.create_table(
        "state_values",
        _key("scope_key"),
        _key("key"),
        _key("workspace"),
        _integer("version"),
        _integer("updated_at"),
        _integer("size_bytes"),
        _text("value"),
        _primary("state_values", "scope_key", "key"),
    )
    op.create_index("ix_state_values_workspace", "state_values", ["workspace", "updated_at"])
    op.create_table(
        "deleted_state",
        _key("scope_key"),
        _key("key"),
        _integer("version"),
        _integer("deleted_at"),
        _primary("deleted_state", "scope_key", "key"),
    )
    op.create_index("ix_deleted_state_deleted_at", "deleted_state", ["deleted_at"])


def _create_storage() -> None:
    op.create_table(
        "storage_values",
        _key("area"),
        _key("owner"),
        _key("key"),
        _integer("size_bytes"),
        _integer("created_at"),
        _integer("updated_at"),
        _bytes("value"),
        _primary("storage_values", "area", "owner", "key"),
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("position", COUNTER, autoincrement=True, nullable=False),
        _integer("at"),
        _key("run_id", nullable=True),
        _key("runner_id", nullable=True),
        _key("caller", nullable=True),
        _key("rpc"),
        _text("resource"),
        _text("scope"),
        sa.Column("outcome", sa.SmallInteger, nullable=False),
        _text("reason"),
        _integer("duration"),
        _integer("count"),
        _primary("audit", "position"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_at", "audit", ["at", "position"])
    _create_audit_index("run", ["run_id"], where="run_id IS NOT NULL")
    _create_audit_index("not_done", [], where="outcome > 1")


def _create_audit_index(name: str, columns: list[str], *, where: str) -> None:
    condition = sa.text(where)
    op.create_index(
        f"ix_audit_{name}",
        "audit",
        [*columns, "at", "position"],
        sqlite_where=condition,
        postgresql_where=condition,
    )


def _create_catalogue() -> None:
    op.create_table(
        "catalogue_items",
        _key("kind"),
        _key("id"),
        _text("document"),
        sa.Column("enabled", sa.Boolean, nullable=False),
        _integer("revision"),
        _integer("created_at"),
        _integer("updated_at"),
        _primary("catalogue_items", "kind", "id"),
    )
    op.create_table(
        "secrets",
        _key("owner_kind"),
        _key("owner_id"),
        _key("name"),
        _key("key_id"),
        _integer("updated_at"),
        _bytes("sealed"),
        _primary("secrets", "owner_kind", "owner_id", "name"),
    )


def downgrade() -> None:
    """Drop them."""
    for table in (
        "secrets",
        "catalogue_items",
        "audit",
        "storage_values",
        "deleted_state",
        "state_values",
    ):
        op.drop_table(table)
