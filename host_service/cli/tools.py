"""`runmesh tools`: the tool servers whose tools agents may be given."""

from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.failures import EXIT_FAILED, CommandError, tell
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
    from runmesh.admin.v1 import tools_pb2

    from host_service.cli.connection import HostConnection

ServerArgument = Annotated[str, typer.Argument(metavar="ID", help="The tool server.")]

_DEFAULT_AGENT = "default"
# A tool may take its time, and the host ends a call that takes too much of it.
_CALL_SECONDS = 600.0


def add_to(application: typer.Typer) -> None:
    """Adds the group to the application."""
    group = typer.Typer(
        help="Add, list and remove tool servers, and call their tools.", rich_markup_mode=None
    )
    group.command("add")(add_tool_server)
    group.command("list")(list_tool_servers)
    group.command("call")(call_tool)
    group.command("remove")(remove_tool_server)
    application.add_typer(group, name="tools")


def add_tool_server(
    server_id: Annotated[
        str,
        typer.Argument(
            metavar="[ID]",
            show_default=False,
            help="What its tools' names begin with.  [default: by the command or the address]",
        ),
    ] = "",
    mcp_stdio: Annotated[
        str,
        typer.Option(
            "--mcp-stdio",
            metavar="COMMAND",
            show_default=False,
            help="The program with its arguments, which the host starts.",
        ),
    ] = "",
    mcp_http: Annotated[
        str,
        typer.Option(
            "--mcp-http",
            metavar="URL",
            show_default=False,
            help="Where it answers streamable HTTP.",
        ),
    ] = "",
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A variable for the program; its value is this command's, and kept secret.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=env:VARIABLE",
            help="A header of every request, its value taken from a variable and kept secret.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOL", help="One of its tools that may be used; may be repeated."),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="An agent that is given all of them; may be repeated.  [default: default]",
        ),
    ] = None,
    no_agent: Annotated[
        bool, typer.Option("--no-agent", help="Give them to no agent yet.")
    ] = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Add a tool server, give its tools to an agent, and show them.

    Files that the command names are taken from the folder that this is called in. Exit 1 when the
    server is added and does not answer.
    """
    if bool(mcp_stdio) == bool(mcp_http):
        raise typer.BadParameter("give --mcp-stdio or --mcp-http, and not both")
    if agent and no_agent:
        raise typer.BadParameter("give --agent or --no-agent, not both")
    from host_service.cli.connection import call_host
    from host_service.cli.tool_adding import Adding, described

    declared = described(
        server_id, command=mcp_stdio, url=mcp_http, env=env or (), headers=header or (), only=only
    )
    adding = Adding(
        declared,
        agents=[] if no_agent else (agent or [_DEFAULT_AGENT]),
        is_id_given=bool(server_id),
        may_miss_agent=not agent,
    )
    status = call_host(target(data, address, insecure, ca, cert, cert_key), adding.work)
    _show_added(status)


def _show_added(status: "tools_pb2.ToolServerStatus") -> None:
    from runmesh.admin.v1 import tools_pb2

    from host_service.cli.tool_display import print_status

    print_status(status)
    if status.state != tools_pb2.TOOL_SERVER_STATE_READY:
        raise CommandError(
            f"tool server {status.tool_server_id} is added and does not answer yet: "
            f"{status.trouble or 'it takes long'}",
            f"'runmesh tools list' says how it goes on, 'runmesh tools remove "
            f"{status.tool_server_id}' takes it away",
        )


def list_tool_servers(
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List tool servers by id: how they are, and what they offer."""
    from host_service.cli.connection import call_host
    from host_service.cli.tool_display import fetch_servers, print_servers, servers_json

    found = call_host(target(data, address, insecure, ca, cert, cert_key), fetch_servers)
    if json:
        servers_json(found)
    else:
        print_servers(found)


def call_tool(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool, server__tool.")],
    parameters: Annotated[
        str, typer.Argument(metavar="[JSON]", help="Its parameters, a JSON object.")
    ] = "{}",
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Call a tool by hand, and print what it answers.

    It is a real call, and does what the tool does. Exit 1 when the tool fails.
    """
    from runmesh.admin.v1 import tools_pb2

    from host_service.cli.connection import call_host
    from host_service.cli.json_output import print_json, to_json
    from host_service.cli.tool_display import print_answer

    async def work(host: "HostConnection") -> "tools_pb2.CallToolResponse":
        return await host.admin.CallTool(
            tools_pb2.CallToolRequest(tool_name=tool, parameters_json=parameters),
            metadata=host.metadata,
            timeout=_CALL_SECONDS,
        )

    advice = {"NOT_FOUND": "'runmesh tools list' shows the tools there are"}
    found = call_host(target(data, address, insecure, ca, cert, cert_key), work, advice=advice)
    if json:
        print_json(to_json(found.answer))
    else:
        print_answer(found.answer)
    if found.answer.is_error:
        tell(f"{tool} failed")
        raise typer.Exit(EXIT_FAILED)


def remove_tool_server(
    server_id: ServerArgument,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Remove a tool server with its secrets, and take its tools from every agent."""
    from host_service.cli.connection import call_host
    from host_service.cli.tool_adding import remove

    async def work(host: "HostConnection") -> bool:
        return await remove(host, server_id)

    if not call_host(target(data, address, insecure, ca, cert, cert_key), work):
        raise CommandError(
            f"there is no tool server {server_id}", "'runmesh tools list' shows those there are"
        )
    print(f"tool server {server_id}: removed")
