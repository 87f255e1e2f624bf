"""A private authority for development: it signs certificates of hosts, runners and clients.

It lives in a folder, each certificate beside its key: `ca.pem`, `ca.key`, `NAME.pem`, `NAME.key`.
Whoever has the folder can be anybody: in production an authority keeps its key elsewhere.

Keys are on P-256 (RFC 5480), certificates as RFC 5280 has them: an authority that may sign no other
authority, names as subject alternative names, uses that are said.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from host_service.certificates.errors import CertificateUnusable
from host_service.certificates.files import ListenFiles
from host_service.certificates.identity import (
    Use,
    allows,
    load_certificates,
    names_of,
    refuse_open_key,
)

#: How long the authority is good for.
AUTHORITY_DAYS: Final = 730
#: How long what it signs is good for, unless somebody says otherwise.
ISSUED_DAYS: Final = 90

_AUTHORITY = "ca"
_HOST = "host"
_RENEWED_BEFORE = timedelta(days=30)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_LONGEST_DNS_NAME = 253
# Clocks of two machines may differ by this much.
_LEEWAY = timedelta(minutes=5)
_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate of the authority, or the authority's own.

    Attributes:
        name: What it was issued as; `ca` for the authority.
        certificate: Its file.
        key: The file of its key.
        names: The names and addresses that it is for.
        is_for_clients_only: Whether no server can show it.
        expires_at: When it expires.
    """

    name: str
    certificate: Path
    key: Path
    names: tuple[str, ...]
    is_for_clients_only: bool
    expires_at: datetime


class Authority:
    """The authority of a folder. Made by `create` or `open`.

    Attributes:
        folder: Where it lives.
    """

    def __init__(
        self, folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        self.folder = folder
        self._certificate = certificate
        self._key = key

    @property
    def certificate_file(self) -> Path:
        """The file that others check certificates against."""
        return self.folder / f"{_AUTHORITY}.pem"

    @classmethod
    def exists(cls, folder: Path) -> bool:
        """Whether there is one in a folder."""
        return (folder / f"{_AUTHORITY}.key").exists()

    @classmethod
    def create(cls, folder: Path, *, now: datetime | None = None) -> Authority:
        """Makes one; what the one before it signed is worth nothing from then on.

        Raises:
            CertificateUnusable: The folder cannot be written.
        """
        now = now or datetime.now(UTC)
        key = ec.generate_private_key(ec.SECP256R1())
        # A name of its own for each: two that have one name are mistaken for each other.
        subject = _subject(f"runmesh development authority {secrets.token_hex(4)}")
        certificate = (
            _builder(subject, subject, key.public_key(), now, timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        _write_pair(folder, _AUTHORITY, key, _pem(certificate))
        return cls(folder, certificate, key)

    @classmethod
    def open(cls, folder: Path, *, now: datetime | None = None) -> Authority:
        """Reads the one that is in a folder.

        Raises:
            CertificateUnusable: There is none, or it cannot be used any more.
        """
        if not cls.exists(folder):
            raise CertificateUnusable(
                f"there is no authority in {folder}", "make one with 'runmesh certs init'"
            )
        key_file = folder / f"{_AUTHORITY}.key"
        refuse_open_key(key_file)
        certificate = load_certificates(folder / f"{_AUTHORITY}.pem")[0]
        try:
            key = load_pem_private_key(key_file.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise CertificateUnusable(
                f"the key {key_file} cannot be read", "make another authority with 'certs init'"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or (
            key.public_key() != certificate.public_key()
        ):
            raise CertificateUnusable(
                f"{key_file} is not the key of ca.pem beside it",
                "make another authority with 'runmesh certs init --replace'",
            )
        if certificate.not_valid_after_utc <= (now or datetime.now(UTC)):
            raise CertificateUnusable(
                f"the authority in {folder} expired on {certificate.not_valid_after_utc:%Y-%m-%d}",
                "make another with 'runmesh certs init --replace'",
            )
        return cls(folder, certificate, key)

    def issue(
        self,
        name: str,
        *,
        hosts: Sequence[str] = (),
        for_clients_only: bool = False,
        days: int = ISSUED_DAYS,
        now: datetime | None = None,
    ) -> Issued:
        """Signs a certificate for a new key, and puts both in place of those of the same name.

        Args:
            name: What it is to be known by, and what its subject is.
            hosts: DNS names and IP addresses that it is for.
            for_clients_only: Whether only clients may show it; else servers may as well.
            days: How long it is good for; never longer than the authority.
            now: The time; None: the clock's.

        Raises:
            CertificateUnusable: The name or a host will not do, or the folder cannot be written.
        """
        now = now or datetime.now(UTC)
        _check_name(name)
        alternatives = [
            _alternative(each) for each in hosts or ([name] if for_clients_only else [])
        ]
        if not alternatives:
            raise CertificateUnusable(
                f"{name} would be for no host", "name the hosts it is for with --host"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if not for_clients_only:
            uses.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        authority_key = self._key.public_key()
        lifetime = min(timedelta(days=days), self._certificate.not_valid_after_utc - now)
        certificate = (
            _builder(_subject(name), self._certificate.subject, key.public_key(), now, lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        _write_pair(self.folder, name, key, _pem(certificate))
        return _issued(self.folder, name, certificate)


def ensure_host_certificate(
    folder: Path, hosts: Sequence[str], *, now: datetime | None = None
) -> ListenFiles:
    """Returns a host's certificate, and makes it, and its authority, where there is none.

    Args:
        folder: Where they are.
        hosts: What it must be for. One that is for less, or expires before long, is replaced.
        now: The time; None: the clock's.

    Raises:
        CertificateUnusable: They can be neither used nor made.
    """
    now = now or datetime.now(UTC)
    authority = (
        Authority.open(folder, now=now)
        if Authority.exists(folder)
        else Authority.create(folder, now=now)
    )
    files = ListenFiles(
        certificate=folder / f"{_HOST}.pem",
        key=folder / f"{_HOST}.key",
    )
    there = None
    with contextlib.suppress(CertificateUnusable):
        # Whatever is wrong with it, another takes its place.
        there = find_issued(folder, _HOST)
    kept = there.names if there else ()
    wanted = tuple(dict.fromkeys([*kept, *(str(_alternative(host).value) for host in hosts)]))
    if there is None or wanted != kept or there.expires_at < now + _RENEWED_BEFORE:
        authority.issue(_HOST, hosts=wanted, now=now)
    return files


def issued_in(folder: Path) -> tuple[Issued, ...]:
    """Tells what there is in a folder, the authority first.

    Raises:
        CertificateUnusable: One of the files cannot be read.
    """
    names = sorted(
        (path.stem for path in folder.glob("*.pem") if path.with_suffix(".key").exists()),
        key=lambda name: (name != _AUTHORITY, name),
    )
    return tuple(filter(None, (find_issued(folder, name) for name in names)))


def find_issued(folder: Path, name: str) -> Issued | None:
    """Tells of one certificate in a folder; None: there is none of that name.

    Raises:
        CertificateUnusable: It cannot be read.
    """
    path = folder / f"{name}.pem"
    return _issued(folder, name, load_certificates(path)[0]) if path.exists() else None


def _issued(folder: Path, name: str, certificate: x509.Certificate) -> Issued:
    return Issued(
        name=name,
        certificate=folder / f"{name}.pem",
        key=folder / f"{name}.key",
        names=names_of(certificate),
        is_for_clients_only=name != _AUTHORITY and not allows(certificate, Use.SERVER),
        expires_at=certificate.not_valid_after_utc,
    )


def _check_name(name: str) -> None:
    if name == _AUTHORITY or not _NAME.fullmatch(name):
        raise CertificateUnusable(
            f"{name!r} cannot be the name of a certificate",
            "give 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit, other than 'ca'",
        )


def _alternative(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    labels = host.removeprefix("*.").split(".")
    if len(host) > _LONGEST_DNS_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise CertificateUnusable(
            f"{host!r} is neither a DNS name nor an IP address",
            "give for example runner.example.org or 192.0.2.7",
        )
    return x509.DNSName(host.lower())


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LEEWAY)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _write_pair(
    folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: bytes
) -> None:
    """Writes both beside the old ones first, so that the moment in which they differ is short."""
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER)
        folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER)
        written = [
            (_write_new(folder / f"{name}.key", private), folder / f"{name}.key"),
            (_write_new(folder / f"{name}.pem", certificate), folder / f"{name}.pem"),
        ]
        for temporary, path in written:
            temporary.replace(path)
    except OSError as error:
        raise CertificateUnusable(
            f"{folder} cannot be written ({error.strerror})", "choose another folder with --data"
        ) from error


def _write_new(path: Path, content: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, _PRIVATE_FILE), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return temporary
