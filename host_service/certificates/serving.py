"""What listeners show: the host's certificate, for gRPC and for HTTP, always the newest.

::

    files ── watched ──> Served ──> gRPC: asked for at each handshake
                            └────> HTTP: its context is put under each connection as it begins
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

import grpc

from host_service.certificates.errors import CertificateUnusable
from host_service.certificates.files import ListenFiles
from host_service.certificates.identity import Identity, Use, read_authorities, read_identity
from host_service.certificates.watched import Watched


@dataclass(frozen=True, slots=True)
class Served:
    """What is shown now.

    Attributes:
        identity: The certificate and its key.
        client_authorities: PEM; None: clients need no certificate.
        context: The same for Python's own TLS.
    """

    identity: Identity
    client_authorities: bytes | None
    context: ssl.SSLContext = field(repr=False)


class ServerCertificates:
    """The certificate of a host's listeners.

    Args:
        files: Where it is.

    Attributes:
        files: Where it is.
        watched: What was read; to be kept with `keep_watched`.

    Raises:
        CertificateUnusable: It cannot be used.
    """

    def __init__(self, files: ListenFiles) -> None:
        self.files = files
        paths = [files.certificate, files.key]
        if files.client_ca is not None:
            paths.append(files.client_ca)
        self.watched = Watched("the certificates of the listeners", paths, lambda: _read(files))

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Returns what a port is opened with. Connections that there are keep what they saw."""
        shown = self.watched.version

        def newest() -> grpc.ServerCertificateConfiguration | None:
            # Called on gRPC's threads, at each handshake; None: what it was.
            nonlocal shown
            version = self.watched.version
            if version == shown:
                return None
            shown = version
            return _configuration(self.watched.value)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(self.watched.value),
            newest,  # type: ignore[arg-type]  # None is in gRPC's documentation
            require_client_authentication=self.files.client_ca is not None,
        )

    def ssl_context(self) -> ssl.SSLContext:
        """Returns what an HTTP listener is opened with."""

        def newest(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
            connection.context = self.watched.value.context

        context = _context(self.files)
        context.sni_callback = newest
        return context


def _read(files: ListenFiles) -> Served:
    return Served(
        identity=read_identity(files.certificate, files.key, Use.SERVER),
        client_authorities=read_authorities(files.client_ca) if files.client_ca else None,
        context=_context(files),
    )


def _context(files: ListenFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise CertificateUnusable(
            f"the certificate {files.certificate} and its key cannot be loaded ({error})",
            "give a certificate and its own key in PEM form",
        ) from error
    return context


def _configuration(served: Served) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(served.identity.key, served.identity.chain)],
        root_certificates=served.client_authorities,
    )
