"""The TLS of a host: what listeners show, what runners are dialled with, where others reach it."""

from __future__ import annotations

import ipaddress
import logging
import socket
from dataclasses import dataclass
from datetime import UTC, datetime

from host_service.certificates.errors import CertificateUnusable
from host_service.certificates.files import DialDefaults
from host_service.certificates.identity import SOON
from host_service.certificates.serving import ServerCertificates
from host_service.errors import StartupError
from host_service.settings import Settings

_log = logging.getLogger("runmesh.host")


@dataclass(frozen=True, slots=True)
class HostTls:
    """What a host has for TLS.

    Attributes:
        certificates: What listeners on TCP show; None: they have no TLS.
        dialling: What connections to runners trust and show, where their address says nothing.
    """

    certificates: ServerCertificates | None
    dialling: DialDefaults

    @classmethod
    def of(cls, settings: Settings) -> HostTls:
        """Read the certificates that the settings name.

        Raises:
            StartupError: They cannot be used.
        """
        if settings.tls is None:
            return cls(None, settings.runner_tls)
        try:
            certificates = ServerCertificates(settings.tls)
        except CertificateUnusable as error:
            raise StartupError(error.message, error.advice) from error
        _warn_of_end(certificates)
        dialling = settings.runner_tls
        # A host that shows runners nothing else shows them what it shows everybody, if it may.
        if dialling.certificate is None and certificates.watched.value.identity.is_for_clients:
            dialling = DialDefaults(
                ca=dialling.ca, certificate=settings.tls.certificate, key=settings.tls.key
            )
        return cls(certificates, dialling)

    def advertised(self, listening: str, chosen: str) -> str:
        """Return where runners on other machines reach the host; empty: nowhere.

        Args:
            listening: Where it listens, `HOST:PORT` or `unix:/path`.
            chosen: What the operator says; empty: nothing.
        """
        if chosen or listening.startswith("unix:"):
            return chosen
        host, _, port = listening.rpartition(":")
        if _is_loopback(host):
            return ""
        if not _is_wildcard(host):
            return listening
        if self.certificates is None:
            return f"{socket.gethostname()}:{port}"
        return next(
            (f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in self._names()), ""
        )

    def _names(self) -> list[str]:
        """The names of the certificate under which others can look for the host."""
        names = self.certificates.watched.value.identity.names if self.certificates else ()
        return [name for name in names if "*" not in name and not _is_loopback(name)]


def warn_of_unreachable_host(runners: int) -> None:
    """Say that runners on other machines cannot call the host."""
    _log.warning(
        "%d runners on other machines cannot call this host, which only this machine reaches: "
        "give --advertise HOST:PORT, or listen on an address that they reach",
        runners,
    )


def _warn_of_end(certificates: ServerCertificates) -> None:
    end = certificates.watched.value.identity.expires_at
    if end - datetime.now(UTC) < SOON:
        _log.warning(
            "the certificate %s expires on %s: put a new one in its place",
            certificates.files.certificate,
            f"{end:%Y-%m-%d}",
        )


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _is_wildcard(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
