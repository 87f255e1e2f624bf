"""`runmesh export` and `runmesh import`: everything, out of a database and into another one."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from host_service.cli.database import (
    BlobsOption,
    DatabaseOption,
    blobs_of,
    run_on_database,
    url_of,
)
from host_service.cli.failures import CommandError
from host_service.cli.options import DataOption, data_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.transferred import Transferred

_TELL_SECONDS = 0.1

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add_to(application: typer.Typer) -> None:
    """Adds the commands to the application."""
    application.command("export")(export)
    application.command("import")(import_)


def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder to make, or one to go on with.")
    ],
    data: DataOption = None,
    database: DatabaseOption = None,
    blobs: BlobsOption = None,
    json: JsonOption = False,
) -> None:
    """Write everything into a folder.

    That is all tables, and the bytes of all artifacts. A host may run meanwhile: what is written is
    as of one moment. Started again on the same folder, an interrupted export goes on. Keys are not
    in it: keep secret.key and operator.key apart, and put them into the new data folder.
    """
    from stores.transfer import export_database

    where = data_folder(data)
    url, blobs_url = url_of(database, where), blobs_of(blobs, database, where)
    with _Progress() as progress:
        done = run_on_database(
            export_database(url, folder.absolute(), blobs_url=blobs_url, progress=progress.tell)
        )
    _print(done, "exported", json)


def import_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A finished export.")],
    data: DataOption = None,
    database: DatabaseOption = None,
    blobs: BlobsOption = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete everything that the database has first.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Take in what was exported.

    It goes into an empty database, of whichever engine. No host may run on it. All of it is there
    at the end, compared with the export, or nothing is; an interrupted import can be started again.
    """
    from host_service.cli.running_host import host_holds
    from stores.transfer import import_database

    where = data_folder(data)
    if database is None:
        if host_holds(where):
            raise CommandError(f"a host runs on {where}", "stop it before its database is filled")
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
    url, blobs_url = url_of(database, where), blobs_of(blobs, database, where)
    with _Progress() as progress:
        done = run_on_database(
            import_database(
                url,
                folder.absolute(),
                blobs_url=blobs_url,
                replace=replace,
                progress=progress.tell,
            )
        )
    _print(done, "imported", json)


class _Progress:
    """A line on a terminal that says how far it is; in a pipe nothing."""

    def __init__(self, now: "Callable[[], float]" = time.monotonic) -> None:
        self._now = now
        self._shown_at = 0.0
        self._wanted = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._wanted:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def tell(self, what: str, done: int) -> None:
        """Shows how much of something is done."""
        if self._wanted and self._now() - self._shown_at >= _TELL_SECONDS:
            self._shown_at = self._now()
            print(f"\r\x1b[K{what}: {done}", end="", file=sys.stderr, flush=True)


def _print(done: "Transferred", verb: str, as_json: bool) -> None:
    if as_json:
        told = {
            "digest": done.digest,
            "rows": done.rows,
            "blobs": done.blobs,
            "blob_bytes": done.blob_bytes,
        }
        print(json.dumps(told, indent=2))
        return
    print(f"{verb} {done.rows} rows, and {done.blobs} blobs with {done.blob_bytes} bytes")
    print(f"digest {done.digest}")
