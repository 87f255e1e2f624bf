"""The first tables: events, transcript, runs, hosts, agents, bindings and keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
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


def _bytes(name: str, *, nullable: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=nullable)


def _boolean(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False)


def _counter(name: str) -> sa.Column[int]:
    return sa.Column(name, COUNTER, autoincrement=True, nullable=False)


def _primary(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=f"pk_{table}")


def _of_run(table: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_run_id_runs"
    return sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=name, ondelete="CASCADE")


def upgrade() -> None:
    """Create them."""
    _create_events()
    _create_runs()
    _create_parts_of_runs()
    _create_transcript()
    _create_catalogue()


def _create_events() -> None:
    op.create_table(
        "events",
        _counter("position"),
        _key("workspace"),
        _key("bot"),
        _key("source"),
        _key("event_id"),
        _key("type"),
        _bytes("digest"),
        _key("conversation_key"),
        _integer("occurred_at", nullable=True),
        _integer("received_at"),
        _text("input_summary"),
        _bytes("envelope"),
        _key("run_id", nullable=True),
        _primary("events", "position"),
        sa.UniqueConstraint(
            "workspace",
            "bot",
            "source",
            "event_id",
            name="uq_events_workspace_bot_source_event_id",
        ),
        sqlite_autoincrement=True,
    )


def _create_runs() -> None:
    op.create_table(
        "agent_snapshots",
        _bytes("digest"),
        _bytes("snapshot"),
        _primary("agent_snapshots", "digest"),
    )
    op.create_table(
        "runs",
        _key("run_id"),
        _key("workspace"),
        _key("bot"),
        _key("event_source"),
        _key("event_id"),
        sa.Column("status", sa.SmallInteger, nullable=False),
        _key("agent_id"),
        _integer("agent_revision"),
        _key("binding_id", nullable=True),
        _key("runner_id"),
        _key("instance_id", nullable=True),
        _key("conversation_key"),
        _key("session_key"),
        _integer("created_at"),
        _integer("queued_at", nullable=True),
        _integer("started_at", nullable=True),
        _integer("first_delta_at", nullable=True),
        _integer("ended_at", nullable=True),
        _integer("deadline", nullable=True),
        _text("usage", nullable=True),
        _text("failure", nullable=True),
        _text("warnings", nullable=True),
        _integer("last_sequence"),
        _integer("reserved_sequence"),
        _integer("latest_cursor_position", nullable=True),
        _key("host_id"),
        _key("host_incarnation"),
        _bytes("agent_snapshot_digest"),
        _primary("runs", "run_id"),
        sa.ForeignKeyConstraint(
            ["agent_snapshot_digest"],
            ["agent_snapshots.digest"],
            name="fk_runs_agent_snapshot_digest_agent_snapshots",
        ),
    )
    _create_run_index("created", [])
    _create_run_index("workspace", ["workspace"])
    _create_run_index("agent", ["agent_id"])
    _create_run_index("conversation", ["conversation_key"])
    _create_run_index("active", [], where="status < 4")
    _create_run_index("ended_badly", [], where="status > 4")


def _create_run_index(name: str, columns: list[str], *, where: str | None = None) -> None:
    condition = None if where is None else sa.text(where)
    op.create_index(
        f"ix_runs_{name}",
        "runs",
        [*columns, "created_at", "run_id"],
        sqlite_where=condition,
        postgresql_where=condition,
    )


def _create_parts_of_runs() -> None:
    op.create_table(
        "run_results",
        _key("run_id"),
        _integer("sequence"),
        _integer("first_sequence"),
        _integer("runner_sequence"),
        _key("kind"),
        _integer("at"),
        _bytes("payload"),
        _primary("run_results", "run_id", "sequence"),
        _of_run("run_results"),
    )
    op.create_table(
        "run_checkpoints",
        _key("run_id"),
        _key("message_id"),
        _integer("sequence"),
        _integer("at"),
        _text("text"),
        _text("reasoning"),
        _primary("run_checkpoints", "run_id", "message_id", "sequence"),
        _of_run("run_checkpoints"),
    )
    op.create_table(
        "log_entries",
        _counter("position"),
        _key("run_id"),
        _key("kind"),
        _integer("at"),
        _integer("sequence", nullable=True),
        _bytes("payload"),
        _primary("log_entries", "position"),
        _of_run("log_entries"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_log_entries_run_id_position", "log_entries", ["run_id", "position"])
    op.create_table(
        "hosts",
        _key("host_id"),
        _key("incarnation"),
        _integer("lease_until"),
        _primary("hosts", "host_id"),
    )


def _create_transcript() -> None:
    op.create_table(
        "conversations",
        _key("conversation_key"),
        _integer("last_position"),
        _primary("conversations", "conversation_key"),
    )
    op.create_table(
        "transcript_items",
        _key("transcript_id"),
        _key("conversation_key"),
        _integer("position"),
        _key("workspace"),
        _key("bot"),
        _key("event_id"),
        _key("run_id", nullable=True),
        _key("runner_id", nullable=True),
        _key("role"),
        _key("kind"),
        _integer("created_at"),
        _boolean("incomplete"),
        _bytes("actor", nullable=True),
        _text("text", nullable=True),
        _bytes("content"),
        _primary("transcript_items", "transcript_id"),
        sa.UniqueConstraint(
            "conversation_key",
            "position",
            name="uq_transcript_items_conversation_key_position",
        ),
    )


def _create_catalogue() -> None:
    op.create_table(
        "agents",
        _key("id"),
        _text("name"),
        _key("runner_id"),
        _text("document"),
        _boolean("enabled"),
        _integer("revision"),
        _integer("created_at"),
        _integer("updated_at"),
        _primary("agents", "id"),
    )
    op.create_table(
        "bindings",
        _key("id"),
        _key("agent_id"),
        _text("document"),
        _boolean("enabled"),
        _integer("revision"),
        _integer("created_at"),
        _integer("updated_at"),
        _primary("bindings", "id"),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_bindings_agent_id_agents"),
    )
    op.create_index("ix_bindings_agent_id", "bindings", ["agent_id"])
    op.create_table(
        "catalogue_revision",
        sa.Column("id", sa.SmallInteger, nullable=False, autoincrement=False),
        _integer("revision"),
        _primary("catalogue_revision", "id"),
    )
    op.create_table(
        "api_keys",
        _key("key_id"),
        _text("name"),
        _bytes("hash"),
        _key("role"),
        _key("workspace", nullable=True),
        _key("bot", nullable=True),
        _integer("created_at"),
        _integer("expires_at", nullable=True),
        _integer("revoked_at", nullable=True),
        _integer("last_used_at", nullable=True),
        _primary("api_keys", "key_id"),
        sa.UniqueConstraint("hash", name="uq_api_keys_hash"),
    )


def downgrade() -> None:
    """Drop them, those first that refer to others."""
    for table in (
        "api_keys",
        "catalogue_revision",
        "bindings",
        "agents",
        "transcript_items",
        "conversations",
        "hosts",
        "log_entries",
        "run_checkpoints",
        "run_results",
        "runs",
        "agent_snapshots",
        "events",
    ):
        op.drop_table(table)
