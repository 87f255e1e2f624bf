"""The schema of a database: which revision it has, and bringing it to the newest.

Opening the stores does the latter by itself; here it is for who wants it done before, or told.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What revision a database has, beside the one that this version works with.

    Attributes:
        found: The revision it has; `None` for a database without tables, or no database yet.
        newest: The revision that this version works with.
    """

    found: str | None
    newest: str

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to migrate."""
        return self.found == self.newest


def read_schema_state(url: str) -> SchemaState:
    """Return what revision a database has; nothing is changed.

    Raises:
        InvalidDatabaseUrl: The URL has a form that is not known.
        SchemaTooNew: A newer version wrote the database.
        StoreUnavailable: The database cannot be opened.
    """
    from stores.migrations import HEAD
    from stores.sql.opening import open_database
    from stores.sql.schema import find_revision

    return SchemaState(find_revision(open_database(url, synchronous="FULL")), HEAD)


def migrate(url: str) -> SchemaState:
    """Bring a database to the newest revision, all steps or none, and return what it had before.

    Raises:
        InvalidDatabaseUrl: The URL has a form that is not known.
        SchemaTooNew: A newer version wrote the database.
        StoreUnavailable: The database cannot be opened.
    """
    from stores.sql.opening import open_database
    from stores.sql.schema import bring_up_to_date

    before = read_schema_state(url)
    bring_up_to_date(open_database(url, synchronous="FULL"))
    return before
