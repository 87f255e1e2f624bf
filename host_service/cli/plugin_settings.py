"""`runmesh plugins enable, disable, settings`: what operators set for plugins."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from host_service.cli.failures import CommandError
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

PluginArgument = Annotated[str, typer.Argument(metavar="AUTHOR/NAME", help="The plugin.")]


def add_to(group: typer.Typer) -> None:
    """Adds the commands to the group of plugins."""
    group.command("enable")(enable)
    group.command("disable")(disable)
    group.command("settings")(settings)


def enable(
    plugin: PluginArgument,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Let a plugin run that was disabled."""
    _switch(plugin, target(data, address, insecure, ca, cert, cert_key), enabled=True)
    print(f"{plugin} is enabled")


def disable(
    plugin: PluginArgument,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """End a plugin's process, and give its instances elsewhere no runs, until it is enabled.

    Its settings stay.
    """
    _switch(plugin, target(data, address, insecure, ca, cert, cert_key), enabled=False)
    print(f"{plugin} is disabled")


def settings(
    plugin: PluginArgument,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Set one: JSON such as 3 or [1, 2], or else a text. May be repeated.",
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="NAME=VARIABLE",
            help="Set a secret one to what an environment variable holds. May be repeated.",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="NAME", help="Set one no longer. May be repeated."),
    ] = None,
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Show or change the settings of a plugin, which its handshakes hand over.

    A change replaces the plugin's process; runs under way end on the one before. The values of
    secret settings are shown to nobody.
    """
    host = target(data, address, insecure, ca, cert, cert_key)
    values, secrets = _pairs(given, "--set"), _secrets(secret)

    def change(message: "admin_pb2.PluginSettings") -> None:
        _change(message, values, secrets, remove or ())

    changes = values or secrets or remove
    found = _apply(plugin, host, change) if changes else _read(plugin, host)
    if json:
        from host_service.cli.json_output import print_json, to_json

        print_json(to_json(found))
    else:
        _print(found)


def _switch(plugin: str, host: Target, *, enabled: bool) -> None:
    def change(message: "admin_pb2.PluginSettings") -> None:
        message.enabled = enabled

    _apply(plugin, host, change)


def _read(plugin: str, host: Target) -> "admin_pb2.PluginSettings":
    from host_service.cli.connection import call_host

    async def work(connection: "HostConnection") -> "admin_pb2.PluginSettings":
        return await _stored(connection, plugin)

    return call_host(host, work)


def _apply(
    plugin: str, host: Target, change: "Callable[[admin_pb2.PluginSettings], None]"
) -> "admin_pb2.PluginSettings":
    """Changes what is set for a plugin, and returns what is set now."""
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host

    async def work(connection: "HostConnection") -> "admin_pb2.PluginSettings":
        message = await _stored(connection, plugin)
        change(message)
        await connection.admin.Apply(
            admin_pb2.ApplyRequest(plugins=[message]),
            metadata=connection.metadata,
            timeout=CALL_SECONDS,
        )
        return await _stored(connection, plugin)

    return call_host(host, work)


async def _stored(connection: "HostConnection", plugin: str) -> "admin_pb2.PluginSettings":
    import grpc
    from runmesh.admin.v1 import admin_pb2

    from host_service.cli.connection import CALL_SECONDS

    try:
        answer = await connection.admin.GetPluginSettings(
            admin_pb2.GetPluginSettingsRequest(plugin_id=plugin),
            metadata=connection.metadata,
            timeout=CALL_SECONDS,
        )
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        return admin_pb2.PluginSettings(plugin_id=plugin, enabled=True, settings_json="{}")
    return answer.settings


def _change(
    message: "admin_pb2.PluginSettings",
    values: dict[str, str],
    secrets: dict[str, str],
    removed: Sequence[str],
) -> None:
    from host_service.validation.json_exact import read_exactly, write_exactly

    members: dict[str, Any] = read_exactly(message.settings_json)
    kept = [each for each in message.secrets if each.name not in {*removed, *secrets, *values}]
    for name in (*removed, *secrets):
        members.pop(name, None)
    members |= {name: _value(text) for name, text in values.items()}
    message.settings_json = write_exactly(members)
    del message.secrets[:]
    message.secrets.extend(kept)
    for name, text in secrets.items():
        message.secrets.add(name=name, value=text)


def _value(text: str) -> Any:
    from host_service.validation.json_exact import read_exactly
    from host_service.validation.json_text import find_json_fault

    return text if find_json_fault(text) is not None else read_exactly(text)


def _pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    pairs = {}
    for each in given or ():
        name, separator, value = each.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"{each!r} is not NAME=VALUE", param_hint=option)
        pairs[name] = value
    return pairs


def _secrets(given: Sequence[str] | None) -> dict[str, str]:
    secrets = {}
    for name, variable in _pairs(given, "--secret").items():
        if variable not in os.environ:
            raise CommandError(
                f"there is no environment variable {variable} to take {name} from",
                f"set it, or name another: --secret {name}=VARIABLE",
            )
        secrets[name] = os.environ[variable]
    return secrets


def _print(found: "admin_pb2.PluginSettings") -> None:
    from host_service.cli.display import print_facts, print_table, yes_or_no
    from host_service.validation.json_exact import read_exactly, write_exactly

    print_facts([("plugin", found.plugin_id), ("enabled", yes_or_no(found.enabled))])
    members = read_exactly(found.settings_json)
    rows = [[name, write_exactly(value)] for name, value in members.items()]
    rows += [[each.name, "(secret)"] for each in found.secrets]
    print_table(["SETTING", "VALUE"], rows, empty="nothing is set", after_blank_line=True)
