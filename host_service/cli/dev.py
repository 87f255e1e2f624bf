"""`runmesh dev`: work on a plugin, attached to a host that runs."""

from pathlib import Path
from typing import Annotated

import typer

from host_service.cli.failures import EXIT_DONE, CommandError
from host_service.cli.options import (
    AddressOption,
    CaOption,
    CertKeyOption,
    CertOption,
    DataOption,
    InsecureOption,
    Target,
    target,
)

_ADVICE = {"UNAUTHORIZED": "attaching a plugin takes an operator's key"}


def add_to(application: typer.Typer) -> None:
    """Adds the command to the application."""
    application.command()(dev)


def dev(
    plugin: Annotated[
        Path,
        typer.Option(
            "--plugin", metavar="DIR", exists=True, file_okay=False, help="The plugin's folder."
        ),
    ] = Path(),
    build: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="Run this before each start, instead of what run.build in the manifest says.",
        ),
    ] = "",
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Files whose changes mean nothing, as in .rmpkgignore; may be repeated.",
        ),
    ] = None,
    with_host: Annotated[
        bool,
        typer.Option("--with-host", help="Start a host if none runs, and stop it at the end."),
    ] = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> int:
    """Run a plugin you work on, again after each change.

    It attaches the plugin in this folder to a host that runs. While it is attached it takes the
    runs of the plugin's other instances. Its log is shown. A run that is under way when a file is
    saved ends with an error that says so. What cannot be started shows why, and the next change is
    waited for. Ctrl-C ends it, and the others take over again.
    """
    if with_host and address:
        raise typer.BadParameter("has no meaning with --with-host", param_hint="--address")
    folder = plugin.absolute()
    if not (folder / "manifest.yaml").is_file():
        raise CommandError(
            f"there is no manifest.yaml in {folder}",
            "run it in a plugin's folder; 'runmesh init NAME' makes one",
        )
    host = target(data, address, insecure, ca, cert, cert_key)
    if not with_host:
        return _develop(host, folder, build, ignore or [])
    from host_service.cli.child_host import host_for_chat

    with host_for_chat(host.data_folder) as child:
        if child is not None:
            child.wait_until_ready()
        return _develop(host, folder, build, ignore or [])


def _develop(host: Target, folder: Path, build: str, ignore: list[str]) -> int:
    import asyncio

    import grpc

    from host_service.cli.connection import connect, failure, locate
    from host_service.cli.interrupts import Interrupts
    from host_service.cli.plugin_screen import Screen
    from host_service.development import HostSide, SourceFiles, Workbench, Workplace, way_to_host
    from host_service.supervisor import SocketPathTooLong

    endpoint = locate(host)
    way = way_to_host(endpoint.address, tls=endpoint.tls, insecure=host.insecure)

    async def work() -> None:
        interrupts = Interrupts()
        with interrupts.installed(), Screen().showing() as screen:
            try:
                async with connect(endpoint) as connection:
                    workbench = Workbench(
                        workplace=Workplace(
                            folder,
                            data_folder=host.data_folder,
                            way_to_host=way,
                            build_command=build,
                        ),
                        files=SourceFiles(folder, left_out=ignore),
                        host=HostSide(connection),
                        say=screen.say,
                    )
                    await workbench.work()
            except asyncio.CancelledError:
                if interrupts.received is None and not screen.is_gone:
                    raise

    try:
        asyncio.run(work())
    except grpc.aio.AioRpcError as error:
        raise failure(error, host, _ADVICE) from error
    except SocketPathTooLong as error:
        raise CommandError(str(error)) from error
    return EXIT_DONE
