"""Documents, their chunks, and what these are found by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _key(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, KEY, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _integer(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def _bytes(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=False)


def _counter() -> sa.Column[int]:
    return sa.Column("number", COUNTER, autoincrement=True, nullable=False)


def _primary(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=f"pk_{table}")


def _partial_index(name: str, table: str, column: str, *, where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(
        name,
        table,
        [column],
        unique=unique,
        sqlite_where=condition,
        postgresql_where=condition,
    )


def upgrade() -> None:
    """Create their tables."""
    _create_documents()
    _create_chunks()
    _create_index()


def _create_documents() -> None:
    op.create_table(
        "knowledge_bases",
        _counter(),
        _key("knowledge_base_id"),
        _integer("removed_at", nullable=True),
        _primary("knowledge_bases", "number"),
        sqlite_autoincrement=True,
    )
    _partial_index(
        "ix_knowledge_bases_kept",
        "knowledge_bases",
        "knowledge_base_id",
        where="removed_at IS NULL",
        unique=True,
    )
    op.create_table(
        "knowledge_documents",
        _counter(),
        _integer("base"),
        _key("document_id"),
        _key("status"),
        _text("reason", nullable=True),
        _integer("current_version", nullable=True),
        _integer("staged_version", nullable=True),
        _integer("created_at"),
        _integer("updated_at"),
        _primary("knowledge_documents", "number"),
        sa.UniqueConstraint("base", "document_id", name="uq_knowledge_documents_base_document_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "knowledge_versions",
        _counter(),
        _integer("base"),
        _integer("document"),
        _text("name"),
        _text("source"),
        _text("mime_type"),
        _integer("size_bytes"),
        _bytes("sha256"),
        _bytes("settings"),
        _text("metadata"),
        _key("artifact_id", nullable=True),
        _integer("chunk_count"),
        _integer("touched_at"),
        sa.Column("dropped", sa.Boolean, nullable=False),
        _primary("knowledge_versions", "number"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_knowledge_versions_base", "knowledge_versions", ["base", "number"])
    _partial_index("ix_knowledge_versions_dropped", "knowledge_versions", "number", where="dropped")
    _partial_index(
        "ix_knowledge_versions_artifact",
        "knowledge_versions",
        "artifact_id",
        where="artifact_id IS NOT NULL",
    )
    op.create_table(
        "knowledge_metadata",
        _integer("base"),
        _bytes("digest"),
        _integer("version"),
        _primary("knowledge_metadata", "base", "digest", "version"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_knowledge_metadata_version", "knowledge_metadata", ["version"])


def _create_chunks() -> None:
    op.create_table(
        "knowledge_chunks",
        _integer("number"),
        _integer("version"),
        _integer("ordinal"),
        _integer("position"),
        _integer("length"),
        _text("heading"),
        _text("text"),
        _primary("knowledge_chunks", "number"),
        sa.UniqueConstraint("version", "ordinal", name="uq_knowledge_chunks_version_ordinal"),
    )
    op.create_table(
        "knowledge_ranges",
        _integer("version"),
        _integer("first"),
        _integer("count"),
        _primary("knowledge_ranges", "version", "first"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "knowledge_vectors",
        _integer("number"),
        _key("model"),
        _bytes("vector"),
        _primary("knowledge_vectors", "number"),
    )


def _create_index() -> None:
    op.create_table(
        "knowledge_blocks",
        _counter(),
        _integer("base"),
        _integer("used"),
        _integer("garbage"),
        _integer("vector_revision"),
        _bytes("visible"),
        _bytes("lengths"),
        _primary("knowledge_blocks", "number"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_knowledge_blocks_base", "knowledge_blocks", ["base"])
    op.create_table(
        "knowledge_postings",
        _integer("block"),
        _integer("term"),
        _bytes("postings"),
        _primary("knowledge_postings", "block", "term"),
        sqlite_with_rowid=False,
    )


# What may have been made where the database can index vectors; no table here refers to it.
_DROP_VECTOR_INDEXES = r"""
DO $$
DECLARE made text;
BEGIN
    FOR made IN SELECT tablename FROM pg_tables
        WHERE schemaname = current_schema() AND tablename ~ '^vector_index(es|_blocks|_[0-9]+)$'
    LOOP
        EXECUTE 'DROP TABLE ' || quote_ident(made);
    END LOOP;
END $$
"""


def downgrade() -> None:
    """Drop them."""
    if op.get_context().dialect.name == "postgresql":
        op.get_bind().exec_driver_sql(_DROP_VECTOR_INDEXES)
    for name in (
        "postings",
        "blocks",
        "vectors",
        "ranges",
        "chunks",
        "metadata",
        "versions",
        "documents",
        "bases",
    ):
        op.drop_table(f"knowledge_{name}")
