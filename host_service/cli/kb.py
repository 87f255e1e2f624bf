"""`runmesh kb`: the knowledge bases that agents may be given."""

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
    group = typer.Typer(help="List knowledge bases.", rich_markup_mode=None)
    # A group, although it has one command so far: without this Typer would leave the name out.
    group.callback()(lambda: None)
    group.command("list")(list_knowledge_bases)
    application.add_typer(group, name="kb")


def list_knowledge_bases(
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List knowledge bases by id."""
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json_list
    from host_service.cli.paging import collect

    async def work(host: "HostConnection") -> "Sequence[admin_pb2.KnowledgeBase]":
        async def page(size: int, token: str) -> "tuple[Sequence[admin_pb2.KnowledgeBase], str]":
            answer = await host.admin.ListKnowledgeBases(
                admin_pb2.ListKnowledgeBasesRequest(page_size=size, page_token=token),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
            return answer.knowledge_bases, answer.next_page_token

        return await collect(page)

    found = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json_list(found)
    else:
        _print_knowledge_bases(found)


def _print_knowledge_bases(bases: "Sequence[admin_pb2.KnowledgeBase]") -> None:
    from host_service.cli.display import print_table, yes_or_no

    rows = [
        [
            base.id,
            base.kind,
            base.embedding_model or "text only",
            yes_or_no(base.enabled),
            base.name,
        ]
        for base in bases
    ]
    print_table(
        ["KNOWLEDGE BASE", "KIND", "VECTORS BY", "ENABLED", "NAME"],
        rows,
        empty="no knowledge bases",
    )
