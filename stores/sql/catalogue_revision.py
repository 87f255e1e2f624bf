"""The number that grows with every change of the catalogue."""

from __future__ import annotations

import sqlalchemy as sa

from stores.sql.connection import Connection
from stores.sql.tables import catalogue_revision

_GROW = sa.update(catalogue_revision).values(revision=catalogue_revision.c.revision + 1)
_BEGIN = sa.insert(catalogue_revision)


def grow_revision(connection: Connection) -> None:
    """Make the catalogue's revision one more."""
    if connection.run(_GROW, {}) == 0:
        connection.run(_BEGIN, {"id": 1, "revision": 1})
