"""`runmesh tools`: the tool servers whose tools agents may be given."""

from typing import TYPE_CHECKING

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
    group = typer.Typer(help="List tool servers.", rich_markup_mode=None)
    # A group, although it has one command so far: without this Typer would leave the name out.
    group.callback()(lambda: None)
    group.command("list")(list_tool_servers)
    application.add_typer(group, name="tools")


def list_tool_servers(
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List tool servers by id."""
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json_list
    from host_service.cli.paging import collect

    async def work(host: "HostConnection") -> "Sequence[admin_pb2.ToolServer]":
        async def page(size: int, token: str) -> "tuple[Sequence[admin_pb2.ToolServer], str]":
            answer = await host.admin.ListToolServers(
                admin_pb2.ListToolServersRequest(page_size=size, page_token=token),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
            return answer.tool_servers, answer.next_page_token

        return await collect(page)

    found = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json_list(found)
    else:
        _print_tool_servers(found)


def _print_tool_servers(servers: "Sequence[admin_pb2.ToolServer]") -> None:
    from host_service.cli.display import print_table, yes_or_no

    rows = []
    for server in servers:
        command = " ".join([server.command.command, *server.command.args])
        tools = "all"
        if server.HasField("enabled_tools"):
            tools = ", ".join(server.enabled_tools.names) or "none"
        rows.append([server.id, server.http.url or command, tools, yes_or_no(server.enabled)])
    print_table(["SERVER", "WHERE", "TOOLS", "ENABLED"], rows, empty="no tool servers")
