"""The files of an export: written so that they are whole or not there, and read with a digest."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, Final, TypeVar

from stores.errors import TransferDamaged, TransferRefused
from stores.transferred import FORMAT, FORMAT_VERSION

T = TypeVar("T")

MANIFEST: Final = "manifest.json"
UNFINISHED: Final = "unfinished"
BLOB_LIST: Final = "blobs.jsonl"
_PRIVATE_FOLDER: Final = 0o700
_PRIVATE_FILE: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """What a manifest says of a file of lines."""

    rows: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a manifest says.

    Attributes:
        schema_revision: The schema that the tables have.
        tables: Each table's columns with their types, and its file.
        counters: The last number that each counting table gave.
        blobs: The list of blobs.
        blob_bytes: How many bytes the blobs have.
    """

    schema_revision: str
    columns: Mapping[str, Sequence[Sequence[str]]]
    tables: Mapping[str, FileSummary]
    counters: Mapping[str, int]
    blobs: FileSummary
    blob_bytes: int

    @property
    def digest(self) -> str:
        """One digest over everything."""
        content = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def rows(self) -> int:
        """How many rows there are in all tables."""
        return sum(table.rows for table in self.tables.values())

    def write(self, folder: Path) -> None:
        """Write it as the last file of an export."""
        document = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "digest": self.digest,
            **asdict(self),
        }
        text = json.dumps(document, indent=1)
        with writing(folder / MANIFEST) as file:
            file.write(text.encode() + b"\n")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of an export.

        Raises:
            TransferRefused: There is none, or it is of another format.
            TransferDamaged: It is not as it was written.
        """
        path = folder / MANIFEST
        try:
            document = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            what = "an export that is not finished" if (folder / UNFINISHED).exists() else "none"
            raise TransferRefused(f"{folder} holds {what}: run 'runmesh export' first") from error
        except (OSError, ValueError) as error:
            raise TransferDamaged(f"{path} cannot be read: export again") from error
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise TransferRefused(f"{path} is not the manifest of an export")
        if document.get("format_version") != FORMAT_VERSION:
            raise TransferRefused(f"{path} is of a format that this version does not know")
        return cls._parse(document, path)

    @classmethod
    def _parse(cls, document: Mapping[str, Any], path: Path) -> Manifest:
        try:
            manifest = cls(
                schema_revision=document["schema_revision"],
                columns=document["columns"],
                tables={name: FileSummary(**one) for name, one in document["tables"].items()},
                counters=document["counters"],
                blobs=FileSummary(**document["blobs"]),
                blob_bytes=document["blob_bytes"],
            )
            is_as_written = manifest.digest == document["digest"]
        except (KeyError, TypeError, AttributeError) as error:
            raise TransferDamaged(f"{path} lacks a part: export again") from error
        if not is_as_written:
            raise TransferDamaged(f"{path} was changed: export again")
        return manifest


class Summary:
    """Counts and digests lines."""

    def __init__(self) -> None:
        self.rows = 0
        self._size = 0
        self._digest = hashlib.sha256()

    def add(self, lines: Sequence[bytes]) -> None:
        """Take lines in."""
        block = b"".join(lines)
        self.rows += len(lines)
        self._size += len(block)
        self._digest.update(block)

    def result(self) -> FileSummary:
        """Return what there was so far."""
        return FileSummary(rows=self.rows, size_bytes=self._size, sha256=self._digest.hexdigest())


def table_path(folder: Path, name: str) -> Path:
    """Return where a table is."""
    return folder / "tables" / f"{name}.jsonl"


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner may look into."""
    folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Give a file that has its name once it is whole, and on the disk."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, _PRIVATE_FILE)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def in_thread(work: Callable[[Event], T]) -> T:
    """Run work in a thread, which is asked to stop when its waiter is cancelled."""
    stop = Event()
    try:
        return await asyncio.to_thread(work, stop)
    except asyncio.CancelledError:
        stop.set()
        raise


class Stopped(Exception):
    """Nobody waits for this work any more."""


def check_going(stop: Event) -> None:
    """Check that somebody still waits for this work.

    Raises:
        Stopped: Nobody does.
    """
    if stop.is_set():
        raise Stopped
