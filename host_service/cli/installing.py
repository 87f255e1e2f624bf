"""`runmesh install`, `upgrade`, `remove` and `list`: the plugins of a data folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.options import DataOption, data_folder
from host_service.cli.package_work import (
    HostOnData,
    ShownProgress,
    build_environment,
    collect_environments,
    failing_plainly,
    see_it_run,
)

if TYPE_CHECKING:
    from host_service.packages.installing import Installer, Outcome
    from host_service.packages.version_folders import Installed

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="A package's file, its http or https address, or a plugin's folder."
    ),
]
DigestOption = Annotated[
    str | None,
    typer.Option(
        "--sha256",
        metavar="DIGEST",
        help="What the package's SHA-256 must be; an address may end in #sha256=DIGEST instead.",
    ),
]


def add_to(application: typer.Typer) -> None:
    """Adds the commands to the application."""
    application.command()(install)
    application.command()(upgrade)
    application.command()(remove)
    application.command("list")(list_plugins)


def install(source: SourceArgument, sha256: DigestOption = None, data: DataOption = None) -> None:
    """Install a plugin.

    Its package is checked, its environment built, and it is run for a moment before anything is
    put in. A host that runs on the data folder starts it at once. What fails leaves nothing behind.
    """
    with failing_plainly(), ShownProgress() as progress:
        outcome = _installer(data_folder(data), progress).install(source, sha256=sha256)
        collect_environments(data_folder(data))
    print(f"{outcome.plugin_id} {outcome.version} is installed{_remarks(outcome)}")


def upgrade(source: SourceArgument, sha256: DigestOption = None, data: DataOption = None) -> None:
    """Install another version of a plugin.

    The one that is there runs until the new one is ready, and goes on if anything fails.
    """
    with failing_plainly(), ShownProgress() as progress:
        outcome = _installer(data_folder(data), progress).upgrade(source, sha256=sha256)
        collect_environments(data_folder(data))
    if not outcome.is_news:
        print(f"{outcome.plugin_id} {outcome.version} is this package already")
        return
    print(
        f"{outcome.plugin_id} is {outcome.version} now, after {outcome.before}{_remarks(outcome)}"
    )


def remove(
    plugin: Annotated[str, typer.Argument(metavar="AUTHOR/NAME", help="The plugin's id.")],
    data: DataOption = None,
) -> None:
    """Stop a plugin and delete its files.

    What it keeps in a home of its own, and the environment it shares, stay.
    """
    with failing_plainly(), ShownProgress() as progress:
        installed = _installer(data_folder(data), progress).remove(plugin)
        collect_environments(data_folder(data))
    print(f"{installed.plugin_id} {installed.version} is removed")


def list_plugins(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    data: DataOption = None,
) -> None:
    """List the plugins in the data folder.

    'runmesh runners list' shows how they are doing.
    """
    from host_service.cli.display import print_table
    from host_service.cli.json_output import print_json
    from host_service.packages.version_folders import VersionFolders

    found = VersionFolders(data_folder(data)).all()
    if json:
        print_json([_facts(each) for each in found])
        return
    print_table(
        ["PLUGIN", "VERSION", "SIGNED BY", "FROM"],
        [
            [
                each.plugin_id,
                each.version,
                each.record.signed_by if each.record else "",
                each.record.source if each.record else f"by hand: {each.place}",
            ]
            for each in found
        ],
        empty="no plugins are installed",
    )


def _installer(data: Path, progress: ShownProgress) -> "Installer":
    from host_service.packages.installing import Installer
    from host_service.packages.policy import PackagePolicy
    from host_service.packages.version_folders import VersionFolders

    return Installer(
        folders=VersionFolders(data),
        policy=PackagePolicy.read(data),
        build_environment=lambda folder: build_environment(folder, data, progress),
        try_plugin=lambda plugin: see_it_run(plugin, data),
        mesh=HostOnData(data),
        progress=progress,
    )


def _remarks(outcome: "Outcome") -> str:
    signed = f", signed by {outcome.signed_by}" if outcome.signed_by else ""
    serving = {
        None: "; no host is running here",
        True: ", and serves",
        False: "; the host here does not run it: is it disabled?",
    }
    return f"{signed}{serving[outcome.serves]}"


def _facts(installed: "Installed") -> dict[str, object]:
    record = installed.record
    return {
        "plugin_id": installed.plugin_id,
        "version": installed.version,
        "place": str(installed.place),
        "sha256": record.sha256 if record else "",
        "source": record.source if record else "",
        "signed_by": record.signed_by if record else "",
        "installed_at": record.installed_at if record else "",
    }
