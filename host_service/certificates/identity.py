"""A certificate with its key, and the authorities that others' certificates are checked against.

All are PEM files. What would fail in the middle of a handshake, where nobody could tell why, is
looked for here: a key of another certificate, an expired one, one that names nobody.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from host_service.certificates.errors import CertificateUnusable
from host_service.certificates.files import SYSTEM

#: A certificate that expires within this time is warned of.
SOON: Final = timedelta(days=14)

_OTHERS = 0o077
_OTHERS_BUT_READING_GROUP = 0o037
_REISSUE = "'runmesh certs issue' makes one for development"


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate with its chain, and its key.

    Attributes:
        chain: PEM, the certificate first.
        key: PEM.
        names: The names and addresses that the certificate is for.
        expires_at: When the first certificate of the chain expires.
        is_for_clients: Whether it may be shown to servers.
    """

    chain: bytes
    key: bytes = field(repr=False)
    names: tuple[str, ...]
    expires_at: datetime
    is_for_clients: bool


class Use(Enum):
    """What a certificate is to be shown as."""

    SERVER = ExtendedKeyUsageOID.SERVER_AUTH
    CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


def read_identity(
    certificate: Path, key: Path, use: Use, *, now: datetime | None = None
) -> Identity:
    """Reads a certificate and its key, and checks what both are worth.

    Args:
        certificate: PEM, with the chain up to the authority where there are more between.
        key: PEM, unencrypted, that nobody else may read.
        use: What it is to be shown as.
        now: The time; None: the clock's.

    Raises:
        CertificateUnusable: One of them cannot be used; it says why.
    """
    now = now or datetime.now(UTC)
    chain_pem = _read(certificate, "certificate")
    chain = _certificates(chain_pem, certificate)
    refuse_open_key(key)
    key_pem = _read(key, "key")
    if _public_bytes(_public_key_of(key_pem, key)) != _public_bytes(chain[0].public_key()):
        raise CertificateUnusable(
            f"the key {key} is not that of the certificate {certificate}",
            "give the key that the certificate was made for",
        )
    for each in chain:
        _check_time(each, certificate, now)
    names = names_of(chain[0])
    _check_use(chain[0], certificate, use)
    if use is Use.SERVER and not names:
        raise CertificateUnusable(
            f"the certificate {certificate} has no subject alternative name: no client takes it",
            _REISSUE,
        )
    return Identity(
        chain=chain_pem,
        key=key_pem,
        names=names,
        expires_at=min(each.not_valid_after_utc for each in chain),
        is_for_clients=allows(chain[0], Use.CLIENT),
    )


def read_authorities(path: Path) -> bytes:
    """Reads authorities, as PEM.

    Args:
        path: Their file, or `SYSTEM`.

    Raises:
        CertificateUnusable: It cannot be read, or holds no certificate.
    """
    if path == SYSTEM:
        path = _system_file()
    pem = _read(path, "authority")
    try:
        # Not read one by one: among those of a system are some that break rules of today.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise _no_certificate(path) from error
    return pem


def load_certificates(path: Path) -> Sequence[x509.Certificate]:
    """Reads all certificates in a file, and checks nothing else.

    Raises:
        CertificateUnusable: It cannot be read, or holds no certificate.
    """
    return _certificates(_read(path, "certificate"), path)


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names and addresses that a certificate is for; its common name is none of them."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = found.get_values_for_type(x509.IPAddress)
    return (*found.get_values_for_type(x509.DNSName), *map(str, addresses))


def allows(certificate: x509.Certificate, use: Use) -> bool:
    """Whether a certificate may be shown so: what it does not limit, it allows."""
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return use.value in uses or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in uses


def refuse_open_key(path: Path) -> None:
    """Refuses a key file that others may read.

    Raises:
        CertificateUnusable: It may be, or it is not there.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise CertificateUnusable(
            f"the key {path} cannot be read ({error.strerror})", "check the path and its mode"
        ) from error
    # A key that root owns may be lent to a group, as a service manager or an orchestrator does it.
    lent = status.st_uid == 0 and os.geteuid() != 0
    mode = stat.S_IMODE(status.st_mode)
    if mode & (_OTHERS_BUT_READING_GROUP if lent else _OTHERS):
        raise CertificateUnusable(
            f"the key {path} may be read or written by others (mode {mode:04o})",
            "chmod 600 it, and replace it if somebody may have read it",
        )


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateUnusable(
            f"the {what} {path} cannot be read ({error.strerror})", "check the path and its mode"
        ) from error


def _certificates(pem: bytes, path: Path) -> Sequence[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise _no_certificate(path) from error


def _no_certificate(path: Path) -> CertificateUnusable:
    return CertificateUnusable(
        f"{path} holds no certificate in PEM form", "give a file with BEGIN CERTIFICATE in it"
    )


def _public_key_of(pem: bytes, path: Path) -> PublicKeyTypes:
    try:
        return load_pem_private_key(pem, password=None).public_key()
    except TypeError as error:
        raise CertificateUnusable(
            f"the key {path} is encrypted with a password",
            "decrypt it: the host has nobody to ask for the password",
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateUnusable(
            f"{path} holds no private key in PEM form", "give a file with BEGIN PRIVATE KEY in it"
        ) from error


def _public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _check_time(certificate: x509.Certificate, path: Path, now: datetime) -> None:
    until, since = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    if until <= now:
        raise CertificateUnusable(f"the certificate {path} expired on {until:%Y-%m-%d}", _REISSUE)
    if since > now:
        raise CertificateUnusable(
            f"the certificate {path} is not valid before {since:%Y-%m-%d %H:%M} UTC",
            "check this machine's clock",
        )


def _check_use(certificate: x509.Certificate, path: Path, use: Use) -> None:
    if not allows(certificate, use):
        meant, wanted = ("clients", "server") if use is Use.SERVER else ("servers", "client")
        raise CertificateUnusable(
            f"the certificate {path} is for {meant} only: it would not be taken from a {wanted}",
            _REISSUE,
        )


def _system_file() -> Path:
    found = ssl.get_default_verify_paths().cafile
    if found is None:
        raise CertificateUnusable(
            "this machine has no file of authorities that it trusts", "give the authority's file"
        )
    return Path(found)
