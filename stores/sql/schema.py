"""Bringing the schema of a database up to date."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
import sqlalchemy.exc

from stores.migrations import HEAD
from stores.sql.connection import Database

_VERSION = sa.text("SELECT version_num FROM alembic_version")


def bring_up_to_date(database: Database) -> None:
    """Migrate a database to the newest schema, unless it has it.

    Hosts that start at the same time migrate once: the others wait for the first.

    Raises:
        SchemaTooNew: A newer version wrote it.
        StoreUnavailable: It cannot be opened.
    """
    try:
        connection = database.engine.connect()
    except Exception as error:
        raise database.unavailable(error) from error
    with connection:
        if _revision(connection) != HEAD:
            # Alembic takes a third of a second to import, which a host that has nothing to
            # migrate does not spend.
            from stores.migrations.migrate import upgrade

            upgrade(connection, database.dialect)


def find_revision(database: Database) -> str | None:
    """Return the revision that a database has; `None` for one without tables of ours, or no file.

    Nothing is changed, and no file made.

    Raises:
        SchemaTooNew: This version does not know the revision.
        StoreUnavailable: The database cannot be opened.
    """
    url = database.engine.url
    if url.drivername.startswith("sqlite") and not Path(str(url.database)).exists():
        return None
    try:
        with database.engine.connect() as connection:
            found = _revision(connection)
    except sa.exc.SQLAlchemyError as error:
        raise database.unavailable(error) from error
    if found not in (None, HEAD):
        from stores.migrations.migrate import check_known

        check_known(found)
    return found


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(_VERSION).scalar()
