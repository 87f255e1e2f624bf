"""`runmesh keys`: API keys, and the operator key of this machine's host."""

import sys
from datetime import timedelta
from enum import StrEnum
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
    data_folder,
    duration,
    target,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import HostConnection

_ADVICE = {"NOT_FOUND": "'runmesh keys list' shows the keys"}


class Role(StrEnum):
    """What a key may do."""

    INGRESS = "ingress"
    VIEWER = "viewer"
    OPERATOR = "operator"


def add_to(application: typer.Typer) -> None:
    """Adds the group to the application."""
    group = typer.Typer(help="Make, list and revoke API keys.", rich_markup_mode=None)
    group.command("create")(create_key)
    group.command("list")(list_keys)
    group.command("revoke")(revoke_key)
    group.command("show")(show_key)
    application.add_typer(group, name="keys")


def create_key(
    name: Annotated[str, typer.Option(metavar="TEXT", help="A name to know it by.")],
    role: Annotated[
        Role,
        typer.Option(help="ingress: send events; viewer: read; operator: everything."),
    ],
    workspace: Annotated[
        str | None, typer.Option(metavar="ID", help="The only workspace it may touch.")
    ] = None,
    bot: Annotated[
        str | None, typer.Option(metavar="ID", help="The only bot it may touch.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            parser=duration,
            help="How long it works, such as 90d or 12h.  [default: until it is revoked]",
        ),
    ] = None,
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Make an API key and print it.

    It is shown this once: the host keeps only a digest of it.
    """
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json, to_json

    request = admin_pb2.CreateApiKeyRequest(
        name=name,
        role=admin_pb2.Role.Value(f"ROLE_{role.name}"),
        workspace_id=workspace,
        bot_id=bot,
    )
    lifetime: object = expires
    if isinstance(lifetime, timedelta):
        request.lifetime.FromTimedelta(lifetime)

    async def work(host: "HostConnection") -> "admin_pb2.CreateApiKeyResponse":
        return await host.admin.CreateApiKey(request, metadata=host.metadata, timeout=CALL_SECONDS)

    made = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json(to_json(made))
        return
    print(made.secret)
    print(
        f"key {made.key.key_id} ({role.value}) was made; the line above is shown only now",
        file=sys.stderr,
    )


def list_keys(
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List API keys, newest first."""
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json_list
    from host_service.cli.paging import collect

    async def work(host: "HostConnection") -> "Sequence[admin_pb2.ApiKey]":
        async def page(size: int, token: str) -> "tuple[Sequence[admin_pb2.ApiKey], str]":
            answer = await host.admin.ListApiKeys(
                admin_pb2.ListApiKeysRequest(page_size=size, page_token=token),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
            return answer.keys, answer.next_page_token

        return await collect(page)

    found = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json_list(found)
    else:
        _print_keys(found)


def revoke_key(
    key: Annotated[
        str, typer.Argument(metavar="KEY_ID", help="The key's id, as keys list has it.")
    ],
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Revoke an API key.

    It is refused from now on.
    """
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host

    async def work(host: "HostConnection") -> "admin_pb2.ApiKey":
        answer = await host.admin.RevokeApiKey(
            admin_pb2.RevokeApiKeyRequest(key_id=key),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        return answer.key

    revoked = call_host(target(data, address, insecure, ca, cert, cert_key), work, advice=_ADVICE)
    print(f"key {revoked.key_id} ({revoked.name}) is revoked")


def show_key(data: DataOption = None) -> None:
    """Print the operator key of this data folder.

    For other clients: grpcurl -plaintext -H "authorization: Bearer $(runmesh keys show)" ...
    """
    from host_service.cli.running_host import operator_key

    print(operator_key(data_folder(data)))


def _print_keys(keys: "Sequence[admin_pb2.ApiKey]") -> None:
    from datetime import UTC, datetime

    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.display import print_table, words
    from host_service.cli.times import how_long_ago, moment

    now = datetime.now(UTC)
    rows = []
    for key in keys:
        role = words(admin_pb2.Role, key.role)
        limits = [
            key.workspace_id and f"workspace {key.workspace_id}",
            key.bot_id and f"bot {key.bot_id}",
        ]
        state = "works"
        if key.HasField("revoked_at"):
            state = "revoked"
        elif key.HasField("expires_at"):
            expired = moment(key.expires_at) <= now
            state = "expired" if expired else f"until {how_long_ago(key.expires_at, now=now)}"
        made = how_long_ago(key.created_at, now=now)
        rows.append([key.key_id, role, state, made, ", ".join(filter(None, limits)), key.name])
    print_table(["KEY", "ROLE", "STATE", "MADE", "LIMITED TO", "NAME"], rows, empty="no keys")
