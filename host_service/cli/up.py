"""`runmesh up`: run a host."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.database import BlobsOption
from host_service.cli.failures import EXIT_FAILED, CommandError, tell
from host_service.cli.options import (
    DataOption,
    advertise_address,
    data_folder,
    database_url,
    http_address,
    listen_address,
    static_runner,
)
from host_service.cli.tls_options import (
    RunnerCaOption,
    RunnerCertOption,
    RunnerKeyOption,
    TlsCertOption,
    TlsClientCaOption,
    TlsKeyOption,
    dial_defaults,
    listen_files,
)
from host_service.settings import DEFAULT_GRPC_ADDRESS, DEFAULT_HTTP_ADDRESS

if TYPE_CHECKING:
    from host_service.certificates.files import ListenFiles
    from host_service.environment_model import EnvironmentModel

_CGROUP_USES = ("auto", "on", "off")
_LOG_LEVELS = ("debug", "info", "warning", "error")


def add_to(application: typer.Typer) -> None:
    """Adds the command to the application."""
    application.command()(up)


def _cgroup_use(value: str) -> str:
    if value not in _CGROUP_USES:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(_CGROUP_USES)}")
    return value


def _log_level(value: str) -> str:
    if value not in _LOG_LEVELS:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(_LOG_LEVELS)}")
    return value


def up(
    data: DataOption = None,
    grpc: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            envvar="RUNMESH_GRPC",
            parser=listen_address,
            help="Where gRPC listens, or unix:/path; port 0 takes any free one.",
        ),
    ] = DEFAULT_GRPC_ADDRESS,
    http: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            envvar="RUNMESH_HTTP",
            parser=http_address,
            help="Where /healthz and /readyz are served; off: nowhere.",
        ),
    ] = DEFAULT_HTTP_ADDRESS,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="RUNMESH_DATABASE",
            parser=database_url,
            help="The database.  [default: a SQLite file in the data folder]",
        ),
    ] = None,
    blobs: BlobsOption = None,
    plugins: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            envvar="RUNMESH_PLUGINS",
            exists=True,
            file_okay=False,
            help="A folder of plugins, beside plugins/ in the data folder; may be repeated.",
        ),
    ] = None,
    runner: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AUTHOR/NAME=ADDRESS",
            envvar="RUNMESH_RUNNER",
            parser=static_runner,
            help="A runner that somebody else runs, at HOST:PORT, unix:/path, or dns:///NAME:PORT"
            " for a name with many addresses; may be repeated. ?ca=FILE&cert=FILE&key=FILE"
            "&name=NAME may follow.",
        ),
    ] = None,
    runner_ca: RunnerCaOption = None,
    runner_cert: RunnerCertOption = None,
    runner_key: RunnerKeyOption = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="RUNMESH_CONFIG",
            exists=True,
            dir_okay=False,
            help="A YAML file with agents, bindings and limits to have.",
        ),
    ] = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    dev_tls: Annotated[
        bool,
        typer.Option(
            "--dev-tls",
            envvar="RUNMESH_DEV_TLS",
            help="TLS with a certificate of the data folder's own authority; made when needed.",
        ),
    ] = False,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="RUNMESH_ADVERTISE",
            parser=advertise_address,
            show_default=False,
            help="Where runners on other machines reach this host.  [default: where it listens]",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            envvar="RUNMESH_INSECURE",
            help="Allow an address that others can reach, without TLS.",
        ),
    ] = False,
    cgroups: Annotated[
        str,
        typer.Option(
            metavar="USE",
            envvar="RUNMESH_CGROUPS",
            parser=_cgroup_use,
            help=f"Whether cgroups hold the limits of plugins: {', '.join(_CGROUP_USES)}.",
        ),
    ] = "auto",
    log_level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            envvar="RUNMESH_LOG_LEVEL",
            parser=_log_level,
            help=f"How much is logged: {', '.join(_LOG_LEVELS)}.",
        ),
    ] = "info",
    rehearsal_script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="RUNMESH_REHEARSAL_SCRIPT",
            exists=True,
            dir_okay=False,
            help="YAML rules by which the rehearsal model answers.",
        ),
    ] = None,
    quit_with_stdin: Annotated[bool, typer.Option("--quit-with-stdin", hidden=True)] = False,
) -> int:
    """Run a host.

    It runs until SIGTERM or Ctrl-C: then it takes nothing new, lets runs end, and leaves. The data
    folder tells the other commands where it listens.
    """
    if dev_tls and (tls_cert or tls_key):
        raise typer.BadParameter("--dev-tls makes a certificate: leave --tls-cert and --tls-key")
    from host_service.configuration import ConfigurationError
    from host_service.errors import StartupError
    from host_service.server import run_host
    from host_service.settings import Settings

    settings = Settings(
        data_folder=data_folder(data),
        grpc_address=grpc,
        http_address=http,
        database_url=database,
        blobs_url=blobs,
        plugin_folders=tuple(folder.absolute() for folder in plugins or ()),
        # The parser has made pairs of them, which Typer's annotations cannot say.
        static_runners=tuple(runner or ()),  # type: ignore[arg-type]
        config_file=config.absolute() if config else None,
        insecure=insecure,
        tls=_development_files(data_folder(data), grpc, advertise or "", tls_client_ca)
        if dev_tls
        else listen_files(tls_cert, tls_key, tls_client_ca),
        runner_tls=dial_defaults(runner_ca, runner_cert, runner_key),
        advertise_address=advertise or "",
        cgroups=cgroups,  # type: ignore[arg-type]  # its parser saw to it
        log_level=log_level,
        quit_with_stdin=quit_with_stdin,
        environment_model=_environment_model(),
        rehearsal_script=rehearsal_script.absolute() if rehearsal_script else None,
    )
    try:
        return run_host(settings)
    except StartupError as error:
        if isinstance(error.__cause__, ConfigurationError):
            for fault in error.__cause__.faults:
                tell(str(fault))
            return EXIT_FAILED
        raise CommandError(error.message, error.advice) from error


def _environment_model() -> "EnvironmentModel | None":
    import os

    from host_service.environment_model import EnvironmentModel

    try:
        return EnvironmentModel.read(os.environ)
    except ValueError as error:
        raise CommandError(str(error), "mend it, or unset it") from error


def _development_files(
    data: Path, grpc: str, advertise: str, client_ca: Path | None
) -> "ListenFiles":
    """What listeners show with `--dev-tls`, issued when there is none that will do."""
    from dataclasses import replace

    from host_service.certificates.authority import ensure_host_certificate
    from host_service.certificates.errors import CertificateUnusable
    from host_service.cli.certificate_folder import certificates_of, names_of_this_machine

    named = [address.rpartition(":")[0].strip("[]") for address in (grpc, advertise)]
    hosts = [*names_of_this_machine(), *(name for name in named if _is_one_host(name))]
    try:
        files = ensure_host_certificate(certificates_of(data), hosts)
    except CertificateUnusable as error:
        raise CommandError(error.message, error.advice) from error
    return replace(files, client_ca=client_ca.absolute() if client_ca else None)


def _is_one_host(name: str) -> bool:
    return bool(name) and not name.startswith("unix") and name not in {"0.0.0.0", "::"}  # noqa: S104
