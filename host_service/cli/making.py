"""`runmesh init` and `runmesh component`: the files of a new plugin, and of more runners in it."""

from pathlib import Path
from typing import Annotated

import typer

from host_service.cli.package_work import failing_plainly

PluginOption = Annotated[
    Path,
    typer.Option(
        "--plugin", metavar="DIR", file_okay=False, help="The plugin's folder.", show_default=False
    ),
]


def add_to(application: typer.Typer) -> None:
    """Adds the commands to the application."""
    application.command()(init)
    component = typer.Typer(help="Add components to a plugin.", rich_markup_mode=None)
    # A group, although it has one command so far: without this Typer would leave the name out.
    component.callback()(lambda: None)
    component.command("add")(add)
    application.add_typer(component, name="component")


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The plugin's name, and its folder's.")
    ],
    lang: Annotated[
        str,
        typer.Option(
            "--lang", metavar="LANGUAGE", help="What it is written in: python, go, typescript."
        ),
    ] = "python",
    author: Annotated[
        str | None,
        typer.Option(metavar="AUTHOR", help="Whose it is.  [default: your login name]"),
    ] = None,
) -> None:
    """Make a plugin that runs, in a new folder.

    It has one runner, a test of that, and a README that says what to do next.
    """
    from host_service.packages.scaffold import default_author, make_plugin

    with failing_plainly():
        make_plugin(Path(name), name=name, author=author or default_author(), language=lang)
    print(f"{name}/ is a plugin: 'cd {name}', then 'runmesh test', 'runmesh dev', 'runmesh pack'")


def add(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What to add: agent-runner.")],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Its name: the last part of a runner's id.")
    ],
    plugin: PluginOption = Path(),
) -> None:
    """Add a component to a plugin: its files, its line in the manifest, its place in the code."""
    from host_service.packages.component_adding import add_runner
    from host_service.packages.packing import PluginFolder
    from host_service.packages.scaffold import AGENT_RUNNER

    if kind != AGENT_RUNNER:
        raise typer.BadParameter(f"{kind!r} is no kind of component; there is {AGENT_RUNNER}")
    with failing_plainly():
        folder = PluginFolder.read(plugin)
        changed = add_runner(folder, name)
    print(f"plugin:{folder.manifest.plugin_id}/{name} is in it; made or changed:")
    for path in changed:
        print(f"  {path.relative_to(folder.path)}")
