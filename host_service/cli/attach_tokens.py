"""`runmesh runners token`, `tokens`, `revoke`: what runners attach with."""

import sys
from datetime import timedelta
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
    duration,
    plugin_id,
    target,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runmesh.admin.v1 import attach_tokens_pb2

    from host_service.cli.connection import HostConnection

_ADVICE = {"NOT_FOUND": "'runmesh runners tokens' shows the tokens"}


def create_token(
    plugin: Annotated[
        str,
        typer.Argument(
            metavar="AUTHOR/NAME", parser=plugin_id, help="The plugin that may attach with it."
        ),
    ],
    lifetime: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            parser=duration,
            help="How long it works, such as 90d or 12h.  [default: 30d]",
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
    """Make a token with which runners of one plugin attach, and print it.

    It is shown this once: the host keeps only a digest of it. A runner that has it in
    RUNMESH_ATTACH_TOKEN, and the host's address in RUNMESH_ATTACH, dials the host instead of
    listening.
    """
    from runmesh.admin.v1 import attach_tokens_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json, to_json

    request = attach_tokens_pb2.CreateAttachTokenRequest(plugin_id=plugin)
    works_for: object = lifetime
    if isinstance(works_for, timedelta):
        request.lifetime.FromTimedelta(works_for)

    async def work(host: "HostConnection") -> "attach_tokens_pb2.CreateAttachTokenResponse":
        return await host.admin.CreateAttachToken(
            request, metadata=host.metadata, timeout=CALL_SECONDS
        )

    made = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json(to_json(made))
        return
    print(made.secret)
    print(
        f"token {made.token.token_id} for {plugin} was made; the line above is shown only now",
        file=sys.stderr,
    )


def list_tokens(
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List attach tokens, newest first."""
    from runmesh.admin.v1 import attach_tokens_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json_list
    from host_service.cli.paging import collect

    async def work(host: "HostConnection") -> "Sequence[attach_tokens_pb2.AttachToken]":
        async def page(
            size: int, token: str
        ) -> "tuple[Sequence[attach_tokens_pb2.AttachToken], str]":
            answer = await host.admin.ListAttachTokens(
                attach_tokens_pb2.ListAttachTokensRequest(page_size=size, page_token=token),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
            return answer.tokens, answer.next_page_token

        return await collect(page)

    found = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json_list(found)
    else:
        _print_tokens(found)


def revoke_token(
    token: Annotated[
        str, typer.Argument(metavar="TOKEN_ID", help="The token's id, as runners tokens has it.")
    ],
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Revoke an attach token.

    It is refused from now on, and what is attached with it is cut off.
    """
    from runmesh.admin.v1 import attach_tokens_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host

    async def work(host: "HostConnection") -> "attach_tokens_pb2.AttachToken":
        answer = await host.admin.RevokeAttachToken(
            attach_tokens_pb2.RevokeAttachTokenRequest(token_id=token),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        return answer.token

    revoked = call_host(target(data, address, insecure, ca, cert, cert_key), work, advice=_ADVICE)
    print(f"token {revoked.token_id} for {revoked.plugin_id} is revoked")


def _print_tokens(tokens: "Sequence[attach_tokens_pb2.AttachToken]") -> None:
    from datetime import UTC, datetime

    from host_service.cli.display import print_table
    from host_service.cli.times import how_long_ago, moment

    now = datetime.now(UTC)
    rows = []
    for token in tokens:
        state = f"until {how_long_ago(token.expires_at, now=now)}"
        if token.HasField("revoked_at"):
            state = "revoked"
        elif moment(token.expires_at) <= now:
            state = "expired"
        used = how_long_ago(token.last_used_at, now=now) if token.HasField("last_used_at") else ""
        made = how_long_ago(token.created_at, now=now)
        rows.append([token.token_id, token.plugin_id, state, made, used or "never"])
    print_table(["TOKEN", "PLUGIN", "STATE", "MADE", "LAST USED"], rows, empty="no attach tokens")
