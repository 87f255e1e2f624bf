"""`runmesh migrate`: brings the schema of a database to what this version works with."""

from typing import Annotated

import typer

from host_service.cli.database import DatabaseOption, private_files, url_of
from host_service.cli.failures import EXIT_DONE, EXIT_FAILED, CommandError
from host_service.cli.options import DataOption, data_folder


def add_to(application: typer.Typer) -> None:
    """Adds the command to the application."""
    application.command()(migrate)


def migrate(
    data: DataOption = None,
    database: DatabaseOption = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; exit 1 when there is something to migrate."),
    ] = False,
) -> int:
    """Bring the database to this version's schema.

    A host does it by itself when it starts. All steps are done or none.
    """
    from host_service.cli.running_host import host_holds
    from stores.errors import StoreError
    from stores.schema import migrate as migrate_database
    from stores.schema import read_schema_state

    folder = data_folder(data)
    url = url_of(database, folder)
    try:
        state = read_schema_state(url)
        if state.is_current:
            print(f"the database has schema revision {state.newest}, the newest: nothing to do")
            return EXIT_DONE
        if check:
            had = _told(state.found)
            print(f"the database has {had}, the newest is {state.newest}: run 'runmesh migrate'")
            return EXIT_FAILED
        if database is None and host_holds(folder):
            raise CommandError(f"a host runs on {folder}", "stop it before its database is changed")
        with private_files():
            before = migrate_database(url)
    except StoreError as error:
        raise CommandError(str(error)) from error
    print(f"the database had {_told(before.found)}, and has revision {before.newest} now")
    return EXIT_DONE


def _told(revision: str | None) -> str:
    return "no schema" if revision is None else f"schema revision {revision}"
