"""`runmesh plugins`: what is set for plugins, and the environments that Python plugins run in."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli import plugin_settings
from host_service.cli.failures import EXIT_DONE, EXIT_FAILED, CommandError, tell
from host_service.cli.options import DataOption, data_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_service.environments import KeptEnvironment
    from host_service.environments.needs import Need

_MEBIBYTE = 1024 * 1024


def add_to(application: typer.Typer) -> None:
    """Adds the group to the application."""
    group = typer.Typer(
        help="Set up plugins, and build their environments.",
        rich_markup_mode=None,
    )
    plugin_settings.add_to(group)
    group.command("build")(build_environments)
    group.command("environments")(list_environments)
    group.command("clean")(clean)
    application.add_typer(group, name="plugins")


def _seconds(value: str | float) -> float:
    from host_service.durations import parse_duration

    try:
        # A default comes as the number that it is.
        return value if isinstance(value, float) else parse_duration(value).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


MoreOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugins",
        metavar="DIR",
        envvar="RUNMESH_PLUGINS",
        exists=True,
        file_okay=False,
        help="A folder of plugins, as for 'runmesh up'; may be repeated.",
    ),
]


def build_environments(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FOLDER]...",
            exists=True,
            file_okay=False,
            help="Plugin folders.  [default: all plugins of the data folder and of --plugins]",
        ),
    ] = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Use only wheels that are here, no registry."),
    ] = False,
    plugins: MoreOption = None,
    data: DataOption = None,
) -> int:
    """Build the environments that Python plugins need to be started.

    A plugin says what it needs in requirements.txt or pyproject.toml; the host's own runmesh-sdk,
    and wheels in the plugin's folder wheels/, need no registry. Built with uv when it is there,
    else with venv and pip. Environments that are there are left as they are.
    """
    from host_service.environments import EnvironmentShelf
    from host_service.environments.needs import needs_of, plugin_places

    folder = data_folder(data)
    bases = [each.absolute() for each in folders or plugin_places(folder, plugins or ())]
    needs = needs_of(EnvironmentShelf(folder), bases)
    if folders and not needs:
        print("nothing to build: no Python plugin is there, or its manifest is not valid")
    failed = 0
    for need in needs:
        try:
            _build(need, folder, offline=offline)
        except CommandError as error:
            # One plugin's fault shall not keep the others from being started.
            tell(str(error))
            failed += 1
    return EXIT_FAILED if failed else EXIT_DONE


def _build(need: "Need", data: Path, *, offline: bool) -> None:
    import asyncio

    from host_service.cli.display import notes
    from host_service.environments import EnvironmentProblem, build
    from host_service.supervisor.errors import ManifestInvalid

    remarks = notes()

    def show(line: str) -> None:
        remarks.print(f"  {line}", style="dim", soft_wrap=True)

    was_there = need.environment is not None and need.environment.is_ready
    try:
        made = asyncio.run(build(need.folder, data, show, offline=offline))
    except (EnvironmentProblem, ManifestInvalid) as error:
        raise CommandError(
            f"{need.plugin_id}: its environment was not built: {error}",
            "mend what it asks for, or put the wheels that are missing into its wheels/",
        ) from error
    if not made.key:
        print(f"{need.plugin_id} asks for nothing: it runs in the host's own Python")
    else:
        print(f"{need.plugin_id} {'has' if was_there else 'got'} environment {made.key}")


def list_environments(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plugins: MoreOption = None,
    data: DataOption = None,
) -> None:
    """List the environments in the data folder, and the plugins that need them.

    uv lets environments share files: together they may take less than the sum of their sizes.
    """
    from host_service.cli.display import print_table, yes_or_no
    from host_service.cli.json_output import print_json
    from host_service.environments import EnvironmentShelf
    from host_service.environments.needs import needs_of, plugin_places

    folder = data_folder(data)
    shelf = EnvironmentShelf(folder)
    kept = shelf.kept()
    needs = needs_of(shelf, plugin_places(folder, plugins or (), versions=True)) if kept else []
    users = {each.environment.key: _users(each, needs) for each in kept}
    if json:
        print_json([_facts(each, users[each.environment.key]) for each in kept])
        return
    print_table(
        ["ENVIRONMENT", "NEEDED BY", "RUNNING", "SIZE", "LAST USED"],
        [
            [
                each.environment.key,
                ", ".join(users[each.environment.key]),
                yes_or_no(each.in_use),
                f"{each.size_bytes / _MEBIBYTE:.1f} MiB",
                _day(each),
            ]
            for each in kept
        ],
        empty="there are no environments",
    )


def clean(
    unused_for: Annotated[
        float,
        typer.Option(
            metavar="TIME",
            parser=_seconds,
            show_default=False,
            help="Only what was not used for so long, such as 30d.",
        ),
    ] = 0.0,
    wheels: Annotated[
        bool,
        typer.Option(
            "--wheels", help="Also the wheels that were kept for builds without a registry."
        ),
    ] = False,
    plugins: MoreOption = None,
    data: DataOption = None,
) -> None:
    """Remove environments that no plugin needs any more.

    What a running plugin uses stays. A host may run meanwhile. Plugins that a host finds elsewhere
    than in the data folder are named with --plugins, as for 'runmesh up'.
    """
    from host_service.environments import EnvironmentShelf
    from host_service.environments.needs import collect_unneeded, plugin_places

    folder = data_folder(data)
    shelf = EnvironmentShelf(folder)
    places = plugin_places(folder, plugins or (), versions=True)
    removed = collect_unneeded(shelf, places, unused_seconds=unused_for)
    freed = sum(each.size_bytes for each in removed)
    print(f"{len(removed)} environments are removed, {freed / _MEBIBYTE:.1f} MiB")
    if wheels:
        print(f"{shelf.remove_wheels() / _MEBIBYTE:.1f} MiB of wheels are removed")


def _users(kept: "KeptEnvironment", needs: "Sequence[Need]") -> list[str]:
    key = kept.environment.key
    return sorted(
        {need.plugin_id for need in needs if need.environment and need.environment.key == key}
    )


def _facts(kept: "KeptEnvironment", users: "Sequence[str]") -> dict[str, object]:
    return {
        "key": kept.environment.key,
        "folder": str(kept.environment.folder),
        "requirements": list(kept.requirements),
        "needed_by": list(users),
        "in_use": kept.in_use,
        "size_bytes": kept.size_bytes,
        "last_used_at": _moment(kept),
    }


def _day(kept: "KeptEnvironment") -> str:
    return _moment(kept)[:16].replace("T", " ")


def _moment(kept: "KeptEnvironment") -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(kept.used_at, UTC).astimezone().isoformat(timespec="seconds")
