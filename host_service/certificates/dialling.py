"""What connections trust and show: credentials of gRPC channels, always the newest."""

from __future__ import annotations

from pathlib import Path

import grpc

from host_service.certificates.files import SYSTEM, DialFiles
from host_service.certificates.identity import Identity, Use, read_authorities, read_identity
from host_service.certificates.watched import Watched


class ClientCertificates:
    """What the connections that were dialled with the same settings trust and show.

    Args:
        files: Where it is.

    Attributes:
        files: Where it is.
        watched: What was read; to be kept with `keep_watched`.

    Raises:
        CertificateUnusable: It cannot be used.
    """

    def __init__(self, files: DialFiles) -> None:
        self.files = files
        self.watched = Watched(
            "the certificates for dialling", _paths(files), lambda: channel_credentials(files)
        )

    @property
    def name(self) -> str:
        """What the other side's certificate must be for; empty: what was dialled."""
        return self.files.name


def channel_credentials(files: DialFiles) -> grpc.ChannelCredentials:
    """Reads what a channel trusts and shows.

    Raises:
        CertificateUnusable: It cannot be used.
    """
    shown = read_client_identity(files)
    return grpc.ssl_channel_credentials(
        root_certificates=read_authorities(files.ca),
        private_key=shown.key if shown else None,
        certificate_chain=shown.chain if shown else None,
    )


def read_client_identity(files: DialFiles) -> Identity | None:
    """Reads what a channel shows; None: nothing.

    Raises:
        CertificateUnusable: It cannot be used.
    """
    if files.certificate is None or files.key is None:
        return None
    return read_identity(files.certificate, files.key, Use.CLIENT)


def _paths(files: DialFiles) -> list[Path]:
    named = (files.ca, files.certificate, files.key)
    return [path for path in named if path is not None and path != SYSTEM]
