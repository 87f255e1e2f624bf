"""TLS of a runner: what it shows to hosts, and what it trusts; read again when the files change.

::

    files ── Fresh ──> gRPC's server asks at each handshake
                └────> Channels asks before it makes a call, once a second at the most

What cannot be used is logged once, and what was read before stays.
"""

import logging
import os
import ssl
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import grpc

from runner_sdk.errors import ServeError

_logger = logging.getLogger("runner_sdk.serve")

Value = TypeVar("Value")

_SYSTEM = Path("system")
_LOOK_SECONDS = 1.0
_OTHERS = 0o077
_OTHERS_BUT_READING_GROUP = 0o037


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates, as paths of PEM files, which are read again when they change.

    Attributes:
        certificate: The runner's certificate, with its chain. None, for a runner that attaches to
            hosts that ask for none: it cannot listen with TLS.
        key: The certificate's private key, which nobody else may read.
        client_ca: Who signs the hosts' certificates. With it, only hosts that show one may call.
        host_ca: Who signs the certificate of the host's own server; `system` for the authorities
            that the machine trusts. With it, calls to a host over TCP use TLS, and show the
            runner's certificate to a host that asks for one.
    """

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    host_ca: Path | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Tls | None":
        """Reads `RUNMESH_TLS_CERT`, `_KEY`, `_CLIENT_CA` and `_HOST_CA`; None when none is set."""
        found = [
            Path(environment[name]) if environment.get(name) else None
            for name in (
                "RUNMESH_TLS_CERT",
                "RUNMESH_TLS_KEY",
                "RUNMESH_TLS_CLIENT_CA",
                "RUNMESH_TLS_HOST_CA",
            )
        ]
        return cls(*found) if any(found) else None

    @property
    def can_listen(self) -> bool:
        """Whether a server can be opened with it."""
        return self.certificate is not None

    def server_credentials(self) -> grpc.ServerCredentials:
        """Returns what the runner's server is opened with.

        Raises:
            ServeError: A file cannot be used; it names the file.
        """
        fresh = Fresh([self.certificate, self.key, self.client_ca], self._read_server)
        shown = fresh.version

        def newest() -> grpc.ServerCertificateConfiguration | None:
            # Called on gRPC's threads; None: what it was.
            nonlocal shown
            fresh.look()
            if fresh.version == shown:
                return None
            shown = fresh.version
            return fresh.value

        return grpc.dynamic_ssl_server_credentials(
            fresh.value,
            newest,  # type: ignore[arg-type]  # None is in gRPC's documentation
            require_client_authentication=self.client_ca is not None,
        )

    def host_credentials(self) -> "Fresh[grpc.ChannelCredentials] | None":
        """Returns what channels to hosts are opened with; None: without TLS.

        Raises:
            ServeError: A file cannot be used; it names the file.
        """
        if self.host_ca is None:
            return None
        return Fresh([self.certificate, self.key, self.host_ca], self._read_host)

    def _read_server(self) -> grpc.ServerCertificateConfiguration:
        pair = self._read_pair()
        if pair is None:
            raise ServeError("tls.certificate: a runner that listens with TLS needs one")
        authorities = _pem(self.client_ca, "client_ca") if self.client_ca else None
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=authorities)

    def _read_host(self) -> grpc.ChannelCredentials:
        key, chain = self._read_pair() or (None, None)
        authorities = _system_authorities() if self.host_ca == _SYSTEM else self.host_ca
        return grpc.ssl_channel_credentials(
            root_certificates=_pem(authorities, "host_ca") if authorities else None,
            private_key=key,
            certificate_chain=chain,
        )

    def _read_pair(self) -> tuple[bytes, bytes] | None:
        """Returns key and certificate, which belong together; None when there is none."""
        if self.certificate is None and self.key is None:
            return None
        if self.certificate is None or self.key is None:
            raise ServeError("tls: certificate and key go together")
        pair = _pem(self.key, "key"), _pem(self.certificate, "certificate")
        _refuse_open_key(self.key)
        _check_pair(self.certificate, self.key)
        return pair


class Fresh(Generic[Value]):
    """What was read from files, and is read again when they change.

    Args:
        paths: The files; None and `system` are none.
        read: Reads them.

    Attributes:
        value: What was read last that could be used.
        version: Counts its changes.

    Raises:
        ServeError: They cannot be used from the start.
    """

    def __init__(self, paths: Sequence[Path | None], read: Callable[[], Value]) -> None:
        self._paths = [path for path in paths if path is not None and path != _SYSTEM]
        self._read = read
        self._seen = self._traces()
        self._told = ""
        self._looked_at = time.monotonic()
        self.value = read()
        self.version = 1

    def look(self) -> None:
        """Reads the files again if they changed; looks once a second at the most."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        traces = self._traces()
        if traces == self._seen:
            return
        try:
            value = self._read()
        except ServeError as error:
            if str(error) != self._told:
                self._told = str(error)
                _logger.warning("what was read before stays: %s", error)
            return
        if self._traces() != traces:
            # Somebody writes them now.
            return
        self._seen, self._told = traces, ""
        self.value = value
        self.version += 1
        _logger.info("certificates were read again: %s", ", ".join(map(str, self._paths)))

    def _traces(self) -> list[tuple[int, int, int] | None]:
        return [_trace(path) for path in self._paths]


def _trace(path: Path) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _pem(path: Path, name: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ServeError(f"tls.{name}: {path} cannot be read: {error.strerror}") from error


def _refuse_open_key(path: Path) -> None:
    status = Path(path).stat()
    # A key that root owns may be lent to a group, as a service manager or an orchestrator does it.
    lent = status.st_uid == 0 and os.geteuid() != 0
    mode = stat.S_IMODE(status.st_mode)
    if mode & (_OTHERS_BUT_READING_GROUP if lent else _OTHERS):
        raise ServeError(
            f"tls.key: {path} may be read or written by others (mode {mode:04o}): chmod 600 it"
        )


def _check_pair(certificate: Path, key: Path) -> None:
    try:
        # The empty password: without one, Python would ask for it at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise ServeError(f"tls.key: {key} is not the key of {certificate}") from error
        raise ServeError(
            f"tls.certificate: {certificate} and {key} are no certificate and unencrypted key in "
            f"PEM form ({getattr(error, 'reason', None) or error})"
        ) from error


def _system_authorities() -> Path:
    found = ssl.get_default_verify_paths().cafile
    if found is None:
        raise ServeError("tls.host_ca: this machine has no file of authorities: name one")
    return Path(found)
