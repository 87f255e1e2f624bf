"""Running the migrations from within the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from stores.errors import SchemaTooNew
from stores.migrations import HEAD
from stores.sql.dialect import Dialect

# Alembic keeps what it is at in a module of its own: one migration at a time in a process.
_one_at_a_time = Lock()


def upgrade(connection: sa.Connection, dialect: Dialect, revision: str = "head") -> None:
    """Migrate to a revision, all steps in one transaction.

    Raises:
        SchemaTooNew: The database has a revision that this version does not know.
    """
    config = _config(connection)
    with _transaction(connection, dialect):
        _check_known(connection, config)
        command.upgrade(config, revision)


def downgrade(connection: sa.Connection, dialect: Dialect, revision: str) -> None:
    """Migrate back to a revision, or to `base`, all steps in one transaction.

    What only the later schema can hold is lost.
    """
    config = _config(connection)
    with _transaction(connection, dialect):
        _check_known(connection, config)
        command.downgrade(config, revision)


def check_known(revision: str) -> None:
    """Check that a revision is one that this version can migrate from.

    Raises:
        SchemaTooNew: It is not.
    """
    _check_one(ScriptDirectory.from_config(_scripts()), revision)


def _config(connection: sa.Connection) -> Config:
    config = _scripts()
    config.attributes["connection"] = connection
    return config


def _scripts() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    return config


@contextmanager
def _transaction(connection: sa.Connection, dialect: Dialect) -> Iterator[None]:
    connection.rollback()
    driver = connection.connection.driver_connection
    dialect.before_migration(driver)
    with _one_at_a_time, connection.begin():
        # One host migrates, the others wait here and then find nothing left to do.
        dialect.begin(driver)
        yield
        dialect.after_migration(driver)


def _check_known(connection: sa.Connection, config: Config) -> None:
    scripts = ScriptDirectory.from_config(config)
    for revision in MigrationContext.configure(connection).get_current_heads():
        _check_one(scripts, revision)


def _check_one(scripts: ScriptDirectory, revision: str) -> None:
    try:
        scripts.get_revision(revision)
    except CommandError as error:
        raise SchemaTooNew(revision, HEAD) from error
