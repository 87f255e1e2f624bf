"""`runmesh agents`: what is there to answer events."""

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
    group = typer.Typer(help="List agents.", rich_markup_mode=None)
    # A group, although it has one command so far: without this Typer would leave the name out.
    group.callback()(lambda: None)
    group.command("list")(list_agents)
    application.add_typer(group, name="agents")


def list_agents(
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List agents by id."""
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json_list
    from host_service.cli.paging import collect

    async def work(host: "HostConnection") -> "Sequence[admin_pb2.Agent]":
        async def page(size: int, token: str) -> "tuple[Sequence[admin_pb2.Agent], str]":
            answer = await host.admin.ListAgents(
                admin_pb2.ListAgentsRequest(page_size=size, page_token=token),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
            return answer.agents, answer.next_page_token

        return await collect(page)

    found = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json_list(found)
    else:
        _print_agents(found)


def _print_agents(agents: "Sequence[admin_pb2.Agent]") -> None:
    from host_service.cli.display import print_table, yes_or_no
    from host_service.cli.times import span_of

    rows = []
    for agent in agents:
        seconds = agent.timeout.ToTimedelta().total_seconds()
        timeout = "" if not agent.HasField("timeout") else span_of(seconds) if seconds else "none"
        enabled = yes_or_no(agent.enabled or not agent.HasField("enabled"))
        rows.append([agent.id, agent.runner_id, enabled, timeout, str(agent.revision)])
    print_table(["AGENT", "RUNNER", "ENABLED", "TIMEOUT", "REVISION"], rows, empty="no agents")
