"""The way to the newest schema and back, on both engines."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from stores import open_stores
from stores.errors import SchemaTooNew, StoreError
from stores.migrations import HEAD
from stores.migrations.migrate import downgrade, upgrade
from stores.sql.connection import Database
from stores.sql.dialect import Dialect
from stores.sql.opening import open_database
from stores.sql.schema import bring_up_to_date
from stores.sql.tables import is_described, metadata

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Gives a database of either engine that nothing has been done to."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    server = request.getfixturevalue("postgresql_server")
    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE DATABASE migrated")
        yield server.replace("/postgres?", "/migrated?")
        connection.execute("DROP DATABASE migrated WITH (FORCE)")


@pytest.fixture
def database(empty_url: str) -> Database:
    return open_database(empty_url, synchronous="FULL")


def fill(database: Database) -> None:
    """Put a row into every table, whatever the schema has by now."""
    filled: dict[sa.Column[Any], Any] = {}
    with database.engine.begin() as connection:
        for table in metadata.sorted_tables:
            row = {column.name: some_value(column, filled, database) for column in table.c}
            connection.execute(sa.insert(table), row)
            filled.update({column: row[column.name] for column in table.c})


def some_value(
    column: sa.Column[Any], filled: dict[sa.Column[Any], Any], database: Database
) -> Any:
    for reference in column.foreign_keys:
        return filled[reference.column]
    text = f"a {column.name}"
    values = {str: text, int: 1, bool: True, bytes: b"bytes", float: 0.5, list: [1]}
    return values[column.type.dialect_impl(database.engine.dialect).python_type]


def count_rows(database: Database) -> dict[str, int]:
    with database.engine.connect() as connection:
        return {
            table.name: connection.execute(
                sa.select(sa.func.count()).select_from(table)
            ).scalar_one()
            for table in metadata.sorted_tables
        }


def tables(database: Database) -> set[str]:
    with database.engine.connect() as connection:
        return set(sa.inspect(connection).get_table_names())


def test_schema_goes_up_and_down_and_up_with_data_in_it(database: Database) -> None:
    for _ in range(2):
        bring_up_to_date(database)
        fill(database)
        assert set(count_rows(database).values()) == {1}
        with database.engine.connect() as connection:
            downgrade(connection, database.dialect, "base")
        assert tables(database) == {"alembic_version"}


def test_migrations_make_the_schema_that_the_tables_describe(database: Database) -> None:
    bring_up_to_date(database)
    with database.engine.connect() as connection:
        opts = {"compare_type": True, "include_name": is_described}
        context = MigrationContext.configure(connection, opts=opts)
        assert compare_metadata(context, metadata) == []


def test_partial_indexes_have_their_conditions(database: Database) -> None:
    bring_up_to_date(database)
    catalogue = {
        "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index'",
        "postgresql": "SELECT indexname, indexdef FROM pg_indexes",
    }
    with database.engine.connect() as connection:
        query = sa.text(catalogue[connection.dialect.name])
        definitions = {name: str(sql) for name, sql in connection.execute(query)}
    for name, condition in (("active", "status < 4"), ("ended_badly", "status > 4")):
        assert condition in definitions[f"ix_runs_{name}"]


def test_newest_revision_is_the_one_that_opening_looks_for() -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "stores" / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


async def test_schema_of_a_newer_version_is_refused(database: Database, empty_url: str) -> None:
    bring_up_to_date(database)
    with database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    before = tables(database)
    with pytest.raises(SchemaTooNew) as caught:
        await open_stores(empty_url)
    assert (caught.value.found, caught.value.known) == ("9999", HEAD)
    assert tables(database) == before


def test_failed_migration_leaves_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(dialect: Dialect, driver: Any) -> None:
        raise StoreError("no")

    with monkeypatch.context() as patch:
        patch.setattr(type(database.dialect), "after_migration", fail)
        with pytest.raises(StoreError, match="no"):
            bring_up_to_date(database)
    assert tables(database) == set()
    bring_up_to_date(database)
    assert "runs" in tables(database)


async def test_hosts_that_start_at_once_migrate_once(empty_url: str) -> None:
    program = (
        "import asyncio, sys; from stores import open_stores\n"
        "async def main():\n"
        "    await (await open_stores(sys.argv[1])).close()\n"
        "asyncio.run(main())"
    )
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, empty_url, cwd=ROOT, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(2)
    ]
    told = await asyncio.gather(*(process.communicate() for process in processes))
    assert [error.decode() for _, error in told] == [""] * 2
    assert [process.returncode for process in processes] == [0] * 2


async def test_two_who_open_at_once_in_one_process_migrate_once(empty_url: str) -> None:
    opened = await asyncio.gather(*(open_stores(empty_url) for _ in range(3)))
    for stores in opened:
        await stores.close()


def test_up_to_date_schema_is_opened_without_alembic(database: Database, empty_url: str) -> None:
    bring_up_to_date(database)
    program = (
        "import asyncio, sys; from stores import open_stores\n"
        "async def main():\n"
        "    await (await open_stores(sys.argv[1])).close()\n"
        "asyncio.run(main())\n"
        "print(*(name for name in ('alembic', 'mako') if name in sys.modules))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, empty_url], cwd=ROOT, capture_output=True, check=True
    )
    assert told.stdout == b"\n"


def test_upgrade_to_where_it_is_does_nothing(database: Database) -> None:
    bring_up_to_date(database)
    with database.engine.connect() as connection:
        upgrade(connection, database.dialect)
    assert "runs" in tables(database)


def test_configurations_that_runs_kept_whole_lose_their_values(database: Database) -> None:
    with database.engine.connect() as connection:
        upgrade(connection, database.dialect, "0007")
    kept = {
        b"1": b'{"id": "helper", "config_json": "{\\"token\\": \\"canary\\", \\"a\\": 1}"}',
        b"2": b'{"id": "helper", "config_json": "{}", "withheld": ["token"]}',
        b"3": b"no JSON at all",
    }
    insert = sa.text("INSERT INTO agent_snapshots (digest, snapshot) VALUES (:digest, :snapshot)")
    with database.engine.begin() as connection:
        for digest, snapshot in kept.items():
            connection.execute(insert, {"digest": digest, "snapshot": snapshot})
    with database.engine.connect() as connection:
        upgrade(connection, database.dialect)
    with database.engine.begin() as connection:
        rows = connection.execute(sa.text("SELECT digest, snapshot FROM agent_snapshots"))
        found = {bytes(digest): bytes(snapshot) for digest, snapshot in rows}
    assert found == {
        **kept,
        b"1": b'{"config_json": "{}", "id": "helper", "withheld": ["a", "token"]}',
    }
