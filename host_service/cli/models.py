"""`runmesh models`: the models that agents may be given."""

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
    group = typer.Typer(help="List models.", rich_markup_mode=None)
    # A group, although it has one command so far: without this Typer would leave the name out.
    group.callback()(lambda: None)
    group.command("list")(list_models)
    application.add_typer(group, name="models")


def list_models(
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List models by id."""
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json_list
    from host_service.cli.paging import collect

    async def work(host: "HostConnection") -> "Sequence[admin_pb2.Model]":
        async def page(size: int, token: str) -> "tuple[Sequence[admin_pb2.Model], str]":
            answer = await host.admin.ListModels(
                admin_pb2.ListModelsRequest(page_size=size, page_token=token),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
            return answer.models, answer.next_page_token

        return await collect(page)

    found = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json_list(found)
    else:
        _print_models(found)


def _print_models(models: "Sequence[admin_pb2.Model]") -> None:
    from runmesh.v1 import context_pb2

    from host_service.cli.display import print_table, words, yes_or_no

    rows = []
    for model in models:
        window = str(model.context_window_tokens) if model.HasField("context_window_tokens") else ""
        key = "set" if model.has_api_key else "not set"
        kind = words(context_pb2.ModelKind, model.kind)
        enabled = yes_or_no(model.enabled)
        rows.append([model.id, kind, model.provider, model.model_name, window, key, enabled])
    print_table(
        ["MODEL", "KIND", "PROVIDER", "NAME THERE", "WINDOW", "API KEY", "ENABLED"],
        rows,
        empty="no models",
    )
