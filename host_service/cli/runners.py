"""`runmesh runners`: the runners of the mesh and the processes that serve them."""

from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli import instances
from host_service.cli.attach_tokens import create_token, list_tokens, revoke_token
from host_service.cli.listed import Listed
from host_service.cli.options import (
    AddressOption,
    CaOption,
    CertKeyOption,
    CertOption,
    DataOption,
    InsecureOption,
    JsonOption,
    target,
)

if TYPE_CHECKING:
    from runmesh.v1 import discovery_pb2

    from host_service.cli.connection import HostConnection


def add_to(application: typer.Typer) -> None:
    """Adds the group to the application."""
    group = typer.Typer(
        help="List, restart and drain runners, and let runners attach.", rich_markup_mode=None
    )
    group.command("list")(list_runners)
    instances.add_to(group)
    group.command("token")(create_token)
    group.command("tokens")(list_tokens)
    group.command("revoke")(revoke_token)
    application.add_typer(group, name="runners")


def list_runners(
    only: Annotated[
        Listed | None,
        typer.Option(help="List only these. With --json: runners, when nothing is said."),
    ] = None,
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List runners and the instances that serve them.

    Manifests that were left out are listed with what is wrong with them.
    """
    from runmesh.v1 import discovery_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json
    from host_service.cli.runner_display import listing, print_mesh

    async def work(host: "HostConnection") -> "discovery_pb2.ListRunnersResponse":
        return await host.discovery.ListRunners(
            discovery_pb2.ListRunnersRequest(), metadata=host.metadata, timeout=CALL_SECONDS
        )

    mesh = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json(listing(mesh, only or Listed.RUNNERS))
    else:
        print_mesh(mesh, only)
