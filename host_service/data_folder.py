"""The data folder: what a host keeps beside its database, and how others find a running host.

`host.lock` is held by the one host that uses the folder. `host.json` says where that host listens,
and is there only while it does.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from host_service.errors import StartupError
from host_service.identity import new_id

_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddresses:
    """Where a running host can be reached.

    Attributes:
        pid: Its process.
        host_id: Its id.
        version: Its version.
        grpc: `HOST:PORT`, or `unix:/path`.
        socket: `unix:/path` of its own socket.
        http: `HOST:PORT`; empty: none.
        started_at: RFC 3339.
        tls_certificate: The file of the certificate that TCP listeners show; empty: no TLS.
        tls_key: The file of its key.
        tls_client_ca: The file of who signs clients' certificates; empty: they need none.
    """

    pid: int
    host_id: str
    version: str
    grpc: str
    socket: str
    http: str
    started_at: str
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""


class DataFolder:
    """One host's data folder. Made by `open`; to be closed.

    Attributes:
        path: The folder.
        is_new: Whether no host had it before.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.is_new = not (path / "host.id").exists()
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> DataFolder:
        """Make the folder if it is not there, and take it for this host.

        Raises:
            StartupError: It cannot be written, or another host uses it.
        """
        try:
            path.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER)
            path.chmod(_PRIVATE_FOLDER)
            lock = os.open(path / "host.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, _PRIVATE_FILE)
        except OSError as error:
            raise StartupError(
                f"the data folder {path} cannot be used ({error.strerror})",
                "choose another with --data",
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise StartupError(
                f"another host{_running_on(path)} uses the data folder {path}",
                "stop it, or choose another with --data",
            ) from error
        folder = cls(path.resolve(), lock)
        # Left by a host that did not end well: it says where nobody listens.
        folder._withdraw()
        return folder

    @property
    def database_url(self) -> str:
        """The database that a host has when nobody names one."""
        return f"sqlite:///{self.path / 'runmesh.db'}"

    def blobs_url(self, database_url: str | None) -> str | None:
        """Return where a host keeps the bytes of artifacts when nobody says so.

        Args:
            database_url: Its database; None: the one in this folder.

        Returns:
            None for the folder beside a SQLite file, which is where every command looks as well.
        """
        if database_url is None or database_url.startswith("sqlite"):
            return None
        return (self.path / "blobs").as_uri()

    @property
    def plugins(self) -> Path:
        """The folder of plugins that were put in."""
        return self.path / "plugins"

    def host_id(self) -> str:
        """Return this host's id, made at its first start."""
        return self._kept("host.id", new_id)

    def operator_key(self, make: Callable[[], str]) -> str:
        """Return the operator's key, made when there is none."""
        return self._kept("operator.key", make)

    def has_operator_key(self) -> bool:
        """Return whether an operator's key is kept here."""
        return (self.path / "operator.key").exists()

    def announce(self, addresses: HostAddresses) -> None:
        """Say where the host listens."""
        self._write("host.json", json.dumps(asdict(addresses)))

    def close(self) -> None:
        """Say that the host listens no more, and let the folder go."""
        self._withdraw()
        os.close(self._lock)

    def _withdraw(self) -> None:
        (self.path / "host.json").unlink(missing_ok=True)

    def _kept(self, name: str, make: Callable[[], str]) -> str:
        try:
            return (self.path / name).read_text().strip()
        except FileNotFoundError:
            value = make()
            self._write(name, value + "\n")
            return value

    def _write(self, name: str, text: str) -> None:
        """Write a file so that others see all of it or nothing, and only its owner reads it."""
        temporary = self.path / f"{name}.new"
        descriptor = os.open(
            temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE_FILE
        )
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)


def _running_on(path: Path) -> str:
    try:
        return f" (process {json.loads((path / 'host.json').read_text())['pid']})"
    except (OSError, ValueError, KeyError):
        return ""
