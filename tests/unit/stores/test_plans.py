"""Every statement finds its rows by an index, so that a million of others cost it nothing."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.sql import ClauseElement

from stores.actions import ActionQuery, ActionStatus
from stores.audit import AuditOutcome, AuditQuery
from stores.records import RunQuery, RunStatus
from stores.sql import (
    actions,
    attach_tokens,
    catalogue,
    event_log,
    hosts,
    keys,
    runs,
    search,
    search_backfill,
    secrets,
    state,
    storage,
    transcript,
)
from stores.sql.audit_pages import AuditPages
from stores.sql.connection import Database
from stores.sql.opening import open_database
from stores.sql.run_pages import RunPages
from stores.sql.schema import bring_up_to_date
from stores.sql.tables import metadata
from tests.conformance.stores.samples import NOON

# These read all of a small table, because all of it is asked for.
WHOLE_TABLES = {
    "agents",
    "api_keys",
    "attach_tokens",
    "bindings",
    "catalogue_revision",
    "hosts",
    "secrets",
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Database:
    path: Path = tmp_path_factory.mktemp("plans") / "stores.db"
    database = open_database(f"sqlite:///{path}", synchronous="FULL")
    bring_up_to_date(database)
    return database


def plan(database: Database, statement: ClauseElement) -> list[str]:
    compiled = statement.compile(dialect=database.engine.dialect)
    parameters: Any = (None,) * len(compiled.positiontup or ())  # type: ignore[attr-defined]
    with database.engine.connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", parameters)
        return [row[3] for row in rows]


def statements() -> Iterator[tuple[str, ClauseElement]]:
    for module in (
        actions,
        attach_tokens,
        catalogue,
        event_log,
        hosts,
        keys,
        runs,
        search,
        search_backfill,
        secrets,
        state,
        storage,
        transcript,
    ):
        for name, value in vars(module).items():
            found = value.values() if isinstance(value, dict) else [value]
            for each in found:
                if isinstance(each, sa.Select | sa.Update | sa.Delete):
                    yield f"{module.__name__.split('.')[-1]}.{name}", each


# Fragments that others narrow; they are never run as they are.
FRAGMENTS = {"runs.select_runs", "runs._advance", "transcript._between"}

# What these sort is a handful of rows.
SORTS = {
    "attach_tokens._SELECT_ALL",
    "catalogue._SELECT_OF_AGENT",
    "keys._SELECT_ALL",
    "runs.SELECT_CHECKPOINTS",
    "secrets._SELECT_KEYS",
    "state._SELECT_PAGE",
    "state._SELECT_SNAPSHOT",
}


@pytest.mark.parametrize(
    ("name", "statement"), [each for each in statements() if each[0] not in FRAGMENTS]
)
def test_statement_finds_its_rows_by_an_index(
    database: Database, name: str, statement: ClauseElement
) -> None:
    for step in plan(database, statement):
        words = step.split()
        whole = words[1] in WHOLE_TABLES or words[1] not in metadata.tables
        assert words[0] != "SCAN" or whole or "INDEX" in words, step
        assert "TEMP B-TREE" not in step or name in SORTS


NARROWED: dict[str, Any] = {
    "workspace": "acme",
    "bot": "helper",
    "agent_id": "agent",
    "conversation_key": "talk",
    "created_after": NOON,
    "created_before": NOON,
    "statuses": (RunStatus.RUNNING,),
}


@pytest.mark.parametrize("after", [None, "1:run"])
def test_every_page_of_runs_comes_in_order_from_an_index(
    database: Database, after: str | None
) -> None:
    pages = RunPages()
    for count in range(len(NARROWED) + 1):
        for names in itertools.combinations(NARROWED, count):
            query = RunQuery(**{name: NARROWED[name] for name in names})
            statement, _ = pages.statement(query, limit=50, after=after)
            steps = [step for step in plan(database, statement) if " runs " in f"{step} "]
            assert not [step for step in steps if "TEMP B-TREE" in step], names
            assert "INDEX ix_runs_" in steps[0], (names, steps)


@pytest.mark.parametrize(
    ("statuses", "index"),
    [
        ((RunStatus.ACCEPTED, RunStatus.RUNNING), "ix_runs_active"),
        ((RunStatus.FAILED,), "ix_runs_ended_badly"),
        ((RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TIMED_OUT), "ix_runs_ended_badly"),
        ((RunStatus.COMPLETED,), "ix_runs_created"),
        ((RunStatus.RUNNING, RunStatus.FAILED), "ix_runs_created"),
    ],
)
def test_rare_statuses_have_indexes_of_their_own(
    database: Database, statuses: tuple[RunStatus, ...], index: str
) -> None:
    statement, _ = RunPages().statement(RunQuery(statuses=statuses), limit=50, after=None)
    assert any(index in step for step in plan(database, statement))


def test_lost_hosts_are_found_among_active_runs_alone(database: Database) -> None:
    steps = plan(database, runs.SELECT_OF_LOST_HOSTS)
    assert any("ix_runs_active" in step for step in steps)


@pytest.mark.parametrize(
    ("narrowed", "index"),
    [
        ({}, "sqlite_autoindex_actions"),
        ({"status": ActionStatus.AWAITING_APPROVAL}, "ix_actions_open"),
        ({"status": ActionStatus.EXECUTED}, "sqlite_autoindex_actions"),
        ({"agent_id": "agent"}, "ix_actions_agent"),
        ({"run_id": "run"}, "ix_actions_run"),
        ({"run_id": "run", "status": ActionStatus.FAILED}, "ix_actions_run"),
    ],
)
def test_every_page_of_actions_comes_in_order_from_an_index(
    database: Database, narrowed: dict[str, Any], index: str
) -> None:
    (step,) = plan(database, actions.list_statement(ActionQuery(**narrowed)))
    assert index in step


def test_lost_actions_are_found_among_open_ones_alone(database: Database) -> None:
    assert any("ix_actions_open" in step for step in plan(database, actions._SELECT_LOST))


AUDIT_NARROWED: dict[str, Any] = {
    "run_id": "run",
    "outcome": AuditOutcome.REFUSED,
    "after": NOON,
    "before": NOON,
}


@pytest.mark.parametrize("after", [None, "1:1"])
def test_every_page_of_the_audit_comes_in_order_from_an_index(
    database: Database, after: str | None
) -> None:
    pages = AuditPages()
    for count in range(len(AUDIT_NARROWED) + 1):
        for names in itertools.combinations(AUDIT_NARROWED, count):
            query = AuditQuery(**{name: AUDIT_NARROWED[name] for name in names})
            statement, _ = pages.statement(query, limit=50, after=after)
            (step,) = plan(database, statement)
            indexes = {"ix_audit_run"} if "run_id" in names else set()
            indexes |= {"ix_audit_not_done"} if "outcome" in names else set()
            assert any(index in step for index in indexes or {"ix_audit_at"}), (names, step)
