"""Finds the host that runs on a data folder, by the file in which it says where it listens."""

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from host_service.cli.failures import CommandError

_POLL_SECONDS = 0.02
# A host is ready in about a second; with a slow plugin, or a large database, later.
_START_SECONDS = 20.0
_CONNECT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RunningHost:
    """What `host.json` says of the host that runs on a data folder.

    Attributes:
        process_id: Its process.
        grpc: Where it listens with TCP, `HOST:PORT`; empty: nowhere.
        socket: Its unix socket, `unix:/path`; empty: none.
        tls_certificate: The file of the certificate that it shows on TCP; empty: no TLS there.
        tls_key: The file of its key.
        tls_client_ca: The file of who signs clients' certificates; empty: they need none.
    """

    process_id: int
    grpc: str
    socket: str
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""

    def address(self) -> str | None:
        """The first of its addresses that takes connections, or None when none does."""
        for address in (self.socket, self.grpc):
            if address and _takes_connections(address):
                return address
        return None


def read_host_file(data_folder: Path) -> RunningHost | None:
    """Reads `host.json`; None when there is none, which means that no host is ready.

    Raises:
        CommandError: The file cannot be read, or is not what a host writes.
    """
    path = data_folder / "host.json"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return RunningHost(
            process_id=int(told["pid"]),
            grpc=_text(told, "grpc"),
            socket=_text(told, "socket"),
            tls_certificate=_text(told, "tls_certificate"),
            tls_key=_text(told, "tls_key"),
            tls_client_ca=_text(told, "tls_client_ca"),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"{path} is not what a host writes", "stop the host and start it again"
        ) from error


def find_host(
    data_folder: Path, *, start_seconds: float = _START_SECONDS
) -> tuple[RunningHost, str]:
    """Finds the host on a data folder, and its address; waits while it is still starting.

    Raises:
        CommandError: No host runs there.
    """
    deadline = time.monotonic() + start_seconds
    while True:
        host = read_host_file(data_folder)
        address = host.address() if host else None
        if host and address:
            return host, address
        if not host_holds(data_folder) or time.monotonic() > deadline:
            raise no_host(data_folder)
        time.sleep(_POLL_SECONDS)


def no_host(data_folder: Path) -> CommandError:
    """The failure of everything that needs a host where none runs."""
    return CommandError(f"no host is running on {data_folder}", "start one with 'runmesh up'")


def host_holds(data_folder: Path) -> bool:
    """Whether a host holds the data folder's lock, as far as the system tells.

    It looks at the kernel's list of locks. Trying the lock would tell everywhere, and would now and
    then make a host that starts at that moment believe that another one is there.
    """
    try:
        lock = (data_folder / "host.lock").stat()
        held = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return False
    device = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    return any(device in line.split() for line in held.splitlines() if "->" not in line)


def operator_key(data_folder: Path) -> str:
    """Reads the key that a host leaves in its data folder for the command line.

    Raises:
        CommandError: There is none, or it cannot be read.
    """
    path = data_folder / "operator.key"
    try:
        return path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CommandError(
            f"there is no operator key in {data_folder}",
            "start a host there with 'runmesh up', or set RUNMESH_API_KEY",
        ) from error
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{path} does not hold a key", "set RUNMESH_API_KEY") from error


def _text(told: Mapping[str, object], name: str) -> str:
    value = told.get(name) or ""
    if not isinstance(value, str):
        raise TypeError(name)
    return value


def _takes_connections(address: str) -> bool:
    try:
        if address.startswith("unix:"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(_CONNECT_SECONDS)
                probe.connect(address.removeprefix("unix:"))
        else:
            host, _, port = address.rpartition(":")
            # Connecting to the address that means all of a machine's reaches the machine itself.
            with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS):
                pass
    except OSError:
        return False
    return True
