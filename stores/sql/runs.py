"""The statements of the run ledger, and what reads and writes single parts of a run with them.

All of it runs inside a piece of work, or a read, of somebody else's: `ledger` for what a host
does, and its reading side.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from stores.errors import RunNotWritable
from stores.records import RunRecord, RunStatus, RunWarning
from stores.sql.connection import Connection, Values
from stores.sql.journal import OneStatement
from stores.sql.rows import Encoded, run_record, warnings_of, warnings_text
from stores.sql.tables import (
    agent_snapshots,
    hosts,
    is_active,
    run_checkpoints,
    run_results,
    runs,
)

is_run = runs.c.run_id == sa.bindparam("of_run")

# `None` for the incarnation stands for whoever owns the run.
_incarnation = sa.bindparam("of_incarnation", type_=sa.Text)
_is_owned = sa.or_(_incarnation.is_(None), runs.c.host_incarnation == _incarnation)
_is_writable = sa.and_(is_run, is_active, _is_owned)


def _or_stored(column: sa.Column[int] | sa.Column[str], name: str) -> sa.ColumnElement[object]:
    return sa.func.coalesce(sa.bindparam(name, type_=column.type), column)


def _grown(column: sa.Column[int], name: str) -> sa.ColumnElement[int]:
    value = sa.bindparam(name, type_=sa.BigInteger)
    return sa.case((value > column, value), else_=column)


# While a run is active nobody keeps its last number but its results.
_last_sequence = sa.case(
    (
        is_active,
        sa.func.coalesce(
            sa.select(sa.func.max(run_results.c.sequence))
            .where(run_results.c.run_id == runs.c.run_id)
            .scalar_subquery(),
            0,
        ),
    ),
    else_=runs.c.last_sequence,
)
# Notes are read by those alone who want a run explained.
_LEFT_OUT = (runs.c.agent_snapshot_digest, runs.c.resolution, runs.c.course)
_columns = [
    _last_sequence if column is runs.c.last_sequence else column
    for column in runs.c
    if not any(column is each for each in _LEFT_OUT)
]
select_runs = sa.select(*_columns, agent_snapshots.c.snapshot).join(agent_snapshots)
SELECT = select_runs.where(is_run)
SELECT_NOTES = sa.select(runs.c.resolution, runs.c.course).where(is_run)
SELECT_OF_LOST_HOSTS = (
    select_runs.outerjoin(hosts, hosts.c.host_id == runs.c.host_id)
    .where(
        is_active,
        sa.or_(
            hosts.c.host_id.is_(None),
            hosts.c.incarnation != runs.c.host_incarnation,
            hosts.c.lease_until < sa.bindparam("now"),
        ),
    )
    .order_by(runs.c.created_at, runs.c.run_id)
)

INSERT = sa.insert(runs)
INSERT_RESULT = sa.insert(run_results)

# Checks and writes in one statement: most pieces of work are one result, and need no other.
_INSERT_RESULT_IF_WRITABLE = sa.insert(run_results).from_select(
    [column.name for column in run_results.c],
    sa.select(*(sa.bindparam(column.name, type_=column.type) for column in run_results.c)).where(
        _is_writable
    ),
)

_advance = sa.update(runs).where(
    _is_writable, runs.c.status < sa.bindparam("to_status", type_=sa.SmallInteger)
)
_advance_values = {
    "status": sa.bindparam("to_status", type_=sa.SmallInteger),
    "instance_id": _or_stored(runs.c.instance_id, "to_instance"),
    "deadline": _or_stored(runs.c.deadline, "to_deadline"),
    "reserved_sequence": _grown(runs.c.reserved_sequence, "to_reserved"),
    # What waits its turn, or has it, was not taken up by the run that it was handed to.
    "steered_into": sa.null(),
}
ADVANCE = {
    RunStatus.QUEUED: _advance.values(**_advance_values, queued_at=sa.bindparam("to_time")),
    RunStatus.RUNNING: _advance.values(**_advance_values, started_at=sa.bindparam("to_time")),
}

_CHANGE = (
    sa.update(runs)
    .where(_is_writable)
    .values(
        reserved_sequence=_grown(runs.c.reserved_sequence, "to_reserved"),
        first_delta_at=sa.func.coalesce(
            runs.c.first_delta_at, sa.bindparam("to_first_delta", type_=sa.BigInteger)
        ),
        usage=_or_stored(runs.c.usage, "to_usage"),
        course=_or_stored(runs.c.course, "to_course"),
    )
)

AMEND_COURSE = (
    sa.update(runs).where(is_run, _is_owned).values(course=sa.bindparam("to_course", type_=sa.Text))
)

FINISH = (
    sa.update(runs)
    .where(_is_writable)
    .values(
        status=sa.bindparam("to_status", type_=sa.SmallInteger),
        ended_at=sa.bindparam("to_time", type_=sa.BigInteger),
        last_sequence=sa.bindparam("to_last", type_=sa.BigInteger),
        reserved_sequence=_grown(runs.c.reserved_sequence, "to_reserved"),
        failure=sa.bindparam("to_failure", type_=sa.Text),
        usage=_or_stored(runs.c.usage, "to_usage"),
        course=_or_stored(runs.c.course, "to_course"),
        first_delta_at=sa.func.coalesce(
            runs.c.first_delta_at, sa.bindparam("to_first_delta", type_=sa.BigInteger)
        ),
        # What was taken up ends well, and with the name of who did.
        steered_into=sa.case(
            (
                sa.bindparam("to_status", type_=sa.SmallInteger)
                == sa.literal_column(str(int(RunStatus.COMPLETED))),
                runs.c.steered_into,
            ),
            else_=sa.null(),
        ),
    )
)

_waits = sa.and_(
    runs.c.status < sa.literal_column(str(int(RunStatus.RUNNING))),
    runs.c.host_incarnation == sa.bindparam("of_incarnation"),
    # A replay is nobody's turn: nothing waits for its end.
    runs.c.replay_of.is_(None),
)
WAITING_SESSION = sa.select(runs.c.session_key).where(is_run, _waits)
WAITING_OF_SESSION = (
    sa.select(runs.c.run_id)
    .where(runs.c.session_key == sa.bindparam("of_session"), _waits)
    .order_by(runs.c.created_at, runs.c.run_id)
)
CLAIM = (
    sa.update(runs)
    .where(is_run, _waits)
    .values(host_id=sa.bindparam("to_host"), host_incarnation=sa.bindparam("to_incarnation"))
)

_OWNER = sa.select(runs.c.status, runs.c.host_incarnation).where(is_run)
_SELECT_WARNINGS = sa.select(runs.c.warnings).where(is_run)
_UPDATE_WARNINGS = (
    sa.update(runs).where(is_run).values(warnings=sa.bindparam("to_warnings", type_=sa.Text))
)

_SNAPSHOT_STORED = sa.select(agent_snapshots.c.digest).where(
    agent_snapshots.c.digest == sa.bindparam("of_digest")
)
_INSERT_SNAPSHOT = sa.insert(agent_snapshots)

INSERT_CHECKPOINT = sa.insert(run_checkpoints)
DROP_CHECKPOINT = sa.delete(run_checkpoints).where(
    run_checkpoints.c.run_id == sa.bindparam("of_run"),
    run_checkpoints.c.message_id == sa.bindparam("of_message"),
)
DROP_CHECKPOINTS = sa.delete(run_checkpoints).where(
    run_checkpoints.c.run_id == sa.bindparam("of_run")
)
SELECT_CHECKPOINTS = (
    sa.select(run_checkpoints)
    .where(run_checkpoints.c.run_id == sa.bindparam("of_run"))
    .order_by(run_checkpoints.c.sequence, run_checkpoints.c.message_id)
)
SELECT_RESULTS = (
    sa.select(run_results)
    .where(
        run_results.c.run_id == sa.bindparam("of_run"),
        run_results.c.sequence > sa.bindparam("above"),
    )
    .order_by(run_results.c.sequence)
    .limit(sa.bindparam("most"))
)


def find_run(connection: Connection, run_id: str) -> RunRecord | None:
    """Return a run, or `None`."""
    row = connection.first(SELECT, {"of_run": run_id})
    return None if row is None else run_record(row)


def check_writable(connection: Connection, owner: Values) -> None:
    """Check that a run takes facts.

    Raises:
        RunNotWritable: It does not.
    """
    run_id, incarnation = owner["of_run"], owner["of_incarnation"]
    row = connection.first(_OWNER, owner)
    if row is None:
        raise RunNotWritable(run_id, "unknown")
    status, owned_by = row
    if RunStatus(status).is_terminal:
        raise RunNotWritable(run_id, "ended")
    if incarnation is not None and owned_by != incarnation:
        raise RunNotWritable(run_id, "other_host")


def write_result(owner: Values, row: Encoded) -> OneStatement[None]:
    """Return the work that writes one encoded result of a run, if the run takes it.

    It raises `RunNotWritable` if the run does not.
    """

    def conclude(touched: int, connection: Connection) -> None:
        if touched == 0:
            check_writable(connection, owner)

    return OneStatement(_INSERT_RESULT_IF_WRITABLE, {**owner, **row}, conclude)


def write_results(connection: Connection, owner: Values, rows: Sequence[Encoded]) -> None:
    """Write encoded results of a run, one at least, if the run takes them.

    Raises:
        RunNotWritable: It does not.
    """
    if connection.run(_INSERT_RESULT_IF_WRITABLE, {**owner, **rows[0]}) == 0:
        check_writable(connection, owner)
    if len(rows) > 1:
        connection.run_many(INSERT_RESULT, rows[1:])


def change(connection: Connection, owner: Values, changes: Values) -> None:
    """Change columns of a run, if it takes that.

    Raises:
        RunNotWritable: It does not.
    """
    if connection.run(_CHANGE, {**owner, **changes}) == 0:
        check_writable(connection, owner)


def write_snapshot(connection: Connection, snapshot: Encoded) -> None:
    """Store the agent as it was, unless an equal one is stored."""
    if connection.first(_SNAPSHOT_STORED, {"of_digest": snapshot["digest"]}) is None:
        connection.run(_INSERT_SNAPSHOT, snapshot)


def add_warnings(connection: Connection, run_id: str, warnings: tuple[RunWarning, ...]) -> None:
    """Add warnings to those that a run has."""
    row = connection.first(_SELECT_WARNINGS, {"of_run": run_id})
    stored = () if row is None else warnings_of(row[0])
    values = {"of_run": run_id, "to_warnings": warnings_text(stored + warnings)}
    connection.run(_UPDATE_WARNINGS, values)
