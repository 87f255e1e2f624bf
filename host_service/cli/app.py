"""The Typer application, and the one place where a failure becomes a line and an exit status."""

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from typer.main import get_command

from host_service.cli import (
    actions,
    agents,
    apply,
    bindings,
    certs,
    chat,
    conformance,
    dev,
    doctor,
    installing,
    kb,
    keys,
    making,
    migrate,
    models,
    packing,
    plugins,
    policies,
    purge,
    runners,
    runs,
    tools,
    transfer,
    up,
)
from host_service.cli.failures import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_READER_GONE,
    CommandError,
    tell,
)
from host_service.cli.quick_values import read_quickly


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns the exit status; prints failures as one line each."""
    _write_any_text()
    words = list(arguments) or ["--help"]
    try:
        status = _command()(args=words, prog_name="runmesh", standalone_mode=False)
        sys.stdout.flush()
    except CommandError as error:
        return _fail(str(error), error.exit_status)
    except typer.TyperException as error:
        return _fail(_usage_line(error), error.exit_code)
    except typer.Abort:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as end:
        # Typer ends the process itself for one case only: a pipe whose reader went away.
        _reader_gone()
        return EXIT_READER_GONE if end.code == 1 else EXIT_FAILED
    except UnicodeEncodeError as error:
        return _fail(f"a value has bytes that are not UTF-8 text: {error.object!r}", EXIT_FAILED)
    except Exception as error:  # noqa: BLE001 - the last resort: nobody should read a traceback
        return _fail_unexpectedly(error)
    return status if isinstance(status, int) else EXIT_DONE


def _command() -> Callable[..., object]:
    application = typer.Typer(
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        # Plain help: Rich's costs as much time as everything else that `--help` does.
        rich_markup_mode=None,
    )
    application.callback()(_runmesh)
    for group in (
        up,
        chat,
        runs,
        actions,
        runners,
        agents,
        bindings,
        models,
        tools,
        kb,
        policies,
        apply,
        keys,
        certs,
        plugins,
        making,
        dev,
        packing,
        conformance,
        installing,
        doctor,
        migrate,
        purge,
        transfer,
    ):
        group.add_to(application)
    command = get_command(application)
    read_quickly(command)
    return command


def _print_version(wanted: bool) -> None:
    if wanted:
        from host_service import __version__

        print(f"runmesh {__version__}")
        raise typer.Exit


def _runmesh(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and leave.",
        ),
    ] = False,
) -> None:
    """An agent host: a gRPC mesh in which events become agent runs.

    `runmesh chat --with-host` starts a host and talks to an agent; `runmesh up` runs a host.
    """


def _write_any_text() -> None:
    """Lets output carry any Unicode: as UTF-8 in a pipe, as well as it can on a terminal."""
    # None: closed by whoever started us. What we say has nowhere to go, and that is no failure.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def _usage_line(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "runmesh"
    # "Value error": how pydantic, which Typer asks, begins what we say ourselves.
    told = error.format_message().rstrip(".").replace(": Value error, ", ": ")
    return f"{told}: see '{path} --help'"


def _fail(message: str, exit_status: int) -> int:
    tell(message)
    return exit_status


def _fail_unexpectedly(error: Exception) -> int:
    if os.environ.get("RUNMESH_DEBUG"):
        traceback.print_exception(error)
        return EXIT_FAILED
    return _fail(
        f"something failed that should not: {type(error).__name__}: {error}: "
        "RUNMESH_DEBUG=1 shows where",
        EXIT_FAILED,
    )


def _reader_gone() -> int:
    # What is still buffered has nowhere to go: without this the interpreter complains at its end.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return EXIT_READER_GONE
