"""What the host listens on: addresses read, refused where others reach them, bound by one host."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import re
import socket
from pathlib import Path

import grpc
import grpc.aio

from host_service.certificates.serving import ServerCertificates
from host_service.errors import StartupError

_ADDRESS = re.compile(r"(?:(?P<host>[^:\[\]]+)|\[(?P<bracketed>[^\[\]]+)\]):(?P<port>[0-9]{1,5})")
_LAST_PORT = 65535
# On Linux; elsewhere it is less, and binding says so.
_LONGEST_SOCKET_PATH = 107


class SocketClaim:
    """The right to a unix socket's path, held by a lock beside it.

    gRPC removes a socket that is in its way, whoever listens on it; the lock is what tells a living
    host from a dead one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartupError(
                f"the socket {path} cannot be made ({error.strerror})", "choose another --grpc"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise StartupError(
                f"another process listens on unix:{path}", "stop it, or choose another --grpc"
            ) from error
        if _answers(path):
            os.close(self._lock)
            raise StartupError(
                f"another process listens on unix:{path}", "stop it, or choose another --grpc"
            )

    def release(self) -> None:
        """Let the path go."""
        self._path.unlink(missing_ok=True)
        os.close(self._lock)


def _answers(path: Path) -> bool:
    probe = socket.socket(socket.AF_UNIX)
    try:
        probe.connect(str(path))
    except OSError:
        return False
    else:
        return True
    finally:
        probe.close()


def split_address(address: str, option: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; an IPv6 host stands in brackets.

    Raises:
        StartupError: It is not of that form.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > _LAST_PORT:
        raise StartupError(
            f"{option} {address!r} is not HOST:PORT",
            "give for example 127.0.0.1:50051, or [::1]:50051",
        )
    return found["bracketed"] or found["host"], int(found["port"])


def refuse_open(host: str, *, insecure: bool, option: str) -> None:
    """Refuse a host that others than this machine can reach, where nothing is encrypted.

    Raises:
        StartupError: It is such a host, and nobody said that this is wanted.
    """
    if insecure or host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise StartupError(
            f"{option} {host} can be reached by others, and the connection would not be encrypted",
            "give --tls-cert and --tls-key, listen on 127.0.0.1 or a socket, or say --insecure",
        )


def probe_grpc(address: str, *, insecure: bool, option: str = "--grpc") -> None:
    """Find out whether an address may be listened on, before anything is started for it.

    Args:
        address: `HOST:PORT`, or `unix:/path`.
        insecure: Whether others may reach it, because there is TLS or somebody said so.
        option: What it was given with.

    Raises:
        StartupError: As `bind_grpc`.
    """
    if address.startswith("unix:"):
        SocketClaim(_socket_path(address)).release()
        return
    host, port = split_address(address, option)
    refuse_open(host, insecure=insecure, option=option)
    _listener(host, port, address, option).close()


def bind_grpc(
    server: grpc.aio.Server,
    address: str,
    *,
    insecure: bool,
    certificates: ServerCertificates | None = None,
) -> tuple[str, SocketClaim | None]:
    """Bind a gRPC server, and return where it listens with the claim on its socket, if it is one.

    Args:
        server: The server.
        address: `HOST:PORT`, or `unix:/path`, where there is never TLS.
        insecure: Whether others may reach it without TLS.
        certificates: What it shows; None: there is no TLS.

    Raises:
        StartupError: The address is malformed, open to others, or taken.
    """
    if address.startswith("unix:"):
        path = _socket_path(address)
        claim = SocketClaim(path)
        return bind_socket(server, path), claim
    host, port = split_address(address, "--grpc")
    refuse_open(host, insecure=insecure or certificates is not None, option="--grpc")
    shown = f"[{host}]" if ":" in host else host
    credentials = certificates.grpc_credentials() if certificates else None
    return f"{shown}:{_bind(server, f'{shown}:{port}', credentials)}", None


def _socket_path(address: str) -> Path:
    text = address.removeprefix("unix:")
    size = len(os.fsencode(text))
    if not 0 < size <= _LONGEST_SOCKET_PATH:
        raise StartupError(
            f"the path of --grpc {address} has {size} bytes; the system takes 1 to "
            f"{_LONGEST_SOCKET_PATH}",
            "choose another --grpc",
        )
    path = Path(text)
    if not path.is_absolute() or path.is_dir():
        raise StartupError(f"--grpc {address} is no path of a socket", "give unix:/path/to/a.sock")
    return path


def _bind(
    server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None = None
) -> int:
    try:
        if credentials is not None:
            return server.add_secure_port(address, credentials)
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise StartupError(
            f"{address} cannot be listened on: it is in use, or not an address of this machine",
            "choose another --grpc",
        ) from error


def bind_socket(server: grpc.aio.Server, path: Path) -> str:
    """Bind a gRPC server to a unix socket in a private folder, and return its address."""
    _bind(server, f"unix:{path}")
    path.chmod(0o600)
    return f"unix:{path}"


def bind_http(address: str, *, insecure: bool) -> tuple[socket.socket, str]:
    """Return a listening socket for HTTP, and where it listens.

    Raises:
        StartupError: The address is malformed, open to others, or taken.
    """
    host, port = split_address(address, "--http")
    refuse_open(host, insecure=insecure, option="--http")
    listener = _listener(host, port, address, "--http")
    bound = listener.getsockname()[1]
    return listener, f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"


def _listener(host: str, port: int, address: str, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise StartupError(
            f"{address} cannot be listened on ({os.strerror(error.errno or 0)})",
            f"choose another {option}",
        ) from error
