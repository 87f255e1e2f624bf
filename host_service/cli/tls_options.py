"""Options that say what TLS is made of."""

from pathlib import Path
from typing import Annotated

import typer

from host_service.certificates.files import SYSTEM, DialDefaults, ListenFiles

TlsCertOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        envvar="RUNMESH_TLS_CERT",
        parser=Path,
        help="The certificate that TCP listeners show, with its chain; PEM.",
    ),
]
TlsKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        metavar="FILE",
        envvar="RUNMESH_TLS_KEY",
        parser=Path,
        help="Its key, which nobody else may read.",
    ),
]
TlsClientCaOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-client-ca",
        metavar="FILE",
        envvar="RUNMESH_TLS_CLIENT_CA",
        parser=Path,
        help="Who signs clients' certificates: then each client must show one.",
    ),
]
RunnerCaOption = Annotated[
    Path | None,
    typer.Option(
        "--runner-ca",
        metavar="FILE",
        envvar="RUNMESH_RUNNER_CA",
        parser=Path,
        help="Dial runners on TCP with TLS; who signs their certificates, or 'system'.",
    ),
]
RunnerCertOption = Annotated[
    Path | None,
    typer.Option(
        "--runner-cert",
        metavar="FILE",
        envvar="RUNMESH_RUNNER_CERT",
        parser=Path,
        help="What is shown to runners that ask for a certificate.  [default: --tls-cert]",
        show_default=False,
    ),
]
RunnerKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--runner-key",
        metavar="FILE",
        envvar="RUNMESH_RUNNER_KEY",
        parser=Path,
        help="Its key.",
    ),
]


def listen_files(
    certificate: Path | None, key: Path | None, client_ca: Path | None
) -> ListenFiles | None:
    """What listeners show; None: there is no TLS."""
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise typer.BadParameter("--tls-cert and --tls-key go together")
    return ListenFiles(
        certificate=certificate.absolute(),
        key=key.absolute(),
        client_ca=client_ca.absolute() if client_ca else None,
    )


def dial_defaults(ca: Path | None, certificate: Path | None, key: Path | None) -> DialDefaults:
    """What connections to runners trust and show."""
    if (certificate is None) != (key is None):
        raise typer.BadParameter("--runner-cert and --runner-key go together")
    return DialDefaults(ca=ca, certificate=certificate, key=key)


def check_query(address: str) -> str:
    """Checks what follows the `?` of an address, and returns what stands before it."""
    try:
        # Whom it trusts may come from another option.
        return DialDefaults(ca=SYSTEM).split(address)[0]
    except ValueError as error:
        raise typer.BadParameter(f"{address!r}: {error}") from error
