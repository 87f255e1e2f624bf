"""The statements of the retention: what is old, found by readers and looked at again by writers."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from stores.sql.tables import (
    actions,
    agent_snapshots,
    agents,
    artifacts,
    conversations,
    events,
    is_active,
    knowledge_versions,
    log_entries,
    run_results,
    runs,
    state_values,
    transcript_items,
)

_items = transcript_items.c
_workspace = sa.bindparam("of_workspace", type_=sa.Text)
_before = sa.bindparam("before", type_=sa.BigInteger)
_most = sa.bindparam("most", type_=sa.BigInteger)

# Of an active run are what it wrote and what it answers. Few runs are active, and a conversation
# may have very many: `|| ''` keeps the planner from going through those.
_is_of_active_run = sa.or_(
    sa.exists().where(runs.c.run_id == _items.run_id, is_active).correlate(transcript_items),
    sa.exists()
    .where(
        _items.run_id.is_(None),
        is_active,
        runs.c.event_id.concat(sa.literal_column("''")) == _items.event_id,
        runs.c.conversation_key.concat(sa.literal_column("''")) == _items.conversation_key,
    )
    .correlate(transcript_items),
)
_is_old_item = sa.and_(
    _items.workspace == _workspace, _items.created_at < _before, sa.not_(_is_of_active_run)
)
OLD_ITEMS = (
    sa.select(_items.number)
    .where(_items.number > sa.bindparam("after"), _is_old_item)
    .order_by(_items.number)
    .limit(_most)
)
COUNT_OLD_ITEMS = sa.select(sa.func.count()).select_from(transcript_items).where(_is_old_item)
LONG_CONVERSATIONS = (
    sa.select(conversations.c.conversation_key)
    .where(
        conversations.c.conversation_key > sa.bindparam("after"),
        conversations.c.last_position > sa.bindparam("max_items"),
    )
    .order_by(conversations.c.conversation_key)
    .limit(_most)
)
# The newest item that is one too many.
FIRST_BEYOND = (
    sa.select(_items.position)
    .where(
        _items.conversation_key == sa.bindparam("of_conversation"), _items.workspace == _workspace
    )
    .order_by(_items.position.desc())
    .offset(sa.bindparam("max_items"))
    .limit(1)
)
_is_beyond = sa.and_(
    _items.conversation_key == sa.bindparam("of_conversation"),
    _items.workspace == _workspace,
    _items.position <= sa.bindparam("last"),
    sa.not_(_is_of_active_run),
)
ITEMS_BEYOND = sa.select(_items.number).where(_is_beyond).order_by(_items.position).limit(_most)
COUNT_ITEMS_BEYOND = sa.select(sa.func.count()).select_from(transcript_items).where(_is_beyond)
ITEMS_OF_RUN = (
    sa.select(_items.number)
    .where(
        _items.conversation_key == sa.bindparam("of_conversation"),
        _items.run_id == sa.bindparam("of_run"),
    )
    .order_by(_items.number)
    .limit(_most)
)
DELETE_ITEM = sa.delete(transcript_items).where(
    _items.number == sa.bindparam("of_number"), sa.not_(_is_of_active_run)
)

_has_ended_before = sa.and_(
    sa.not_(is_active), sa.func.coalesce(runs.c.ended_at, runs.c.created_at) < _before
)
_is_old_run = sa.and_(runs.c.workspace == _workspace, _has_ended_before)
OLD_RUNS = (
    sa.select(runs.c.created_at, runs.c.run_id, runs.c.conversation_key)
    .where(
        _is_old_run,
        # A run cannot have ended before it was made: only so much of the index is read.
        runs.c.created_at < _before,
        sa.tuple_(runs.c.created_at, runs.c.run_id)
        > sa.tuple_(sa.bindparam("after_time"), sa.bindparam("after_run")),
    )
    .order_by(runs.c.created_at, runs.c.run_id)
    .limit(_most)
)
_is_run = runs.c.run_id == sa.bindparam("of_run")
COUNT_OF_RUN: dict[str, sa.Select[Any]] = {
    "results": sa.select(sa.func.count()).where(run_results.c.run_id == sa.bindparam("of_run")),
    "log_entries": sa.select(sa.func.count()).where(log_entries.c.run_id == sa.bindparam("of_run")),
    "actions": sa.select(sa.func.count()).where(actions.c.run_id == sa.bindparam("of_run")),
}
STILL_OLD_RUN = sa.select(runs.c.workspace, runs.c.bot, runs.c.event_source, runs.c.event_id).where(
    _is_run, _has_ended_before
)
DELETE_RESULTS = sa.delete(run_results).where(
    run_results.c.run_id == sa.bindparam("of_run"),
    run_results.c.sequence.in_(
        sa.select(run_results.c.sequence)
        .where(run_results.c.run_id == sa.bindparam("of_run"))
        .order_by(run_results.c.sequence)
        .limit(_most)
    ),
)
DELETE_ENTRIES = sa.delete(log_entries).where(
    log_entries.c.position.in_(
        sa.select(log_entries.c.position)
        .where(log_entries.c.run_id == sa.bindparam("of_run"))
        .order_by(log_entries.c.position)
        .limit(_most)
    )
)
DELETE_ACTIONS = sa.delete(actions).where(
    actions.c.action_id.in_(
        sa.select(actions.c.action_id)
        .where(actions.c.run_id == sa.bindparam("of_run"))
        .order_by(actions.c.action_id)
        .limit(_most)
    )
)
DELETE_RUN = sa.delete(runs).where(_is_run)
DELETE_EVENT = sa.delete(events).where(
    events.c.workspace == sa.bindparam("workspace"),
    events.c.bot == sa.bindparam("bot"),
    events.c.source == sa.bindparam("event_source"),
    events.c.event_id == sa.bindparam("event_id"),
    events.c.run_id == sa.bindparam("of_run"),
)

_is_without_run = sa.not_(sa.exists().where(runs.c.run_id == events.c.run_id).correlate(events))
_is_old_event = sa.and_(
    # Not by the index on workspaces, which would be gone through and sorted for every batch.
    events.c.workspace.concat(sa.literal_column("''")) == _workspace,
    events.c.received_at < _before,
    _is_without_run,
)
OLD_EVENTS = (
    sa.select(events.c.position)
    .where(events.c.position > sa.bindparam("after"), _is_old_event)
    .order_by(events.c.position)
    .limit(_most)
)
COUNT_OLD_EVENTS = sa.select(sa.func.count()).select_from(events).where(_is_old_event)
DELETE_LONE_EVENT = sa.delete(events).where(
    events.c.position == sa.bindparam("of_position"), _is_without_run
)

# A trial looks at runs that are still there, and would not be.
_keeps_artifact = sa.or_(
    sa.exists()
    .where(runs.c.run_id == artifacts.c.run_id, sa.not_(_has_ended_before))
    .correlate(artifacts),
    sa.exists()
    .where(
        is_active,
        runs.c.conversation_key.concat(sa.literal_column("''")) == artifacts.c.conversation_key,
    )
    .correlate(artifacts),
    sa.exists()
    .where(knowledge_versions.c.artifact_id == artifacts.c.artifact_id)
    .correlate(artifacts),
    # An agent's configuration may name files. Ids have no character that JSON would escape, and
    # `_` in one stands for any character here, which may keep one too many.
    sa.exists()
    .where(
        agents.c.document.like(
            sa.literal_column("'%'")
            .concat(artifacts.c.artifact_id)
            .concat(sa.literal_column("'%'"))
        )
    )
    .correlate(artifacts),
)
_is_loose_artifact = sa.and_(
    artifacts.c.workspace == _workspace,
    artifacts.c.created_at < _before,
    sa.not_(_keeps_artifact),
)
OLD_ARTIFACTS = (
    sa.select(artifacts.c.created_at, artifacts.c.artifact_id, artifacts.c.conversation_key)
    .where(
        _is_loose_artifact,
        sa.tuple_(artifacts.c.created_at, artifacts.c.artifact_id)
        > sa.tuple_(sa.bindparam("after_time"), sa.bindparam("after_artifact")),
    )
    .order_by(artifacts.c.created_at, artifacts.c.artifact_id)
    .limit(_most)
)
STILL_OLD_ARTIFACT = sa.select(artifacts.c.artifact_id).where(
    artifacts.c.artifact_id == sa.bindparam("of_artifact"), _is_loose_artifact
)
CONTENTS = (
    sa.select(_items.number, _items.position, _items.content)
    .where(
        _items.conversation_key == sa.bindparam("of_conversation"),
        _items.position > sa.bindparam("above"),
        _items.created_at >= sa.bindparam("since"),
    )
    .order_by(_items.position)
    .limit(_most)
)

_is_old_state = sa.and_(state_values.c.workspace == _workspace, state_values.c.updated_at < _before)
OLD_STATE = (
    sa.select(state_values.c.scope_key, state_values.c.key)
    .where(_is_old_state)
    .order_by(state_values.c.updated_at)
    .limit(_most)
)
COUNT_OLD_STATE = sa.select(sa.func.count()).select_from(state_values).where(_is_old_state)
STILL_OLD_STATE = sa.select(state_values.c.version).where(
    state_values.c.scope_key == sa.bindparam("of_scope"),
    state_values.c.key == sa.bindparam("of_key"),
    _is_old_state,
)

_is_unused = sa.not_(sa.exists().where(runs.c.agent_snapshot_digest == agent_snapshots.c.digest))
UNUSED_SNAPSHOTS = sa.select(agent_snapshots.c.digest).except_(
    sa.select(runs.c.agent_snapshot_digest)
)
DELETE_SNAPSHOT = sa.delete(agent_snapshots).where(
    agent_snapshots.c.digest == sa.bindparam("of_digest"), _is_unused
)

WORKSPACES = sa.union(
    *(
        sa.select(table.c.workspace)
        for table in (events, runs, transcript_items, artifacts, state_values)
    )
)
