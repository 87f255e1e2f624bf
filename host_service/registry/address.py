"""Addresses of runners that somebody else runs: what may be dialled, and how."""

import ipaddress
import os
import re
from dataclasses import dataclass

from host_service.registry.errors import AddressInvalid

#: The longest path of a unix socket, in bytes: `sockaddr_un.sun_path` less its closing zero (108 on
#: Linux).
SOCKET_PATH_LIMIT_BYTES = 107

# gRPC reads a target as a URI: what a URI would read as something else cannot stand in a path.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/@+,=~-]*")
_HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class RunnerAddress:
    """An address that can be dialled.

    Attributes:
        target: In gRPC's form, such as `unix:/run/helpdesk.sock` or `127.0.0.1:7443`.
        private: Whether only this machine can be at the other end: a unix socket or loopback.
    """

    target: str
    private: bool


def parse_address(text: str) -> RunnerAddress:
    """Reads `unix:/path` or `host:port`.

    Raises:
        AddressInvalid: The text is neither, or the socket's path is too long or has characters that
            no gRPC target can have.
    """
    if text.startswith("unix:"):
        return RunnerAddress(f"unix:{_socket_path(text)}", private=True)
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise AddressInvalid(
            f"address {text!r} is neither unix:/path nor host:port with a port from 1 to 65535"
        )
    return RunnerAddress(text, private=_is_loopback(match["host"].strip("[]")))


def is_plain_socket_path(path: str) -> bool:
    """Whether gRPC can be told this path: absolute, and of characters that a URI leaves alone."""
    return _PLAIN_PATH.fullmatch(path) is not None


def is_loopback_target(target: str) -> bool:
    """Whether a gRPC target of TCP can only be on this machine."""
    return _is_loopback(target.rpartition(":")[0].strip("[]"))


def _socket_path(text: str) -> str:
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_LIMIT_BYTES:
        raise AddressInvalid(
            f"socket path {path} has {size} bytes; the limit is {SOCKET_PATH_LIMIT_BYTES}"
        )
    if not is_plain_socket_path(path):
        raise AddressInvalid(
            f"socket path {path!r} is not absolute, or has other characters than "
            "A-Z a-z 0-9 . _ / @ + , = ~ -"
        )
    return path


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
