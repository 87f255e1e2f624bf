"""`runmesh runs replay`: the event of a run once more, on a runner of choice."""

from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.failures import EXIT_DONE, EXIT_FAILED, CommandError, tell
from host_service.cli.options import (
    AddressOption,
    CaOption,
    CertKeyOption,
    CertOption,
    DataOption,
    InsecureOption,
    RunArgument,
    dial_address,
    target,
)

if TYPE_CHECKING:
    from runmesh.admin.v1 import explain_pb2
    from runmesh.v1 import gateway_pb2

    from host_service.cli.answers import AnswerWriter
    from host_service.cli.connection import HostConnection

_ADVICE = {
    "NOT_FOUND": "'runmesh runs list' shows the runs; one that was purged cannot be replayed",
    "UNAVAILABLE": "start a runner there, or look at what it writes",
}


def replay_run(
    run: RunArgument,
    runner: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            parser=dial_address,
            help="Call the runner that listens there, unix:/path or HOST:PORT, and no other.",
        ),
    ] = None,
    runner_id: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="RUNNER",
            help="Call this runner, plugin:author/name/runner, instead of the run's own.",
        ),
    ] = None,
    with_side_effects: Annotated[
        bool,
        typer.Option(
            "--with-side-effects",
            help="Keep what it writes and execute what it asks for, as any run does.",
        ),
    ] = False,
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
    """Run the event of a run once more.

    The stored event, in the place in its conversation where it came, for the agent as it was. The
    replay is a run of its own. Unless told otherwise it changes nothing: what it writes it alone
    sees, and actions are recorded and not executed. Ctrl-C cancels it.

    It ends with status 1 when the replay did not end well.
    """
    from runmesh.admin.v1 import explain_pb2

    from host_service.cli.answers import console_writer
    from host_service.cli.connection import call_host
    from host_service.cli.conversation import outcome
    from host_service.cli.json_output import print_json_line, to_json

    request = explain_pb2.ReplayRunRequest(
        run_id=run,
        runner_address=runner or "",
        runner_id=runner_id or "",
        with_side_effects=with_side_effects,
    )

    async def work(host: "HostConnection") -> "explain_pb2.ReplayEnd | None":
        writer = console_writer()
        stream = host.admin.ReplayRun(request, metadata=host.metadata)
        try:
            async for item in stream:
                if json:
                    print_json_line(to_json(item))
                else:
                    _show(item, writer)
                if item.HasField("ended"):
                    return item.ended
        finally:
            # Nobody wants a replay but whoever asked for it.
            stream.cancel()
        return None

    ended = call_host(target(data, address, insecure, ca, cert, cert_key), work, advice=_ADVICE)
    if ended is None:
        raise CommandError("the host ended the stream")
    failure = outcome(ended.run)
    if not json and failure is not None:
        tell(str(failure))
    return EXIT_DONE if failure is None else EXIT_FAILED


def _show(item: "explain_pb2.ReplayRunResponse", writer: "AnswerWriter") -> None:
    match item.WhichOneof("item"):
        case "accepted":
            run = item.accepted
            writer.remark(f"replay {run.run_id} of {run.replay_of} on {run.runner_id}")
        case "results":
            for result in item.results.results:
                writer.show(result)
        case "ended":
            writer.end()
            writer.remark(compared(item.ended))


def compared(end: "explain_pb2.ReplayEnd") -> str:
    """Says in one line whether a replay came out as its original did."""
    if not end.HasField("original"):
        return "the original is not kept any more"
    if not end.original.HasField("ended_at"):
        return "the original has not ended yet: there is nothing to compare with"
    was, now = _outcome(end.original), _outcome(end.run)
    if not end.differs_in:
        return f"as the original: {now}, the same text"
    told = [f"{now} instead of {was}"] if was != now else [now]
    if "text" in end.differs_in:
        told.append("another text")
    return f"not as the original: {', '.join(told)}"


def _outcome(run: "gateway_pb2.Run") -> str:
    from runmesh.v1 import gateway_pb2

    from host_service.cli.display import words

    status = words(gateway_pb2.RunStatus, run.status)
    return f"{status} ({run.failure.code})" if run.HasField("failure") else status
