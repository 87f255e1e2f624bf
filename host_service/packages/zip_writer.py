"""Writes archives whose bytes follow from their contents alone."""

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from host_service.limits import PackageLimits
from host_service.packages.zip_format import DEFLATED, END, END_MARK, STORED, Entry

#: Name, kind and content of what goes into an archive.
Item = tuple[str, str, bytes]


def write_archive(target: Path, items: Iterable[Item], *, limits: PackageLimits) -> None:
    """Writes an archive with the items in the order they come in.

    Args:
        target: The file, which is replaced.
        items: What goes into it.
        limits: What readers take: an item that packs too well for them is stored as it is.
    """
    entries: list[Entry] = []
    with target.open("wb") as file:
        for name, kind, content in items:
            entries.append(_write_entry(file, name, kind, content, limits))
        directory = b"".join(entry.central_header() for entry in entries)
        count = len(entries)
        end = END.pack(END_MARK, 0, 0, count, count, len(directory), file.tell(), 0)
        file.write(directory + end)


def _write_entry(
    file: BinaryIO, name: str, kind: str, content: bytes, limits: PackageLimits
) -> Entry:
    method, packed = _pack(content, limits)
    entry = Entry(
        name=name,
        kind=kind,
        method=method,
        crc=zlib.crc32(content),
        packed_bytes=len(packed),
        size_bytes=len(content),
        offset=file.tell(),
    )
    file.write(entry.local_header() + packed)
    return entry


def _pack(content: bytes, limits: PackageLimits) -> tuple[int, bytes]:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(content) + packer.flush()
    too_well = (
        len(content) > limits.expansion_from_bytes and len(content) > len(packed) * limits.expansion
    )
    if too_well or len(packed) >= len(content):
        return STORED, content
    return DEFLATED, packed
