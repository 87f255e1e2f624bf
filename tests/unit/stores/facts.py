"""One small table and pieces of work on it."""

import asyncio
import threading
from collections.abc import Callable

import sqlalchemy as sa

from stores.errors import Refused
from stores.sql.connection import Connection, Database

CREATE = "CREATE TABLE facts (name TEXT PRIMARY KEY, number INTEGER NOT NULL)"

facts = sa.table("facts", sa.column("name", sa.Text), sa.column("number", sa.BigInteger))

INSERT = sa.insert(facts).values(name=sa.bindparam("name"), number=sa.bindparam("number"))
COUNT = sa.select(sa.func.count()).select_from(facts)
NAMES = sa.select(facts.c.name).order_by(sa.literal_column("rowid"))
NUMBERS = sa.select(facts.c.number).where(facts.c.name == sa.bindparam("of_name"))


def fact(name: str, number: int = 0) -> Callable[[Connection], str]:
    """Return work that writes a fact and returns its name."""

    def work(connection: Connection) -> str:
        connection.run(INSERT, {"name": name, "number": number})
        return name

    return work


def refusal(_: Connection) -> None:
    """Refuse, as work does that finds a condition not met."""
    raise Refused("refused")


class Gate:
    """Work that the writer waits in until it is opened, so that what comes after it gathers."""

    def __init__(self) -> None:
        self._entered = threading.Event()
        self._open = threading.Event()

    def __call__(self, _: Connection) -> None:
        self._entered.set()
        assert self._open.wait(10)

    async def entered(self) -> None:
        """Wait until the writer is in it."""
        await asyncio.to_thread(self._entered.wait, 10)

    def open(self) -> None:
        """Let the writer go on."""
        self._open.set()


def names_in(database: Database) -> list[str]:
    """Return the names of the stored facts in the order they were stored."""
    connection = database.connect()
    rows = connection.all(NAMES, {})
    connection.close()
    return [row[0] for row in rows]
