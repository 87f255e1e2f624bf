"""Where a runner listens: which addresses it may use."""

import ipaddress
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner_sdk.errors import ServeError

_LISTEN_VARIABLE = "RUNMESH_LISTEN"
_ANY_FREE_PORT = "127.0.0.1:0"
# What sockaddr_un holds, its closing zero left out.
_PATH_BYTES = 103 if sys.platform == "darwin" else 107
_TCP_SCHEMES = ("dns:///", "dns:", "ipv4:", "ipv6:")


def listen_address(listen: str | None, *, tls: bool) -> str:
    """Returns the address to listen on: the argument, what the host chose, or any free port.

    Raises:
        ServeError: The address cannot be used, or would be open to others without TLS.
    """
    source = "listen" if listen is not None else _LISTEN_VARIABLE
    address = listen or os.environ.get(_LISTEN_VARIABLE) or _ANY_FREE_PORT
    if address.startswith("unix:"):
        _check_path(address.removeprefix("unix:"), source)
    elif not is_private(address) and not tls:
        raise ServeError(
            f"{source}: {address!r} can be reached from other machines, and there is no TLS: "
            "listen on 127.0.0.1, [::1] or unix:/path, or give serve(tls=...) a certificate"
        )
    return address


def is_private(address: str) -> bool:
    """Returns whether an address can be reached from this machine alone."""
    if address.startswith("unix:"):
        return True
    for scheme in _TCP_SCHEMES:
        address = address.removeprefix(scheme)
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal():
        return False
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@contextmanager
def private_files() -> Iterator[None]:
    """Lets files that are made meanwhile, sockets too, be the user's alone."""
    before = os.umask(stat.S_IRWXG | stat.S_IRWXO)
    try:
        yield
    finally:
        os.umask(before)


def _check_path(path: str, source: str) -> None:
    size = len(os.fsencode(path))
    if size > _PATH_BYTES:
        raise ServeError(
            f"{source}: the socket path {path!r} has {size} bytes; the limit is {_PATH_BYTES}"
        )
    if not Path(path).is_absolute():
        raise ServeError(f"{source}: the socket path {path!r} must be absolute")
