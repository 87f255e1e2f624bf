"""`runmesh doctor`: looks at everything that a host needs, and says what to do."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.database import BlobsOption, DatabaseOption, blobs_of, url_of
from host_service.cli.failures import EXIT_DONE, EXIT_FAILED, CommandError, visible
from host_service.cli.options import DataOption, data_folder, http_address, listen_address
from host_service.cli.tls_options import (
    TlsCertOption,
    TlsClientCaOption,
    TlsKeyOption,
    listen_files,
)
from host_service.settings import DEFAULT_GRPC_ADDRESS, DEFAULT_HTTP_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from host_service.cli.findings import Finding
    from host_service.cli.running_host import RunningHost

_COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "problem": typer.colors.RED}

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add_to(application: typer.Typer) -> None:
    """Adds the command to the application."""
    application.command()(doctor)


def doctor(
    data: DataOption = None,
    database: DatabaseOption = None,
    blobs: BlobsOption = None,
    plugins: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            envvar="RUNMESH_PLUGINS",
            help="A folder of plugins, as for 'runmesh up'; may be repeated.",
        ),
    ] = None,
    grpc: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            envvar="RUNMESH_GRPC",
            parser=listen_address,
            help="Where a host is to listen.",
        ),
    ] = DEFAULT_GRPC_ADDRESS,
    http: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            envvar="RUNMESH_HTTP",
            parser=http_address,
            help="Where it is to listen for HTTP; off: nowhere.",
        ),
    ] = DEFAULT_HTTP_ADDRESS,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    json: JsonOption = False,
) -> int:
    """Look at all that a host needs, and say what to do.

    The data folder, the host, the database, the bytes of artifacts, the secret key, clocks,
    plugins and their environments, models, certificates, sockets, limits and ports. Nothing is
    changed, no model is called, and a host may run meanwhile. Exit 1 on a problem.
    """
    from host_service.cli import (
        certificate_checks,
        content_checks,
        environment_checks,
        machine_checks,
        model_checks,
    )

    folder = data_folder(data)
    files = listen_files(tls_cert, tls_key, tls_client_ca)

    def look() -> "Iterator[Finding]":
        yield from machine_checks.check_data_folder(folder)
        yield from machine_checks.check_host(folder)
        if database is not None or folder.exists():
            yield from content_checks.check_database(
                url_of(database, folder), blobs_of(blobs, database, folder), folder / "secret.key"
            )
        yield from content_checks.check_plugins(folder, plugins or ())
        yield from environment_checks.check_environments(folder, plugins or ())
        yield from model_checks.check_models(folder, _running_on(folder))
        yield from certificate_checks.check_certificates(folder, files, _running_on(folder))
        yield from machine_checks.check_sockets()
        yield from machine_checks.check_limits(_running_on(folder))
        for address, option in ((grpc, "--grpc"), (http, "--http")):
            yield from machine_checks.check_port(address, option, folder, has_tls=files is not None)

    return _print_json(look()) if json else _print(look())


def _running_on(folder: Path) -> "RunningHost | None":
    from host_service.cli.running_host import host_holds, read_host_file

    try:
        # A file that was left behind says where a host was.
        return read_host_file(folder) if host_holds(folder) else None
    except CommandError:
        # Told already, by who looks at the host.
        return None


def _print(findings: "Iterator[Finding]") -> int:
    problems = 0
    for finding in findings:
        problems += finding.level == "problem"
        level = typer.style(f"{finding.level:8}", fg=_COLOURS[finding.level])
        told = visible(finding.told + (f": {finding.advice}" if finding.advice else ""))
        # Line by line, because a look at a large database takes its time.
        typer.echo(f"{level} {finding.area:12} {told}")
    return EXIT_FAILED if problems else EXIT_DONE


def _print_json(findings: "Iterator[Finding]") -> int:
    found = list(findings)
    print(json.dumps([asdict(finding) for finding in found], ensure_ascii=False, indent=2))
    has_problem = any(finding.level == "problem" for finding in found)
    return EXIT_FAILED if has_problem else EXIT_DONE
