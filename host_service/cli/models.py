"""`runmesh models`: the models that agents may be given."""

import os
import sys
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
    JsonOption,
    target,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import HostConnection

ModelArgument = Annotated[str, typer.Argument(metavar="ID", help="The model.")]

_KINDS = ("chat", "embedding", "rerank")
_ABILITIES = ("vision", "tool_calling", "reasoning", "json")
_LONGEST_KEY_BYTES = 8192
# A model that thinks first may take its time, and it is asked twice.
_TEST_SECONDS = 600.0


def add_to(application: typer.Typer) -> None:
    """Adds the group to the application."""
    group = typer.Typer(help="Add, list, test and remove models.", rich_markup_mode=None)
    group.command("add")(add_model)
    group.command("list")(list_models)
    group.command("test")(try_model)
    group.command("remove")(remove_model)
    application.add_typer(group, name="models")


def _one_of(words: tuple[str, ...], value: str) -> str:
    if value not in words:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(words)}")
    return value


def _kind(value: str) -> str:
    return _one_of(_KINDS, value)


def _ability(value: str) -> str:
    return _one_of(_ABILITIES, value)


def add_model(
    model_id: Annotated[
        str, typer.Argument(metavar="ID", help="What agents and calls name it by.")
    ],
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the provider calls it.  [default: the id]"),
    ] = None,
    provider: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Who serves it; rehearsal: the host itself, with no language model.",
        ),
    ] = "openai",
    kind: Annotated[
        str, typer.Option(metavar="KIND", parser=_kind, help=f"One of {', '.join(_KINDS)}.")
    ] = "chat",
    base_url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            show_default=False,
            help="Where the OpenAI protocol is spoken.  [default: the provider's own place]",
        ),
    ] = "",
    context_window: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", min=1, help="How many tokens fit into one call."),
    ] = None,
    ability: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ABILITY",
            parser=_ability,
            help=f"What it can do beside text, one of {', '.join(_ABILITIES)}; may be repeated.",
        ),
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="VARIABLE", help="Take its API key from this variable, and store it."),
    ] = None,
    api_key_stdin: Annotated[
        bool,
        typer.Option("--api-key-stdin", help="Take its API key from standard input, and store it."),
    ] = False,
    max_concurrency: Annotated[
        int, typer.Option(metavar="N", min=0, help="Calls at once at most; 0: any number.")
    ] = 0,
    requests_per_minute: Annotated[
        int, typer.Option(metavar="N", min=0, help="Calls a minute at most; 0: any number.")
    ] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An argument of every call, its value JSON or else a text; may be repeated.",
        ),
    ] = None,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Add a model, or say anew what one is.

    The key it is called with is stored encrypted. Without --api-key-env and --api-key-stdin the one
    that is stored stays.
    """
    if api_key_env and api_key_stdin:
        raise typer.BadParameter("give --api-key-env or --api-key-stdin, not both")
    from runmesh.admin.v1 import admin_pb2
    from runmesh.v1 import context_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host

    declared = admin_pb2.Model(
        id=model_id,
        kind=context_pb2.ModelKind.Value(f"MODEL_KIND_{kind.upper()}"),
        provider=provider,
        model_name=model or model_id,
        base_url=base_url,
        abilities=[
            context_pb2.ModelAbility.Value(f"MODEL_ABILITY_{each.upper()}")
            for each in ability or ()
        ],
        context_window_tokens=context_window,
        max_concurrency=max_concurrency,
        requests_per_minute=requests_per_minute,
        options_json=_options(option or ()),
        api_key=_api_key(api_key_env, from_stdin=api_key_stdin),
    )

    async def work(host: "HostConnection") -> "admin_pb2.ApplyResponse":
        return await host.admin.Apply(
            admin_pb2.ApplyRequest(models=[declared]),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )

    answer = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    _print_added(model_id, answer)


def _options(given: "Sequence[str]") -> str:
    from host_service.validation.json_exact import read_exactly, write_exactly
    from host_service.validation.json_text import find_json_fault

    options = {}
    for each in given:
        name, separator, text = each.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"{each!r} is not NAME=VALUE", param_hint="--option")
        options[name] = text if find_json_fault(text) is not None else read_exactly(text)
    return write_exactly(options)


def _api_key(variable: str | None, *, from_stdin: bool) -> str | None:
    """The key that is given, or None: never an argument, which others on the machine can read."""
    if variable is not None:
        key = os.environ.get(variable, "").strip()
        if not key:
            raise CommandError(
                f"there is no environment variable {variable} to take the key from", "set it"
            )
        return key
    if not from_stdin:
        return None
    if sys.stdin is None:
        raise CommandError("standard input is closed", "send the key there")
    if sys.stdin.isatty():
        key = str(typer.prompt("API key", hide_input=True)).strip()
    else:
        key = sys.stdin.read(_LONGEST_KEY_BYTES + 1).strip()
    if not key:
        raise CommandError("standard input has no key", "send the key there")
    return key


def _print_added(model_id: str, answer: "admin_pb2.ApplyResponse") -> None:
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.display import words

    for change in answer.changes:
        done = words(admin_pb2.ChangeKind, change.kind)
        what = "uses it from now on" if change.object == "agent" else done
        print(f"{change.object} {change.id}: {what}")
    for warning in answer.warnings:
        tell(f"warning: {warning}")
    print(f"'runmesh models test {model_id}' tries it")


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
    from host_service.cli.connection import call_host
    from host_service.cli.json_output import print_json_list
    from host_service.cli.model_display import fetch_models, print_models

    found = call_host(target(data, address, insecure, ca, cert, cert_key), fetch_models)
    if json:
        print_json_list(found)
    else:
        print_models(found)


def try_model(
    model_id: ModelArgument,
    text: Annotated[
        str, typer.Option(metavar="TEXT", help="What it is asked.", show_default=False)
    ] = "",
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Call a model as a run would, and say how it answered.

    It is a real call, and may cost what a call costs. Exit 1 when it fails.
    """
    from runmesh.admin.v1 import models_pb2

    from host_service.cli.connection import call_host
    from host_service.cli.json_output import print_json, to_json
    from host_service.cli.model_display import print_trial

    async def work(host: "HostConnection") -> "models_pb2.TestModelResponse":
        return await host.admin.TestModel(
            models_pb2.TestModelRequest(model_id=model_id, text=text),
            metadata=host.metadata,
            timeout=_TEST_SECONDS,
        )

    answer = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    if json:
        print_json(to_json(answer))
    else:
        print_trial(model_id, answer)


def remove_model(
    model_id: ModelArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also while agents or knowledge bases select it.")
    ] = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> int:
    """Remove a model and its key.

    It is left where an agent or a knowledge base selects it, unless --force is given: they go
    without it then.
    """
    import grpc
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.refusals import decode

    async def work(host: "HostConnection") -> bool:
        try:
            answer = await host.admin.DeleteModel(
                admin_pb2.DeleteModelRequest(model_id=model_id, unless_selected=not force),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.ABORTED:
                raise
            advice = "choose another there first, or give --force"
            raise CommandError(decode(error).message, advice) from error
        return bool(answer.existed)

    if call_host(target(data, address, insecure, ca, cert, cert_key), work):
        print(f"model {model_id}: removed")
        return EXIT_DONE
    tell(f"there is no model {model_id!r} in the catalogue: 'runmesh models list' shows where each")
    return EXIT_FAILED
