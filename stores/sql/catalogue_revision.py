"""The number that grows with every change of the catalogue."""

from __future__ import annotations

import sqlalchemy as sa

from stores.errors import RevisionConflict
from stores.sql.connection import Connection
from stores.sql.tables import catalogue_revision

_GROW = sa.update(catalogue_revision).values(revision=catalogue_revision.c.revision + 1)
_BEGIN = sa.insert(catalogue_revision)
_SELECT = sa.select(catalogue_revision.c.revision)


def check_revision(connection: Connection, expected: int | None) -> None:
    """Check that the catalogue has the revision that is expected, if one is.

    There is one writer at a time on either engine: what is checked stays so until the commit.

    Raises:
        RevisionConflict: It has another.
    """
    if expected is None:
        return
    row = connection.first(_SELECT, {})
    actual = 0 if row is None else int(row[0])
    if actual != expected:
        raise RevisionConflict("catalogue", "revision", expected, actual)


def grow_revision(connection: Connection) -> None:
    """Make the catalogue's revision one more."""
    if connection.run(_GROW, {}) == 0:
        connection.run(_BEGIN, {"id": 1, "revision": 1})
