"""`runmesh certs`: a private authority for development, and what it signs."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.certificate_folder import certificates_of, names_of_this_machine
from host_service.cli.failures import CommandError
from host_service.cli.options import DataOption, JsonOption, data_folder, positive_number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from host_service.certificates.authority import Issued

_LONGEST_DAYS = 398


def add_to(application: typer.Typer) -> None:
    """Adds the group to the application."""
    group = typer.Typer(
        help="Make and show certificates for development.",
        rich_markup_mode=None,
    )
    group.command("init")(init_authority)
    group.command("issue")(issue_certificate)
    group.command("show")(show_certificates)
    application.add_typer(group, name="certs")


def init_authority(
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Make another where there is one; what that one signed is void."
        ),
    ] = False,
    data: DataOption = None,
) -> None:
    """Make an authority in certs/ of the data folder.

    Whoever has its key can be any host, runner or client: in production use an authority that keeps
    its key elsewhere.
    """
    from host_service.certificates.authority import Authority
    from host_service.certificates.errors import CertificateUnusable

    folder = certificates_of(data_folder(data))
    if Authority.exists(folder) and not replace:
        raise CommandError(
            f"there is an authority in {folder}",
            "issue certificates with 'runmesh certs issue NAME', or give --replace",
        )
    try:
        authority = Authority.create(folder)
    except CertificateUnusable as error:
        raise CommandError(error.message, error.advice) from error
    print(authority.certificate_file)


def issue_certificate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as host or runner.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A DNS name or IP address that it is for; may be repeated.  "
            "[default: as before, or this machine]",
            show_default=False,
        ),
    ] = None,
    client: Annotated[
        bool, typer.Option("--client", help="For clients only: no server can show it.")
    ] = False,
    days: Annotated[
        int,
        typer.Option(metavar="N", parser=positive_number, help="How long it is good for."),
    ] = 90,
    data: DataOption = None,
) -> None:
    """Issue a certificate, for a host or runner (as server and client), or for a client.

    Again under the same name, it replaces the old one, for the same hosts unless others are given:
    a running host or runner takes it up by itself.
    """
    from host_service.certificates.authority import Authority
    from host_service.certificates.errors import CertificateUnusable

    if days > _LONGEST_DAYS:
        raise typer.BadParameter(f"--days is at most {_LONGEST_DAYS}, got {days}")
    folder = certificates_of(data_folder(data))
    for_clients_only = client
    hosts: Sequence[str] = host or ()
    if not hosts and (before := _issued_before(folder, name)) is not None:
        hosts, for_clients_only = before.names, client or before.is_for_clients_only
    if not (hosts or for_clients_only):
        hosts = names_of_this_machine()
    try:
        issued = Authority.open(folder).issue(
            name, hosts=hosts, for_clients_only=for_clients_only, days=days
        )
    except CertificateUnusable as error:
        raise CommandError(error.message, error.advice) from error
    print(issued.certificate)
    print(issued.key)


def show_certificates(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this one.  [default: all]")
    ] = None,
    json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Show what there is in certs/ of the data folder, and until when it is good."""
    from host_service.certificates.authority import issued_in
    from host_service.certificates.errors import CertificateUnusable

    folder = certificates_of(data_folder(data))
    try:
        found = [each for each in issued_in(folder) if name in {None, each.name}]
    except CertificateUnusable as error:
        raise CommandError(error.message, error.advice) from error
    if name is not None and not found:
        raise CommandError(
            f"there is no certificate {name!r} in {folder}", "'runmesh certs show' lists them"
        )
    if json:
        _print_json(found)
    else:
        _print(found, folder)


def _issued_before(folder: "Path", name: str) -> "Issued | None":
    from host_service.certificates.authority import find_issued
    from host_service.certificates.errors import CertificateUnusable

    try:
        return find_issued(folder, name)
    except CertificateUnusable:
        # Whatever is wrong there, it is about to be replaced.
        return None


def _print(found: "list[Issued]", folder: "Path") -> None:
    from host_service.cli.display import print_table

    now = datetime.now(UTC)
    rows = [
        [each.name, _use(each), _until(each, now), ", ".join(each.names), str(each.certificate)]
        for each in found
    ]
    print_table(
        ["NAME", "FOR", "GOOD UNTIL", "HOSTS", "FILE"],
        rows,
        empty=f"no certificates in {folder}: make an authority with 'runmesh certs init'",
    )


def _print_json(found: "list[Issued]") -> None:
    told = [
        {
            "name": each.name,
            "for": _use(each),
            "certificate": str(each.certificate),
            "key": str(each.key),
            "hosts": list(each.names),
            "expires_at": each.expires_at.isoformat(),
        }
        for each in found
    ]
    print(json.dumps(told, ensure_ascii=False, indent=2))


def _use(issued: "Issued") -> str:
    if issued.name == "ca":
        return "authority"
    return "clients" if issued.is_for_clients_only else "servers and clients"


def _until(issued: "Issued", now: datetime) -> str:
    days = (issued.expires_at - now).days
    left = f"{days} days" if issued.expires_at > now else "expired"
    return f"{issued.expires_at:%Y-%m-%d} ({left})"
