"""`runmesh apply`: agents, models, keys and so on from a file."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.failures import EXIT_DONE, EXIT_FAILED, tell
from host_service.cli.options import (
    AddressOption,
    CaOption,
    CertKeyOption,
    CertOption,
    DataOption,
    InsecureOption,
    JsonOption,
    Target,
    target,
)

if TYPE_CHECKING:
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import HostConnection
    from host_service.configuration import Configuration

_STANDARD_INPUT = Path("-")


def add_to(application: typer.Typer) -> None:
    """Adds the command to the application."""
    application.command()(apply)


def apply(
    file: Annotated[
        Path,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="YAML with agents:, bindings:, models: and so on; - reads a pipe.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")
    ] = False,
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> int:
    """Apply a file of agents, bindings, models, keys and so on.

    It may have agents, bindings, models, tool_servers, knowledge_bases, policies, plugins and keys.
    What is new is created, what differs is updated: all of it or nothing. Secrets come from
    environment variables that the file names, such as api_key: {env: OPENAI_API_KEY}.
    """
    from host_service.configuration import ConfigurationError

    try:
        answer = _apply(
            _read(file), dry_run=dry_run, host=target(data, address, insecure, ca, cert, cert_key)
        )
    except ConfigurationError as error:
        for fault in error.faults:
            tell(str(fault))
        return EXIT_FAILED
    if json:
        from host_service.cli.json_output import print_json_list

        print_json_list(answer.changes)
    else:
        _print_changes(answer, dry_run=dry_run)
    for warning in answer.warnings:
        tell(f"warning: {warning}")
    return EXIT_DONE


def _read(file: Path) -> "Configuration":
    from host_service.configuration import load_configuration, read_configuration

    if file != _STANDARD_INPUT:
        return load_configuration(file)
    return read_configuration(
        sys.stdin.buffer.read(), source="standard input", environment=os.environ
    )


def _apply(
    configuration: "Configuration", *, dry_run: bool, host: Target
) -> "admin_pb2.ApplyResponse":
    import grpc

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.refusals import decode
    from host_service.configuration import ConfigurationError

    advice = "is for the host itself: start it with 'runmesh up --config', or leave it out"
    faults = [
        configuration.fault(section, advice)
        for section in ("webhooks", "limits")
        if getattr(configuration, section)
    ]
    if faults:
        raise ConfigurationError(faults)
    request = configuration.request(dry_run=dry_run)

    async def work(connection: "HostConnection") -> "admin_pb2.ApplyResponse":
        try:
            return await connection.admin.Apply(
                request, metadata=connection.metadata, timeout=CALL_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            fields = decode(error).fields
            if not fields:
                raise
            # The host knows the field, the file knows its line.
            faults = [configuration.fault(path, rule) for path, rule in fields]
            raise ConfigurationError(faults) from error

    return call_host(host, work)


def _print_changes(answer: "admin_pb2.ApplyResponse", *, dry_run: bool) -> None:
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.display import print_table, words

    rows = []
    for change in answer.changes:
        kind = words(admin_pb2.ChangeKind, change.kind)
        kind = f"would be {kind}" if dry_run and kind != "unchanged" else kind
        rows.append([change.object.replace("_", " "), change.id, kind, ""])
        rows += [["", "", "", _difference(field)] for field in change.fields]
    print_table(["OBJECT", "ID", "CHANGE", ""], rows, empty="the file declares nothing")


def _difference(field: "admin_pb2.FieldChange") -> str:
    before = field.before_json if field.HasField("before_json") else "not set"
    after = field.after_json if field.HasField("after_json") else "not set"
    if before == after:
        # Two secrets that differ look alike.
        return f"{field.field}: {before} -> {after} (another)"
    return f"{field.field}: {before} -> {after}"
