"""`runmesh test`, `pack` and `sign`: from a plugin's folder to a package that others trust."""

from pathlib import Path
from typing import Annotated

import typer

from host_service.cli.conformance import conformance
from host_service.cli.failures import EXIT_DONE, EXIT_USAGE, CommandError
from host_service.cli.making import PluginOption
from host_service.cli.options import DataOption, data_folder
from host_service.cli.package_work import (
    ShownProgress,
    build_environment,
    failing_plainly,
    see_it_run,
)


def add_to(application: typer.Typer) -> None:
    """Adds the commands to the application."""
    application.command("test")(run_tests)
    application.command()(pack)
    application.command()(sign)


def run_tests(
    plugin: PluginOption = Path(),
    skip_conformance: Annotated[
        bool, typer.Option("--skip-conformance", help="Leave the contract's checks out.")
    ] = False,
    data: DataOption = None,
) -> int:
    """Run a plugin's tests, and the checks of the contract.

    Its own tests run in its own environment, with pytest where that has it, else with unittest. A
    plugin in another language is made with run.build of its manifest, and tested with run.test.
    Then its process must serve what its manifest files say, and pass `runmesh conformance`.
    """
    from host_service.packages.own_commands import run_own_build, run_own_test_command
    from host_service.packages.own_tests import RanBy, run_own_tests
    from host_service.packages.packing import PluginFolder
    from host_service.supervisor.manifest import Command, PythonModule

    with failing_plainly(), ShownProgress() as progress:
        folder = PluginFolder.read(plugin)
        progress.step("building its environment")
        environment = build_environment(folder.path, data_folder(data), progress)
    with failing_plainly():
        if isinstance(folder.manifest.run, PythonModule):
            ran = run_own_tests(folder.path, environment.python)
            told = "it has no tests" if ran is RanBy.NOTHING else f"passed ({ran.value})"
            print(f"its own tests: {told}", flush=True)
        elif isinstance(folder.manifest.run, Command):
            commands = folder.manifest.run
            run_own_build(folder.path, commands.build)
            has_tests = run_own_test_command(folder.path, commands.test)
            told = f"passed ({commands.test})" if has_tests else "it has no run.test"
            print(f"its own tests: {told}", flush=True)
        see_it_run(folder, data_folder(data))
    print("its manifest files: are what its process serves", flush=True)
    return EXIT_DONE if skip_conformance else conformance(plugin=folder.path, data=data)


def pack(
    plugin: PluginOption = Path(),
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Where the package goes.  [default: the plugin's folder]",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--sign", metavar="KEY", help="Sign it with the private key in this file."),
    ] = None,
    data: DataOption = None,
) -> None:
    """Make a plugin's package, NAME-VERSION.rmpkg.

    First its program is made, if its manifest has run.build. Then its process is run for a moment,
    and must serve what its manifest files say. The same files give the same package. What
    .rmpkgignore lists stays out, as do caches, version control, keys and packages.
    """
    from host_service.packages import packing
    from host_service.packages.own_commands import run_own_build
    from host_service.supervisor.manifest import Command

    with failing_plainly():
        folder = packing.PluginFolder.read(plugin)
        if isinstance(folder.manifest.run, Command):
            run_own_build(folder.path, folder.manifest.run.build)
    with failing_plainly(), ShownProgress() as progress:
        progress.step("building its environment")
        build_environment(folder.path, data_folder(data), progress)
        progress.step("trying it")
        see_it_run(folder, data_folder(data))
        progress.step("packing")
        package = packing.pack(folder, output or folder.path, key=key)
    print(f"{_shown(package.path)}")
    print(f"sha256 {package.sha256}")
    if package.signature is not None:
        print(f"signed by the key {package.signature.key_id}")


def sign(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The package.", dir_okay=False)
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="KEY", help="The file of the private key.")
    ] = None,
    new_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Make a private key, and beside it the public one."),
    ] = None,
) -> None:
    """Sign a package, or make a key for that.

    Whoever installs trusts a key when its public half, *.pub, is in trusted-keys/ of their data
    folder. With 'require_signature: true' in packages.yaml there, nothing else is installed.
    """
    from host_service.packages import packing, signing
    from host_service.packages.package import Package

    if new_key is not None and file is None and key is None:
        with failing_plainly():
            public, key_id = signing.new_key(new_key)
        print(f"{new_key} is the private key: keep it to yourself")
        print(f"{public} is the public one, with the id {key_id}")
        return
    if file is None or key is None or new_key is not None:
        raise CommandError(
            "sign needs either FILE and --key KEY, or --new-key FILE", exit_status=EXIT_USAGE
        )
    with failing_plainly():
        package = packing.sign_package(Package.open(file), key)
    print(f"{package.path} is signed")
    print(f"sha256 {package.sha256}")


def _shown(path: Path) -> Path:
    """A path as one would write it from here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
