"""What `runmesh doctor` looks at of TLS: certificates, their keys, and what a host shows."""

import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from host_service.certificates.authority import Issued, issued_in
from host_service.certificates.errors import CertificateUnusable
from host_service.certificates.files import ListenFiles
from host_service.certificates.identity import (
    SOON,
    Identity,
    Use,
    load_certificates,
    read_authorities,
    read_identity,
    refuse_open_key,
)
from host_service.cli.certificate_folder import certificates_of
from host_service.cli.findings import Finding, Findings, fine, problem, warning
from host_service.cli.running_host import RunningHost

_AREA = "certificates"
_SECONDS = 3.0


def check_certificates(
    data: Path,
    files: ListenFiles | None,
    host: RunningHost | None,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Findings:
    """Whether what listeners show can be used, and for how long; then what the data folder has.

    Args:
        data: The data folder.
        files: What a host would show, as the options say; None: nothing.
        host: The host that runs there; what it shows comes first.
        clock: Tells the time.
    """
    now = clock()
    running = _files_of(host)
    used = running or files
    if used is not None:
        yield from _check_listener(used, now, is_running=running is not None)
    if running is not None and host is not None:
        yield from _check_shown(host, running)
    yield from _check_folder(certificates_of(data), used, now)


def _files_of(host: RunningHost | None) -> ListenFiles | None:
    if host is None or not host.tls_certificate:
        return None
    return ListenFiles(
        certificate=Path(host.tls_certificate),
        key=Path(host.tls_key),
        client_ca=Path(host.tls_client_ca) if host.tls_client_ca else None,
    )


def _check_listener(files: ListenFiles, now: datetime, *, is_running: bool) -> Findings:
    try:
        identity = read_identity(files.certificate, files.key, Use.SERVER, now=now)
        if files.client_ca is not None:
            read_authorities(files.client_ca)
    except CertificateUnusable as error:
        stays = "; the host goes on with what it read before" if is_running else ""
        yield problem(_AREA, f"{error.message}{stays}", error.advice)
        return
    yield _lasting(f"{files.certificate}", identity, now)


def _lasting(what: str, identity: Identity, now: datetime) -> Finding:
    told = f"{what} is good until {identity.expires_at:%Y-%m-%d}"
    if identity.expires_at - now < SOON:
        return warning(_AREA, told, "put a new one in its place: the host takes it up by itself")
    return fine(_AREA, f"{told}, for {', '.join(identity.names)}")


def _check_shown(host: RunningHost, files: ListenFiles) -> Findings:
    shown = _shown_at(host.grpc)
    if shown is None:
        return
    try:
        kept = load_certificates(files.certificate)[0]
    except CertificateUnusable:
        # Told already.
        return
    if shown != kept:
        yield warning(
            _AREA,
            f"the host shows another certificate than {files.certificate} holds",
            "if that stays so for more than some seconds, its log says why",
        )


def _shown_at(address: str) -> x509.Certificate | None:
    """The certificate that a listener shows, whoever signed it; None: it shows none."""
    name, separator, port = address.rpartition(":")
    if not separator or address.startswith("unix:"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent and nothing believed: this only looks.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((name.strip("[]"), int(port)), _SECONDS) as connection,
            context.wrap_socket(connection) as secured,
        ):
            der = secured.getpeercert(binary_form=True)
    except OSError:
        return None
    return x509.load_der_x509_certificate(der) if der else None


def _check_folder(folder: Path, used: ListenFiles | None, now: datetime) -> Findings:
    """The authority for development, and what it signed."""
    try:
        found = issued_in(folder)
    except CertificateUnusable as error:
        yield problem(_AREA, error.message, "issue it again with 'runmesh certs issue'")
        return
    for each in found:
        try:
            refuse_open_key(each.key)
        except CertificateUnusable as error:
            yield problem(_AREA, error.message, error.advice)
        if each.expires_at - now < SOON and (used is None or each.certificate != used.certificate):
            yield _ending(each, now)


def _ending(issued: Issued, now: datetime) -> Finding:
    ends = "expired" if issued.expires_at <= now else "expires"
    told = f"{issued.certificate} {ends} on {issued.expires_at:%Y-%m-%d}"
    if issued.name == "ca":
        return warning(_AREA, told, "'runmesh certs init --replace', and issue all others again")
    return warning(_AREA, told, f"'runmesh certs issue {issued.name}' renews it")
