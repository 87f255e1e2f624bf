"""What a run was granted, and which run it replays; and no secrets in what runs keep."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

_snapshots = sa.table(
    "agent_snapshots",
    sa.column("digest", sa.LargeBinary),
    sa.column("snapshot", sa.LargeBinary),
)


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
    _withhold_values()


def _withhold_values() -> None:
    """Take the values out of the configurations that runs kept whole so far.

    Which of them are secrets is known to the runner alone, so that all go; a run that needs them
    takes them from its agent. What a row is found by stays: it need not be a digest of what it is.
    """
    connection = op.get_bind()
    digests = [row[0] for row in connection.execute(sa.select(_snapshots.c.digest))]
    for digest in digests:
        is_it = _snapshots.c.digest == digest
        kept = connection.execute(sa.select(_snapshots.c.snapshot).where(is_it)).scalar_one()
        without = _without_values(bytes(kept))
        if without is not None:
            connection.execute(sa.update(_snapshots).where(is_it).values(snapshot=without))


def _without_values(kept: bytes) -> bytes | None:
    """Return an agent without the values of its configuration; None for what is no such agent."""
    try:
        agent = json.loads(kept)
        names = sorted(json.loads(agent["config_json"]))
    except (ValueError, TypeError, KeyError):
        return None
    if "withheld" in agent:
        return None
    agent |= {"config_json": "{}", "withheld": names}
    return json.dumps(agent, ensure_ascii=False, sort_keys=True).encode()


def downgrade() -> None:
    """Take that away."""
    op.drop_index("ix_runs_replay_of", "runs")
    for name in ("course", "resolution", "replay_of"):
        op.drop_column("runs", name)
