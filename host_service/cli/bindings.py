"""`runmesh bindings`: which events reach which agent."""

from typing import TYPE_CHECKING, Annotated

import typer

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
    from collections.abc import Sequence

    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import HostConnection


def add_to(application: typer.Typer) -> None:
    """Adds the group to the application."""
    group = typer.Typer(help="List bindings.", rich_markup_mode=None)
    # A group, although it has one command so far: without this Typer would leave the name out.
    group.callback()(lambda: None)
    group.command("list")(list_bindings)
    application.add_typer(group, name="bindings")


def list_bindings(
    agent: Annotated[
        str | None, typer.Option(metavar="ID", help="Only bindings of this agent.")
    ] = None,
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List bindings by id."""
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json_list
    from host_service.cli.paging import collect

    async def work(host: "HostConnection") -> "Sequence[admin_pb2.Binding]":
        async def page(size: int, token: str) -> "tuple[Sequence[admin_pb2.Binding], str]":
            request = admin_pb2.ListBindingsRequest(
                agent_id=agent or "", page_size=size, page_token=token
            )
            answer = await host.admin.ListBindings(
                request, metadata=host.metadata, timeout=CALL_SECONDS
            )
            return answer.bindings, answer.next_page_token

        return await collect(page)

    found = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json_list(found)
    else:
        _print_bindings(found)


def _print_bindings(bindings: "Sequence[admin_pb2.Binding]") -> None:
    from host_service.cli.display import print_table, yes_or_no

    rows = []
    for binding in bindings:
        scope = ", ".join(
            f"{field.name.removesuffix('_id')} {value}"
            for field, value in binding.scope.ListFields()
        )
        filters = ", ".join(f"{filter_.field} = {filter_.equals}" for filter_ in binding.filters)
        enabled = yes_or_no(binding.enabled or not binding.HasField("enabled"))
        events = ", ".join(binding.event_types)
        rows.append([binding.id, binding.agent_id, events, scope or "everywhere", filters, enabled])
    print_table(
        ["BINDING", "AGENT", "EVENTS", "SCOPE", "FILTERS", "ENABLED"], rows, empty="no bindings"
    )
