"""Artifacts and blobs are found by their indexes, however many there are."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from stores.sql import artifacts, orphans
from stores.sql.connection import Database
from stores.sql.opening import open_database
from stores.sql.schema import bring_up_to_date


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """Gives a SQLite database with the newest schema."""
    opened = open_database(f"sqlite:///{tmp_path}/x.db", synchronous="NORMAL")
    bring_up_to_date(opened)
    return opened


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (artifacts._PAGE_OF_RUN, "ix_artifacts_run"),
        (artifacts._PAGE_OF_CONVERSATION, "ix_artifacts_conversation"),
        (artifacts._PAGE_OF_WORKSPACE, "ix_artifacts_workspace"),
        (artifacts._SELECT_BEFORE, "ix_artifacts_workspace"),
        (artifacts._FIND_BLOB, "ix_blobs_living"),
        (orphans._SELECT_EXPIRED, "ix_artifacts_expires"),
        (orphans._SELECT_UNTOUCHED, "ix_artifacts_blob"),
        (orphans._SELECT_CONDEMNED, "ix_blobs_condemned"),
    ],
)
def test_statement_uses_its_index_and_sorts_nothing(
    database: Database, statement: sa.Select[Any], index: str
) -> None:
    sql = str(statement.compile(dialect=database.engine.dialect))
    with database.engine.connect() as connection:
        names = statement.compile(dialect=database.engine.dialect).params
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", tuple(1 for _ in names))
        steps = [row[3] for row in rows]
    assert any(index in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
    reads = [step for step in steps if step.startswith(("SCAN", "SEARCH"))]
    assert all("USING" in step for step in reads), steps
