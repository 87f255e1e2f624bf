"""`runmesh policies`: what workspaces allow, and what they keep."""

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
    group = typer.Typer(help="List policies.", rich_markup_mode=None)
    # A group, although it has one command so far: without this Typer would leave the name out.
    group.callback()(lambda: None)
    group.command("list")(list_policies)
    application.add_typer(group, name="policies")


def list_policies(
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List policies by workspace."""
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json_list
    from host_service.cli.paging import collect

    async def work(host: "HostConnection") -> "Sequence[admin_pb2.Policy]":
        async def page(size: int, token: str) -> "tuple[Sequence[admin_pb2.Policy], str]":
            answer = await host.admin.ListPolicies(
                admin_pb2.ListPoliciesRequest(page_size=size, page_token=token),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
            return answer.policies, answer.next_page_token

        return await collect(page)

    found = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json_list(found)
    else:
        _print_policies(found)


def _print_policies(policies: "Sequence[admin_pb2.Policy]") -> None:
    from host_service.cli.display import print_table, yes_or_no
    from host_service.cli.times import span_of

    rows = []
    for policy in policies:
        age = policy.retention.max_age.ToTimedelta().total_seconds()
        kept = span_of(age) if policy.retention.HasField("max_age") else "for ever"
        limits = ", ".join(_limited(policy.allowance)) or "nothing"
        closer = str(len(policy.bots) + len(policy.actors))
        rows.append([policy.workspace_id, limits, closer, kept, yes_or_no(policy.enabled)])
    print_table(
        ["WORKSPACE", "LIMITS", "BOTS AND ACTORS", "KEPT", "ENABLED"], rows, empty="no policies"
    )


def _limited(allowance: "admin_pb2.Allowance") -> "list[str]":
    """What an allowance says something of."""
    limited = [
        field.name.replace("_", " ")
        for field, _ in allowance.ListFields()
        if field.message_type is not None
    ]
    if not allowance.history_beyond_conversation:
        limited.append("history")
    return limited
