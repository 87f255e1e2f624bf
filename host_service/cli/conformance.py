"""`runmesh conformance`: plays the host against a runner, and says what is wrong with it."""

import json as json_module
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from host_service.certificates.files import DialFiles
from host_service.cli.failures import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, CommandError, visible
from host_service.cli.options import (
    DataOption,
    data_folder,
    dial_address,
    is_loopback,
    listen_address,
)
from host_service.cli.tls_options import (
    TlsCertOption,
    TlsClientCaOption,
    TlsKeyOption,
    listen_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from host_service.certificates.files import ListenFiles
    from host_service.conformance import HostListening, Options, Outcome, Report

_COLOURS = {"ok": typer.colors.GREEN, "failed": typer.colors.RED, "skipped": typer.colors.YELLOW}
_NAME_WIDTH = 28
_ALL_ADDRESSES = frozenset({"0.0.0.0", "::"})  # noqa: S104 - refused, not listened on


def add_to(application: typer.Typer) -> None:
    """Adds the command to the application."""
    application.command()(conformance)


def _json_object(value: str) -> dict[str, Any]:
    try:
        parsed = json_module.loads(value)
    except ValueError as error:
        raise typer.BadParameter(f"{value!r} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise typer.BadParameter(f"{value!r} is not a JSON object")
    return parsed


def conformance(
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="ADDRESS",
            parser=dial_address,
            help="Where the runner listens: HOST:PORT or unix:/path.",
        ),
    ] = None,
    plugin: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Start the plugin in this folder, as a host does, and end it."
        ),
    ] = None,
    runner: Annotated[
        str, typer.Option(metavar="NAME", help="Which of its runners.  [default: the first]")
    ] = "",
    expect: Annotated[
        str,
        typer.Option(metavar="AUTHOR/NAME", help="The plugin id that the process must name."),
    ] = "",
    config: Annotated[
        Any,
        typer.Option(
            metavar="JSON",
            parser=_json_object,
            help="Configuration of its runs, over its manifest's defaults.",
        ),
    ] = None,
    slow_config: Annotated[
        Any,
        typer.Option(
            metavar="JSON",
            parser=_json_object,
            help="Configuration with which a run lasts half a minute: to test cancelling.",
        ),
    ] = None,
    echo: Annotated[
        bool, typer.Option("--echo", help="It answers each text with the same text.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help="Make this check, or group; may be repeated."),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help="Leave this check, or group, out; may be repeated."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML to this file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    list_checks: Annotated[
        bool, typer.Option("--list", help="List the checks, and make none.")
    ] = False,
    attach: Annotated[
        bool,
        typer.Option("--attach", help="Do not dial: let the runner attach, at ADDRESS if given."),
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Dial another machine without TLS.")
    ] = False,
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Dial ADDRESS with TLS; who signed the runner's certificate, or 'system'.",
        ),
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The certificate to show to a runner that asks for one."),
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key.")] = None,
    host_api_listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            parser=listen_address,
            help="Where the runner calls the kit, and the port after it; 0: any two free ones."
            "  [default: on loopback]",
            show_default=False,
        ),
    ] = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    data: DataOption = None,
) -> int:
    """Play the host against a runner, and say what is wrong.

    The runner may be in any language. One line a check; for one that failed, what was expected,
    what came, and what to do. Exit 1 if a check failed, 2 if the runner cannot be reached.
    """
    # What it needs would slow down every other command.
    from host_service.conformance import Options

    options = Options(
        expected_plugin=expect,
        runner=runner,
        config=config or {},
        slow_config=slow_config,
        echo=True if echo else None,
        only=tuple(only or ()),
        skip=tuple(skip or ()),
        tls=_tls(ca, cert, key),
        listening=_listening(
            host_api_listen, listen_files(tls_cert, tls_key, tls_client_ca), insecure=insecure
        ),
    )
    _check_names(options)
    if list_checks:
        return _list(options, json=json)
    if (address is None) == (plugin is None) and not (attach and plugin is None):
        raise CommandError(
            "conformance needs a runner: give ADDRESS, or --plugin DIR", exit_status=EXIT_USAGE
        )
    if address is not None and ca is None and not insecure and not is_loopback(address):
        raise CommandError(
            f"{address} is another machine, and would be dialled without TLS",
            "add --ca FILE, test the runner where it is, or add --insecure on a network that you "
            "trust",
            exit_status=EXIT_USAGE,
        )
    on_outcome = (lambda _: None) if json else _print
    chosen = _Chosen(address, plugin, attach, data_folder(data))
    report = _examine(chosen, options, on_outcome)
    if junit is not None:
        _write_junit(report, junit)
    if json:
        print(json_module.dumps(asdict(report), ensure_ascii=False, indent=2))
    else:
        _print_summary(report)
    return EXIT_DONE if report.passed else EXIT_FAILED


def _listening(
    address: str | None, tls: "ListenFiles | None", *, insecure: bool
) -> "HostListening":
    """Where the kit's hosts listen, under the rules of any host."""
    from host_service.conformance import HostListening
    from host_service.errors import StartupError
    from host_service.listening import probe_grpc, split_address

    option = "--host-api-listen"
    if address is None:
        return HostListening()
    if address.startswith("unix:"):
        raise CommandError(f"{option} takes HOST:PORT", exit_status=EXIT_USAGE)
    try:
        host, port = split_address(address, option)
        if host in _ALL_ADDRESSES:
            raise CommandError(
                f"{option} {host} is no address that a runner could be told",
                "name the address of this machine that the runner reaches",
                exit_status=EXIT_USAGE,
            )
        probe_grpc(address, insecure=insecure or tls is not None, option=option)
    except StartupError as error:
        raise CommandError(error.message, error.advice, exit_status=EXIT_USAGE) from error
    return HostListening(host=host, port=port, tls=tls)


def _tls(ca: Path | None, cert: Path | None, key: Path | None) -> DialFiles | None:
    if (cert is None) != (key is None):
        raise CommandError("--cert and --key go together", exit_status=EXIT_USAGE)
    if cert is not None and ca is None:
        raise CommandError(
            "--cert is shown over TLS", "give --ca FILE, or --ca system", exit_status=EXIT_USAGE
        )
    return DialFiles(ca=ca, certificate=cert, key=key) if ca is not None else None


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Which runner is checked, and how it is reached."""

    address: str | None
    plugin: Path | None
    attach: bool
    data: Path


def _examine(
    chosen: _Chosen, options: "Options", on_outcome: "Callable[[Outcome], None]"
) -> "Report":
    import asyncio

    from host_service.certificates.errors import CertificateUnusable
    from host_service.conformance import Unreachable
    from host_service.supervisor import ManifestInvalid, SocketPathTooLong

    try:
        return asyncio.run(_checking(chosen, options, on_outcome))
    except Unreachable as error:
        raise CommandError(
            str(error), "start the runner first, or name its folder with --plugin", exit_status=2
        ) from error
    except CertificateUnusable as error:
        raise CommandError(str(error), exit_status=EXIT_USAGE) from error
    except (ManifestInvalid, SocketPathTooLong) as error:
        raise CommandError(f"{chosen.plugin}: {error}", exit_status=EXIT_USAGE) from error


def _checking(
    chosen: _Chosen, options: "Options", on_outcome: "Callable[[Outcome], None]"
) -> "Coroutine[Any, Any, Report]":
    from host_service import conformance as kit
    from host_service.environments import EnvironmentShelf
    from host_service.environments.interpreters import interpreters_of

    if chosen.plugin is not None:
        check = kit.check_attached_plugin if chosen.attach else kit.check_plugin
        find_interpreter = interpreters_of(EnvironmentShelf(chosen.data))
        return check(chosen.plugin, options, on_outcome, find_interpreter=find_interpreter)
    if chosen.attach:
        listen = chosen.address or "127.0.0.1:0"
        return kit.check_attached(listen, options, on_outcome, on_listening=_tell_how_to_attach)
    return kit.check_address(chosen.address or "", options, on_outcome)


def _tell_how_to_attach(environment: "Mapping[str, str]") -> None:
    words = " ".join(f"{name}={value}" for name, value in environment.items())
    typer.echo(f"waiting for a runner that is started with {words}", err=True)


def _check_names(options: "Options") -> None:
    from host_service.conformance import CHECKS

    unknown = options.unmatched(check.name for check in CHECKS)
    if unknown:
        raise CommandError(
            f"no check is named {unknown[0]!r}",
            "'runmesh conformance --list' shows them all",
            exit_status=EXIT_USAGE,
        )


def _list(options: "Options", *, json: bool) -> int:
    from host_service.conformance import CHECKS

    chosen = [check for check in CHECKS if options.wants(check.name)]
    if json:
        listed = [{"name": each.name, "asks": each.asks, "source": each.source} for each in chosen]
        print(json_module.dumps(listed, ensure_ascii=False, indent=2))
        return EXIT_DONE
    for check in chosen:
        note = " (with --plugin)" if check.needs_process else ""
        typer.echo(f"{check.name:{_NAME_WIDTH}} {check.asks}{note}")
    return EXIT_DONE


def _print(outcome: "Outcome") -> None:
    word = typer.style(f"{outcome.verdict:8}", fg=_COLOURS[outcome.verdict])
    remark = outcome.remark or (outcome.asks if outcome.verdict == "failed" else "")
    typer.echo(f"{word} {outcome.name:{_NAME_WIDTH}} {visible(remark)}".rstrip())
    if outcome.verdict != "failed":
        return
    for title, text in (
        ("expected", outcome.expected),
        ("got", outcome.got),
        ("do", outcome.advice),
        ("rule", outcome.source),
    ):
        typer.echo(f"         {title:9} {visible(text)}".replace("\n", "\n" + " " * 19))


def _print_summary(report: "Report") -> None:
    if report.output:
        typer.echo("\nthe last that the process wrote:")
        typer.echo(visible(report.output.rstrip()))
    counts = ", ".join(
        f"{report.count(verdict)} {verdict}"  # type: ignore[arg-type]  # a StrEnum is its text
        for verdict in _COLOURS
    )
    if report.others:
        typer.echo(
            f"\nnot checked, since --runner chooses one: {visible(', '.join(report.others))}"
        )
    name = report.runner_id or report.target
    made_with = f" ({visible(report.sdk)})" if report.sdk else ""
    typer.echo(f"\n{visible(name)}{made_with}: {counts}, in {report.seconds:.1f} s")


def _write_junit(report: "Report", path: Path) -> None:
    from host_service.conformance import to_junit

    try:
        path.write_bytes(to_junit(report))
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
