"""Statements on a driver's connection."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy.engine import make_url

from stores.sql.connection import Connection, Database
from stores.sql.sqlite import SqliteDialect
from tests.unit.stores.facts import COUNT, INSERT, NAMES, NUMBERS


def test_first_of_many_rows_leaves_no_snapshot_behind(database: Database) -> None:
    reading, writing = database.connect(), database.connect()
    write(writing, "a", "b")
    assert reading.first(NAMES, {}) == ("a",)
    write(writing, "c")
    busy, *_ = writing._driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert busy == 0
    reading.close()
    writing.close()


def test_rows_are_bound_by_name_in_the_order_of_the_statement(database: Database) -> None:
    connection = database.connect()
    connection.run(INSERT, {"number": 7, "unknown": None, "name": "a"})
    connection.run_many(INSERT, [{"number": 8, "name": "b"}, {"name": "c", "number": 9}])
    connection.run_many(INSERT, [])
    assert connection.first(NUMBERS, {"of_name": "a"}) == (7,)
    assert connection.all(NUMBERS, {"of_name": "c"}) == [(9,)]
    assert connection.first(NUMBERS, {"of_name": "nobody"}) is None
    connection.close()


def test_closing_undoes_what_was_not_committed(database: Database) -> None:
    connection = database.connect()
    connection.begin()
    connection.run(INSERT, {"number": 7, "name": "a"})
    connection.close()
    again = database.connect()
    assert again.first(COUNT, {}) == (0,)
    again.close()


def write(connection: Connection, *names: str) -> None:
    connection.begin()
    connection.run_many(INSERT, [{"name": name, "number": 0} for name in names])
    connection.commit()


def test_new_file_is_opened_by_many_at_once(tmp_path: Path) -> None:
    # Each round has a moment in which two are both on the way to WAL; about one in fifteen hit it.
    for i in range(60):
        database = Database(
            dialect=SqliteDialect(synchronous="NORMAL"),
            url=make_url(f"sqlite:///{tmp_path}/{i}.db"),
        )
        together = threading.Barrier(6)

        def open_and_close(
            database: Database = database, together: threading.Barrier = together
        ) -> None:
            together.wait()
            database.connect().close()

        with ThreadPoolExecutor(6) as threads:
            for opened in [threads.submit(open_and_close) for _ in range(6)]:
                opened.result()
