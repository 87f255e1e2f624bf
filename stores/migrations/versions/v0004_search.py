"""A number and the search terms for every transcript item, and their index."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TERMS = sa.Text().with_variant(postgresql.ARRAY(sa.Integer), "postgresql")


def _key(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, KEY, nullable=nullable)


def _item_columns() -> tuple[sa.Column[Any], ...]:
    return (
        _key("transcript_id"),
        _key("conversation_key"),
        sa.Column("position", sa.BigInteger, nullable=False),
        _key("workspace"),
        _key("bot"),
        _key("event_id"),
        _key("run_id", nullable=True),
        _key("runner_id", nullable=True),
        _key("role"),
        _key("kind"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("incomplete", sa.Boolean, nullable=False),
        sa.Column("actor", sa.LargeBinary, nullable=True),
        sa.Column("text", sa.Text, nullable=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )


def _unique(*columns: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*columns, name=f"uq_transcript_items_{'_'.join(columns)}")


def upgrade() -> None:
    """Give items their numbers, and make what keeps the index; the terms come after start-up."""
    _put_aside()
    op.create_table(
        "transcript_items",
        sa.Column("number", COUNTER, autoincrement=True, nullable=False),
        *_item_columns(),
        sa.Column("terms", TERMS, nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_transcript_items"),
        _unique("transcript_id"),
        _unique("conversation_key", "position"),
        sqlite_autoincrement=True,
    )
    # By time, but never against the order of a conversation.
    _take_back(
        "(SELECT *, max(created_at) OVER (PARTITION BY conversation_key ORDER BY position) AS came"
        " FROM old_items) AS items ORDER BY came, conversation_key, position"
    )
    unindexed = sa.text("terms IS NULL AND text IS NOT NULL")
    op.create_index(
        "ix_transcript_items_unindexed",
        "transcript_items",
        ["number"],
        sqlite_where=unindexed,
        postgresql_where=unindexed,
    )
    if op.get_bind().dialect.name == "sqlite":
        _create_sqlite_index()
    else:
        _create_postgresql_index()


def _put_aside() -> None:
    op.rename_table("transcript_items", "old_items")
    if op.get_bind().dialect.name == "postgresql":
        # There the names of constraints are the schema's, and are needed again.
        op.drop_constraint("pk_transcript_items", "old_items")
        op.drop_constraint("uq_transcript_items_conversation_key_position", "old_items")


def _take_back(source: str) -> None:
    names = ", ".join(column.name for column in _item_columns())
    op.execute(f"INSERT INTO transcript_items ({names}) SELECT {names} FROM {source}")  # noqa: S608
    op.drop_table("old_items")


def _create_sqlite_index() -> None:
    # It keeps no text of its own, and is told what goes in and what comes out: by those who insert
    # items, and else by triggers.
    op.execute(
        "CREATE VIRTUAL TABLE transcript_search USING fts5(terms, content = 'transcript_items',"
        " content_rowid = 'number', detail = none, columnsize = 0, tokenize = 'ascii')"
    )
    op.execute("INSERT INTO transcript_search (transcript_search, rank) VALUES ('automerge', 16)")
    remove = (
        "INSERT INTO transcript_search (transcript_search, rowid, terms)"
        " SELECT 'delete', old.number, old.terms WHERE old.terms IS NOT NULL;"
    )
    add = (
        "INSERT INTO transcript_search (rowid, terms)"
        " SELECT new.number, new.terms WHERE new.terms IS NOT NULL;"
    )
    for name, change, actions in (
        ("changed", "UPDATE OF terms", remove + add),
        ("removed", "DELETE", remove),
    ):
        op.execute(
            f"CREATE TRIGGER transcript_items_{name} AFTER {change} ON transcript_items"
            f" BEGIN {actions} END"
        )


def _create_postgresql_index() -> None:
    # Beside its terms, an item is found by its blocks of 4,096 and of 65,536 numbers: below zero,
    # where no term is. What waits to be merged is read by every search, so that little may wait.
    op.execute(
        "CREATE INDEX ix_transcript_items_search ON transcript_items USING gin"
        " ((terms || ARRAY[(-1 - (number >> 12))::integer,"
        " (-1073741825 - (number >> 16))::integer]))"
        " WITH (fastupdate = on, gin_pending_list_limit = 64)"
    )
    # Without statistics the planner thinks the same of every term, so that a plan which was made
    # for one query is the plan for all.
    op.execute("ALTER TABLE transcript_items ALTER COLUMN terms SET STATISTICS 0")
    op.execute("ALTER INDEX ix_transcript_items_search ALTER COLUMN 1 SET STATISTICS 0")


def downgrade() -> None:
    """Drop the index, the terms and the numbers."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    if sqlite:
        for name in ("changed", "removed"):
            op.execute(f"DROP TRIGGER transcript_items_{name}")
        op.execute("DROP TABLE transcript_search")
    _put_aside()
    if not sqlite:
        op.drop_constraint("uq_transcript_items_transcript_id", "old_items")
    op.create_table(
        "transcript_items",
        *_item_columns(),
        sa.PrimaryKeyConstraint("transcript_id", name="pk_transcript_items"),
        _unique("conversation_key", "position"),
    )
    _take_back("old_items ORDER BY number")
