"""What the commands share that work on a database by themselves, without asking a host."""

import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from host_service.cli.failures import CommandError
from host_service.cli.options import database_url

if TYPE_CHECKING:
    from stores import Stores

T = TypeVar("T")

DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        envvar="RUNMESH_DATABASE",
        parser=database_url,
        help="The database.  [default: the SQLite file in the data folder]",
    ),
]
BlobsOption = Annotated[
    str | None,
    typer.Option(
        "--blobs",
        metavar="URL",
        envvar="RUNMESH_BLOBS",
        help="Where the bytes of artifacts are: file:///path or s3://bucket/prefix.  "
        "[default: blobs/ beside the SQLite file, else in the data folder]",
    ),
]


def url_of(database: str | None, folder: Path) -> str:
    """The database that a command works with."""
    return database or f"sqlite:///{folder / 'runmesh.db'}"


def blobs_of(blobs: str | None, database: str | None, folder: Path) -> str | None:
    """The blob store that a command works with; None: the one beside the SQLite file."""
    if blobs or database is None or database.startswith("sqlite"):
        return blobs
    return (folder / "blobs").as_uri()


def check_current(url: str) -> None:
    """Checks that a database is there and has this version's schema.

    Raises:
        CommandError: It is not so.
    """
    from stores.schema import read_schema_state

    state = read_schema_state(url)
    if state.found is None:
        raise CommandError(
            "there is nothing in the database yet", "start a host with 'runmesh up', or see --data"
        )
    if not state.is_current:
        raise CommandError(
            f"the database has schema revision {state.found}, this version needs {state.newest}",
            "stop its hosts and run 'runmesh migrate'",
        )


@contextmanager
def private_files() -> "Iterator[None]":
    """Lets nobody else read the files that are made meanwhile, a database's above all."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def run_on_database(work: "Coroutine[Any, Any, T]") -> T:
    """Runs work on stores; what they refuse becomes a failure of the command.

    Raises:
        CommandError: The stores refused it.
    """
    import asyncio

    from stores.errors import StoreError

    try:
        with private_files():
            return asyncio.run(work)
    except StoreError as error:
        raise CommandError(str(error)) from error


async def open_current(url: str, blobs_url: str | None) -> "Stores":
    """Opens the stores of a database that has this version's schema."""
    import asyncio

    from stores import open_stores

    await asyncio.to_thread(check_current, url)
    return await open_stores(url, blobs_url=blobs_url)
