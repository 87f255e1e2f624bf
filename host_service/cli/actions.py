"""`runmesh actions`: what runs asked to have done, and the people who decide it."""

from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.failures import EXIT_DONE, EXIT_FAILED
from host_service.cli.options import (
    AddressOption,
    CaOption,
    CertKeyOption,
    CertOption,
    DataOption,
    InsecureOption,
    JsonOption,
    positive_number,
    target,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runmesh.admin.v1 import actions_pb2

    from host_service.cli.connection import HostConnection
    from host_service.cli.options import Target

_STATUS_PREFIX = "ACTION_STATUS_"
_STATUSES = ("awaiting_approval", "executing", "recorded", "executed", "failed", "rejected")
_ADVICE = {
    "NOT_FOUND": "'runmesh actions list' shows the actions",
    "CONFLICT": "'runmesh actions show' says how it stands",
}
# An execution has a time of its own, of up to five minutes.
_DECISION_SECONDS = 330.0

ActionArgument = Annotated[
    str, typer.Argument(metavar="ACTION_ID", help="The action's id, as actions list has it.")
]

ReasonOption = Annotated[
    str, typer.Option(metavar="TEXT", help="Why, for whoever looks at it later.")
]


def add_to(application: typer.Typer) -> None:
    """Adds the group to the application."""
    group = typer.Typer(
        help="List, show, approve and reject actions that runs asked for.", rich_markup_mode=None
    )
    group.command("list")(list_actions)
    group.command("show")(show_action)
    group.command("approve")(approve_action)
    group.command("reject")(reject_action)
    application.add_typer(group, name="actions")


def _status(value: str) -> str:
    name = value.upper().replace(" ", "_").replace("-", "_").removeprefix(_STATUS_PREFIX)
    if name.lower() not in _STATUSES:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(_STATUSES)}")
    return _STATUS_PREFIX + name


def list_actions(
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            parser=_status,
            help=f"Only actions that stand there: {', '.join(_STATUSES)}.",
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="ID", help="Only actions of this agent.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="RUN_ID", help="Only actions of this run.")
    ] = None,
    limit: Annotated[
        int,
        typer.Option(metavar="N", parser=positive_number, help="At most so many, the newest."),
    ] = 50,
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List actions, newest first.

    runmesh actions list --status awaiting_approval shows what somebody must decide.
    """
    from runmesh.admin.v1 import actions_pb2
    from runmesh.v1 import host_api_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json_list
    from host_service.cli.paging import collect

    async def work(host: "HostConnection") -> "Sequence[actions_pb2.Action]":
        async def page(size: int, token: str) -> "tuple[Sequence[actions_pb2.Action], str]":
            request = actions_pb2.ListActionsRequest(
                status=host_api_pb2.ActionStatus.Value(status or f"{_STATUS_PREFIX}UNSPECIFIED"),
                agent_id=agent or "",
                run_id=run or "",
                page_size=size,
                page_token=token,
            )
            answer = await host.admin.ListActions(
                request, metadata=host.metadata, timeout=CALL_SECONDS
            )
            return answer.actions, answer.next_page_token

        return await collect(page, limit=limit)

    found = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json_list(found)
    else:
        _print_actions(found)


def show_action(
    action: ActionArgument,
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Show one action with its target, payload and result."""
    from runmesh.admin.v1 import actions_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host

    async def work(host: "HostConnection") -> "actions_pb2.Action":
        request = actions_pb2.GetActionRequest(action_id=action)
        answer = await host.admin.GetAction(request, metadata=host.metadata, timeout=CALL_SECONDS)
        return answer.action

    _print_action(
        call_host(target(data, address, insecure, ca, cert, cert_key), work, advice=_ADVICE),
        json=json,
    )


def approve_action(
    action: ActionArgument,
    reason: ReasonOption = "",
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> int:
    """Approve an action: it is executed now, and its outcome is shown.

    Exits with 1 if the execution failed. An approval holds even if you leave before its outcome.
    """
    from runmesh.admin.v1 import actions_pb2
    from runmesh.v1 import host_api_pb2

    request = actions_pb2.DecideActionRequest(
        action_id=action, decision=actions_pb2.ACTION_DECISION_APPROVE, reason=reason
    )
    decided = _decide(request, target(data, address, insecure, ca, cert, cert_key))
    _print_action(decided, json=json)
    failed = decided.status == host_api_pb2.ACTION_STATUS_FAILED
    return EXIT_FAILED if failed else EXIT_DONE


def reject_action(
    action: ActionArgument,
    reason: ReasonOption = "",
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Reject an action: it is never executed."""
    from runmesh.admin.v1 import actions_pb2

    request = actions_pb2.DecideActionRequest(
        action_id=action, decision=actions_pb2.ACTION_DECISION_REJECT, reason=reason
    )
    _print_action(_decide(request, target(data, address, insecure, ca, cert, cert_key)), json=json)


def _decide(request: "actions_pb2.DecideActionRequest", host: "Target") -> "actions_pb2.Action":
    from host_service.cli.connection import call_host

    async def work(connection: "HostConnection") -> "actions_pb2.Action":
        answer = await connection.admin.DecideAction(
            request, metadata=connection.metadata, timeout=_DECISION_SECONDS
        )
        return answer.action

    return call_host(host, work, advice=_ADVICE)


def _print_actions(actions: "Sequence[actions_pb2.Action]") -> None:
    from datetime import UTC, datetime

    from runmesh.v1 import host_api_pb2

    from host_service.cli.display import print_table, words
    from host_service.cli.times import how_long_ago

    now = datetime.now(UTC)
    rows = [
        [
            action.action_id,
            words(host_api_pb2.ActionStatus, action.status),
            how_long_ago(action.requested_at, now=now),
            action.agent_id,
            action.action,
            ", ".join(action.missing),
        ]
        for action in actions
    ]
    columns = ["ACTION", "STATUS", "ASKED", "AGENT", "WHAT", "MISSING"]
    print_table(columns, rows, empty="no actions")


def _print_action(action: "actions_pb2.Action", *, json: bool) -> None:
    from runmesh.v1 import host_api_pb2, result_pb2

    from host_service.cli.display import print_facts, words
    from host_service.cli.json_output import print_json, to_json
    from host_service.cli.times import local_time

    if json:
        print_json(to_json(action))
        return
    hint = words(result_pb2.ApprovalHint, action.approval_hint) if action.approval_hint else ""
    print_facts(
        [
            ("action", action.action_id),
            ("status", words(host_api_pb2.ActionStatus, action.status)),
            ("missing", ", ".join(action.missing)),
            ("what", action.action),
            ("target", action.target_json),
            ("payload", action.payload_json),
            ("key", action.idempotency_key),
            ("runner's view on approval", hint),
            ("run", action.run_id),
            ("agent", action.agent_id),
            ("runner", action.runner_id),
            ("workspace", action.workspace_id),
            ("asked", local_time(action.requested_at)),
            ("decided", local_time(action.decided_at) if action.HasField("decided_at") else ""),
            ("began", local_time(action.started_at) if action.HasField("started_at") else ""),
            ("ended", local_time(action.ended_at) if action.HasField("ended_at") else ""),
            ("decided by", action.decided_by),
            ("result", action.result_json),
            ("detail", action.detail),
        ]
    )
