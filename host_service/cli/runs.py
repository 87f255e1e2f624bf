"""`runmesh runs`: look at runs, follow them, cancel them."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.explain import explain_run
from host_service.cli.failures import EXIT_DONE, EXIT_FAILED, CommandError, tell
from host_service.cli.options import (
    AddressOption,
    CaOption,
    CertKeyOption,
    CertOption,
    DataOption,
    InsecureOption,
    JsonOption,
    RunArgument,
    positive_number,
    target,
    whole_number,
)
from host_service.cli.replay import replay_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runmesh.v1 import gateway_pb2, result_pb2

    from host_service.cli.connection import HostConnection

_REPLAY_SECONDS = 2.0
_STATUS_PREFIX = "RUN_STATUS_"
_STATUSES = ("accepted", "queued", "running", "completed", "failed", "cancelled", "timed_out")
_ADVICE = {"NOT_FOUND": "'runmesh runs list' shows the runs"}


def add_to(application: typer.Typer) -> None:
    """Adds the group to the application."""
    group = typer.Typer(
        help="List, show, watch, explain, replay and cancel runs.", rich_markup_mode=None
    )
    group.command("list")(list_runs)
    group.command("show")(show_run)
    group.command("watch")(watch_run)
    group.command("explain")(explain_run)
    group.command("replay")(replay_run)
    group.command("cancel")(cancel_run)
    application.add_typer(group, name="runs")


def _status(value: str) -> str:
    name = value.upper().replace(" ", "_").replace("-", "_").removeprefix(_STATUS_PREFIX)
    if name.lower() not in _STATUSES:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(_STATUSES)}")
    return _STATUS_PREFIX + name


def list_runs(
    agent: Annotated[
        str | None, typer.Option(metavar="ID", help="Only runs of this agent.")
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Only runs of this conversation_key, as --json has it."),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATUS",
            parser=_status,
            help=f"Only runs with this status; may be repeated: {', '.join(_STATUSES)}.",
        ),
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
    """List runs, newest first."""
    from runmesh.v1 import gateway_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json_list
    from host_service.cli.paging import collect

    statuses = [gateway_pb2.RunStatus.Value(name) for name in status or ()]

    async def work(host: "HostConnection") -> "Sequence[gateway_pb2.Run]":
        async def page(size: int, token: str) -> "tuple[Sequence[gateway_pb2.Run], str]":
            request = gateway_pb2.ListRunsRequest(
                agent_id=agent or "",
                conversation_key=conversation or "",
                statuses=statuses,
                page_size=size,
                page_token=token,
            )
            answer = await host.gateway.ListRuns(
                request, metadata=host.metadata, timeout=CALL_SECONDS
            )
            return answer.runs, answer.next_page_token

        return await collect(page, limit=limit)

    found = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json_list(found)
    else:
        from host_service.cli.run_display import print_runs

        print_runs(found)


def show_run(
    run: RunArgument,
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Show what became of a run.

    Its life, its results in short, its warnings, and why it failed.
    """
    from runmesh.v1 import gateway_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.json_output import print_json, to_json
    from host_service.cli.run_display import print_run

    async def work(
        host: "HostConnection",
    ) -> "tuple[gateway_pb2.Run, list[result_pb2.RunResult]]":
        request = gateway_pb2.GetRunRequest(run_id=run)
        answer = await host.gateway.GetRun(request, metadata=host.metadata, timeout=CALL_SECONDS)
        return answer.run, await _results_so_far(host, answer.run)

    found, results = call_host(
        target(data, address, insecure, ca, cert, cert_key), work, advice=_ADVICE
    )
    if json:
        print_json({**to_json(found), "results": [to_json(result) for result in results]})
    else:
        print_run(found, results)


async def _results_so_far(
    host: "HostConnection", run: "gateway_pb2.Run"
) -> "list[result_pb2.RunResult]":
    """What a run has said up to now; a run that is still running is not waited for."""
    import asyncio

    from host_service.cli.following import last_number, watch

    results: list[result_pb2.RunResult] = []

    async def read() -> None:
        async for item in watch(host, run.run_id, 0):
            results.extend(item.results.results)
            if not run.HasField("ended_at") and last_number(item) >= run.last_sequence:
                return

    if run.last_sequence == 0:
        return results
    # The number a run under way has reached may belong to text that is still being made.
    patience_seconds = None if run.HasField("ended_at") else _REPLAY_SECONDS
    with suppress(TimeoutError):
        await asyncio.wait_for(read(), patience_seconds)
    return results


def watch_run(
    run: RunArgument,
    after: Annotated[
        int,
        typer.Option(metavar="N", parser=whole_number, help="Only what comes after this number."),
    ] = 0,
    json: Annotated[
        bool, typer.Option("--json", help="Print every item of the stream as a line of JSON.")
    ] = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> int:
    """Follow a run to its end.

    From its beginning, or after a number; a run that has ended is replayed.

    It ends with status 1 when the run did not end well.
    """
    from host_service.cli.answers import console_writer
    from host_service.cli.connection import call_host
    from host_service.cli.conversation import outcome
    from host_service.cli.following import watch
    from host_service.cli.json_output import print_json_line, to_json

    async def work(host: "HostConnection") -> "gateway_pb2.Run | None":
        writer = console_writer()
        async for item in watch(host, run, after):
            if json:
                print_json_line(to_json(item))
            else:
                for result in item.results.results:
                    writer.show(result)
            if item.HasField("ended"):
                writer.end()
                return item.ended
        return None

    ended = call_host(target(data, address, insecure, ca, cert, cert_key), work, advice=_ADVICE)
    failure = outcome(ended) if ended is not None else CommandError("the host ended the stream")
    if failure is None:
        return EXIT_DONE
    if not json:
        tell(str(failure))
    return EXIT_FAILED


def cancel_run(
    run: RunArgument,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")] = "",
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Cancel a run and wait until it has ended.

    A run that has ended already stays as it is.
    """
    from runmesh.v1 import gateway_pb2

    from host_service.cli.connection import CANCEL_SECONDS, call_host
    from host_service.cli.display import words

    async def work(host: "HostConnection") -> "gateway_pb2.Run":
        request = gateway_pb2.CancelRunRequest(run_id=run, reason=reason)
        answer = await host.gateway.CancelRun(
            request, metadata=host.metadata, timeout=CANCEL_SECONDS
        )
        return answer.run

    ended = call_host(target(data, address, insecure, ca, cert, cert_key), work, advice=_ADVICE)
    status = words(gateway_pb2.RunStatus, ended.status)
    if ended.status == gateway_pb2.RUN_STATUS_CANCELLED:
        print(f"run {ended.run_id} was cancelled")
    else:
        print(f"run {ended.run_id} had ended before: {status}")
