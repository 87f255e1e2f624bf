"""The schema.

Times are microseconds since 1970 in UTC, in 64-bit integers: one meaning, one order and no
rounding on either engine. Every statement about the schema in a database is made by
`stores.migrations`; a test holds the two together.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from stores.actions import ActionStatus
from stores.audit import AuditOutcome
from stores.records import RunStatus
from stores.sql.dialect import COUNTER, KEY, TERMS

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _key(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, KEY, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _integer(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def _time(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def _bytes(name: str, *, nullable: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=nullable)


def _counter(name: str) -> sa.Column[int]:
    return sa.Column(name, COUNTER, primary_key=True, autoincrement=True)


def is_described(name: str | None, kind: str, _: Any = None) -> bool:
    """Return whether something in a database is described here, as Alembic asks.

    The index for searching is not: it is a table of its own kind on SQLite, with more behind it,
    and an index on an expression on PostgreSQL. Nor are the indexes of vectors, which
    `stores.sql.pgvector` makes where the extension for them is.
    """
    if kind == "table":
        return not str(name).startswith(("transcript_search", "vector_index"))
    return name != "ix_transcript_items_search"


def _of_run() -> sa.ForeignKey:
    return sa.ForeignKey("runs.run_id", ondelete="CASCADE")


events = sa.Table(
    "events",
    metadata,
    _counter("position"),
    _key("workspace"),
    _key("bot"),
    _key("source"),
    _key("event_id"),
    _key("type"),
    _bytes("digest"),
    _key("conversation_key"),
    _time("occurred_at", nullable=True),
    _time("received_at"),
    _text("input_summary"),
    _bytes("envelope"),
    _key("run_id", nullable=True),
    sa.UniqueConstraint("workspace", "bot", "source", "event_id"),
    sqlite_autoincrement=True,
)
# A page of some types looks through the index alone for them. Events without a conversation are
# read one by one.
has_conversation = events.c.conversation_key != sa.literal_column("''")
sa.Index(
    "ix_events_conversation",
    events.c.conversation_key,
    events.c.position,
    events.c.type,
    sqlite_where=has_conversation,
    postgresql_where=has_conversation,
)

log_entries = sa.Table(
    "log_entries",
    metadata,
    _counter("position"),
    sa.Column("run_id", KEY, _of_run(), nullable=False),
    _key("kind"),
    _time("at"),
    _integer("sequence", nullable=True),
    _bytes("payload"),
    sa.Index(None, "run_id", "position"),
    sqlite_autoincrement=True,
)

# Runs of one revision of an agent share one row, found by its SHA-256.
agent_snapshots = sa.Table(
    "agent_snapshots",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    _bytes("snapshot"),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", KEY, primary_key=True),
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
    _time("created_at"),
    _time("queued_at", nullable=True),
    _time("started_at", nullable=True),
    _time("first_delta_at", nullable=True),
    _time("ended_at", nullable=True),
    _time("deadline", nullable=True),
    _text("usage", nullable=True),
    _text("failure", nullable=True),
    _text("warnings", nullable=True),
    _integer("last_sequence"),
    _integer("reserved_sequence"),
    _integer("latest_cursor_position", nullable=True),
    _key("host_id"),
    _key("host_incarnation"),
    sa.Column(
        "agent_snapshot_digest",
        sa.LargeBinary,
        sa.ForeignKey("agent_snapshots.digest"),
        nullable=False,
    ),
    _key("steered_into", nullable=True),
    _key("replay_of", nullable=True),
    _text("resolution", nullable=True),
    _text("course", nullable=True),
)

# A planner uses a partial index only where it can see the condition in the query, so the numbers
# stand in the text of both.
is_active = runs.c.status < sa.literal_column(str(int(RunStatus.COMPLETED)))
ended_badly = runs.c.status > sa.literal_column(str(int(RunStatus.COMPLETED)))


def _run_index(name: str, *columns: sa.Column[str], where: sa.ColumnElement[bool] | None) -> None:
    ordered = (*columns, runs.c.created_at, runs.c.run_id)
    sa.Index(name, *ordered, sqlite_where=where, postgresql_where=where)


# For pages of runs, newest first, whatever one column narrows them. None of these columns ever
# changes, so that a run's steps touch only the two partial indexes.
_run_index("ix_runs_created", where=None)
_run_index("ix_runs_workspace", runs.c.workspace, where=None)
_run_index("ix_runs_agent", runs.c.agent_id, where=None)
_run_index("ix_runs_conversation", runs.c.conversation_key, where=None)
_run_index("ix_runs_active", where=is_active)
_run_index("ix_runs_ended_badly", where=ended_badly)
_run_index("ix_runs_replay_of", runs.c.replay_of, where=runs.c.replay_of.is_not(None))

run_results = sa.Table(
    "run_results",
    metadata,
    sa.Column("run_id", KEY, _of_run(), primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    _integer("first_sequence"),
    _integer("runner_sequence"),
    _key("kind"),
    _time("at"),
    _bytes("payload"),
)

run_checkpoints = sa.Table(
    "run_checkpoints",
    metadata,
    sa.Column("run_id", KEY, _of_run(), primary_key=True),
    sa.Column("message_id", KEY, primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    _time("at"),
    _text("text"),
    _text("reasoning"),
)

# The newest position of each conversation: counted here rather than read from the items, so that
# a position is not used again after its item was deleted.
conversations = sa.Table(
    "conversations",
    metadata,
    sa.Column("conversation_key", KEY, primary_key=True),
    _integer("last_position"),
)

# Numbered in the order of commits, over all conversations. `terms` is what the item is found by, as
# `search_terms` has it; the migrations make the index on it, which each engine has in its own form.
transcript_items = sa.Table(
    "transcript_items",
    metadata,
    _counter("number"),
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
    _time("created_at"),
    sa.Column("incomplete", sa.Boolean, nullable=False),
    _bytes("actor", nullable=True),
    _text("text", nullable=True),
    _bytes("content"),
    sa.Column("terms", TERMS, nullable=True),
    sa.UniqueConstraint("transcript_id"),
    sa.UniqueConstraint("conversation_key", "position"),
    sqlite_autoincrement=True,
)

# What `rows.item_record` takes, in its order.
item_columns = tuple(
    column for column in transcript_items.c if column.name not in ("number", "terms")
)

# Items from before there were terms. What is written today has them, so that the index is empty
# once `search_backfill` has been through.
is_unindexed = sa.and_(transcript_items.c.terms.is_(None), transcript_items.c.text.is_not(None))
sa.Index(
    "ix_transcript_items_unindexed",
    transcript_items.c.number,
    sqlite_where=is_unindexed,
    postgresql_where=is_unindexed,
)

hosts = sa.Table(
    "hosts",
    metadata,
    sa.Column("host_id", KEY, primary_key=True),
    _key("incarnation"),
    _time("lease_until"),
)

agents = sa.Table(
    "agents",
    metadata,
    sa.Column("id", KEY, primary_key=True),
    _text("name"),
    _key("runner_id"),
    _text("document"),
    sa.Column("enabled", sa.Boolean, nullable=False),
    _integer("revision"),
    _time("created_at"),
    _time("updated_at"),
)

bindings = sa.Table(
    "bindings",
    metadata,
    sa.Column("id", KEY, primary_key=True),
    sa.Column("agent_id", KEY, sa.ForeignKey("agents.id"), nullable=False, index=True),
    _text("document"),
    sa.Column("enabled", sa.Boolean, nullable=False),
    _integer("revision"),
    _time("created_at"),
    _time("updated_at"),
)

# One row, whose number grows with every change of agents, bindings, items and secrets.
catalogue_revision = sa.Table(
    "catalogue_revision",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    _integer("revision"),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_id", KEY, primary_key=True),
    _text("name"),
    sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
    _key("role"),
    _key("workspace", nullable=True),
    _key("bot", nullable=True),
    _time("created_at"),
    _time("expires_at", nullable=True),
    _time("revoked_at", nullable=True),
    _time("last_used_at", nullable=True),
)

attach_tokens = sa.Table(
    "attach_tokens",
    metadata,
    sa.Column("token_id", KEY, primary_key=True),
    _key("plugin_id"),
    sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
    _time("created_at"),
    _time("expires_at"),
    _time("revoked_at", nullable=True),
    _time("last_used_at", nullable=True),
)

# The bytes of artifacts, each under a name that is used once: its SHA-256 and a random part. A row
# comes before its bytes and goes after them. A condemned one is being deleted, and is not given to
# anybody any more: who has the same bytes then gets a new name.
blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("name", KEY, primary_key=True),
    _bytes("sha256"),
    _integer("size_bytes"),
    _time("touched_at"),
    _time("condemned_at", nullable=True),
)
is_living = blobs.c.condemned_at.is_(None)
is_condemned = blobs.c.condemned_at.is_not(None)

artifacts = sa.Table(
    "artifacts",
    metadata,
    sa.Column("artifact_id", KEY, primary_key=True),
    _key("workspace"),
    _key("bot"),
    _key("conversation_key"),
    _key("run_id", nullable=True),
    _key("type"),
    _text("mime_type"),
    _text("name"),
    _text("summary"),
    _time("created_at"),
    _time("expires_at", nullable=True),
    sa.Column("blob_name", KEY, sa.ForeignKey("blobs.name"), nullable=False),
)


def _partial_index(
    name: str, *columns: sa.Column[Any], where: sa.ColumnElement[bool], unique: bool = False
) -> None:
    sa.Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


_partial_index("ix_blobs_living", blobs.c.sha256, where=is_living, unique=True)
_partial_index("ix_blobs_condemned", blobs.c.name, where=is_condemned)
_ordered_artifacts = (artifacts.c.created_at, artifacts.c.artifact_id)
_partial_index(
    "ix_artifacts_run",
    artifacts.c.run_id,
    *_ordered_artifacts,
    where=artifacts.c.run_id.is_not(None),
)
sa.Index("ix_artifacts_conversation", artifacts.c.conversation_key, *_ordered_artifacts)
sa.Index("ix_artifacts_workspace", artifacts.c.workspace, *_ordered_artifacts)
_partial_index(
    "ix_artifacts_expires", artifacts.c.expires_at, where=artifacts.c.expires_at.is_not(None)
)
sa.Index("ix_artifacts_blob", artifacts.c.blob_name)

state_values = sa.Table(
    "state_values",
    metadata,
    sa.Column("scope_key", KEY, primary_key=True),
    sa.Column("key", KEY, primary_key=True),
    _key("workspace"),
    _integer("version"),
    _time("updated_at"),
    _integer("size_bytes"),
    _text("value"),
    sa.Index("ix_state_values_workspace", "workspace", "updated_at"),
)

# The versions that deleted keys had, so that a key which comes again goes on above its own.
deleted_state = sa.Table(
    "deleted_state",
    metadata,
    sa.Column("scope_key", KEY, primary_key=True),
    sa.Column("key", KEY, primary_key=True),
    _integer("version"),
    sa.Column("deleted_at", sa.BigInteger, nullable=False, index=True),
)

storage_values = sa.Table(
    "storage_values",
    metadata,
    sa.Column("area", KEY, primary_key=True),
    sa.Column("owner", KEY, primary_key=True),
    sa.Column("key", KEY, primary_key=True),
    _integer("size_bytes"),
    _time("created_at"),
    _time("updated_at"),
    _bytes("value"),
)

audit = sa.Table(
    "audit",
    metadata,
    _counter("position"),
    _time("at"),
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
    sqlite_autoincrement=True,
)

# As with runs, the number stands in the text of index and query.
was_not_done = audit.c.outcome > sa.literal_column(str(int(AuditOutcome.DONE)))


def _audit_index(
    name: str, *columns: sa.Column[Any], where: sa.ColumnElement[bool] | None = None
) -> None:
    ordered = (*columns, audit.c.at, audit.c.position)
    sa.Index(name, *ordered, sqlite_where=where, postgresql_where=where)


_audit_index("ix_audit_at")
_audit_index("ix_audit_run", audit.c.run_id, where=audit.c.run_id.is_not(None))
_audit_index("ix_audit_not_done", where=was_not_done)

# What operators keep beside agents and bindings, which others refer to by kind and id.
catalogue_items = sa.Table(
    "catalogue_items",
    metadata,
    sa.Column("kind", KEY, primary_key=True),
    sa.Column("id", KEY, primary_key=True),
    _text("document"),
    sa.Column("enabled", sa.Boolean, nullable=False),
    _integer("revision"),
    _time("created_at"),
    _time("updated_at"),
)

secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("owner_kind", KEY, primary_key=True),
    sa.Column("owner_id", KEY, primary_key=True),
    sa.Column("name", KEY, primary_key=True),
    _key("key_id"),
    _time("updated_at"),
    _bytes("sealed"),
)

# What runs asked to have done. An action goes with the run that asked for it last.
actions = sa.Table(
    "actions",
    metadata,
    sa.Column("action_id", KEY, primary_key=True),
    _key("scope_key"),
    _key("idempotency_key"),
    _bytes("digest"),
    sa.Column("run_id", KEY, _of_run(), nullable=False),
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
    _time("requested_at"),
    _time("decided_at", nullable=True),
    _key("decided_by", nullable=True),
    _time("started_at", nullable=True),
    _time("ended_at", nullable=True),
    _key("host_id"),
    _key("host_incarnation"),
    sa.UniqueConstraint("scope_key", "idempotency_key"),
    sa.Index("ix_actions_run", "run_id", "action_id"),
    sa.Index("ix_actions_agent", "agent_id", "action_id"),
)
is_open_action = actions.c.status < sa.literal_column(str(int(ActionStatus.RECORDED)))
_partial_index("ix_actions_open", actions.c.action_id, where=is_open_action)

# Knowledge. A base of the catalogue that was removed and made anew is another one here, so that
# what is still there of the first is not the second's.
knowledge_bases = sa.Table(
    "knowledge_bases",
    metadata,
    _counter("number"),
    _key("knowledge_base_id"),
    _time("removed_at", nullable=True),
    sqlite_autoincrement=True,
)
is_kept_base = knowledge_bases.c.removed_at.is_(None)
_partial_index(
    "ix_knowledge_bases_kept",
    knowledge_bases.c.knowledge_base_id,
    where=is_kept_base,
    unique=True,
)

# A document has up to two versions that count: the one that is searched, and one that comes in.
knowledge_documents = sa.Table(
    "knowledge_documents",
    metadata,
    _counter("number"),
    _integer("base"),
    _key("document_id"),
    _key("status"),
    _text("reason", nullable=True),
    _integer("current_version", nullable=True),
    _integer("staged_version", nullable=True),
    _time("created_at"),
    _time("updated_at"),
    sa.UniqueConstraint("base", "document_id"),
    sqlite_autoincrement=True,
)

knowledge_versions = sa.Table(
    "knowledge_versions",
    metadata,
    _counter("number"),
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
    _time("touched_at"),
    sa.Column("dropped", sa.Boolean, nullable=False),
    sa.Index("ix_knowledge_versions_base", "base", "number"),
    sqlite_autoincrement=True,
)
_partial_index(
    "ix_knowledge_versions_dropped", knowledge_versions.c.number, where=knowledge_versions.c.dropped
)
_partial_index(
    "ix_knowledge_versions_artifact",
    knowledge_versions.c.artifact_id,
    where=knowledge_versions.c.artifact_id.is_not(None),
)

# What filters find versions by: digests of name and value.
knowledge_metadata = sa.Table(
    "knowledge_metadata",
    metadata,
    sa.Column("base", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Index(None, "version"),
    sqlite_with_rowid=False,
)

# A chunk's number says its block and its place there: `stores.sql.knowledge_index`.
knowledge_chunks = sa.Table(
    "knowledge_chunks",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    _integer("version"),
    _integer("ordinal"),
    _integer("position"),
    _integer("length"),
    _text("heading"),
    _text("text"),
    sa.UniqueConstraint("version", "ordinal"),
)

# The numbers that the chunks of a version have, many in a row.
knowledge_ranges = sa.Table(
    "knowledge_ranges",
    metadata,
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
    _integer("count"),
    sqlite_with_rowid=False,
)

knowledge_vectors = sa.Table(
    "knowledge_vectors",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    _key("model"),
    _bytes("vector"),
)

knowledge_blocks = sa.Table(
    "knowledge_blocks",
    metadata,
    _counter("number"),
    sa.Column("base", sa.BigInteger, nullable=False, index=True),
    _integer("used"),
    _integer("garbage"),
    _integer("vector_revision"),
    _bytes("visible"),
    _bytes("lengths"),
    sqlite_autoincrement=True,
)

knowledge_postings = sa.Table(
    "knowledge_postings",
    metadata,
    sa.Column("block", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("term", sa.BigInteger, primary_key=True, autoincrement=False),
    _bytes("postings"),
    sqlite_with_rowid=False,
)
