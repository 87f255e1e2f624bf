"""Where the certificates of a data folder's own authority are, and what this machine is called."""

import re
import socket
from pathlib import Path

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DNS_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")


def certificates_of(data_folder: Path) -> Path:
    """The folder of the authority for development, and of what it signed."""
    return data_folder / "certs"


def authority_of(data_folder: Path) -> Path | None:
    """The file of the authority for development; None: there is none."""
    path = certificates_of(data_folder) / "ca.pem"
    return path if path.exists() else None


def names_of_this_machine() -> tuple[str, ...]:
    """What clients on this machine, and those that know its name, may call it."""
    name = socket.gethostname().lower()
    return (*_LOOPBACK, name) if _DNS_NAME.fullmatch(name) and name != "localhost" else _LOOPBACK
