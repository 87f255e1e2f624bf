"""Reads archives that strangers made, and refuses what is not exactly a plain one.

The structure is judged before a byte is inflated: both headers of every entry are those that the
writer would have made, each stands where the one before it ends, and the sizes that are claimed are
within bounds. Then an entry gives what it claimed or is refused: no more is inflated than that.
"""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NoReturn, Self

from host_service.limits import PackageLimits
from host_service.packages.errors import ArchiveRefused
from host_service.packages.zip_format import (
    CENTRAL,
    CENTRAL_MARK,
    DEFLATED,
    DESCRIPTOR_FLAG,
    ENCRYPTED_FLAGS,
    END,
    END_MARK,
    KINDS,
    STORED,
    UNIX,
    UTF8_FLAG,
    ZIP64_LOCATOR_BYTES,
    ZIP64_LOCATOR_MARK,
    Entry,
)

_CHUNK_BYTES = 256 * 1024
_ZIP64_COUNT, _ZIP64_SIZE = 0xFFFF, 0xFFFFFFFF


class ZipReader:
    """The entries of one archive. Use it with `with`.

    Args:
        path: The file.
        limits: How much is too much.

    Attributes:
        entries: In the order they are in.

    Raises:
        ArchiveRefused: It is not a plain archive, or too large.
    """

    def __init__(self, path: Path, *, limits: PackageLimits) -> None:
        self._file: BinaryIO = path.open("rb")
        self._limits = limits
        try:
            self.entries = tuple(self._read_structure())
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def read(self, entry: Entry) -> bytes:
        """Returns an entry's content.

        Raises:
            ArchiveRefused: The content is not what the directory claims.
        """
        return b"".join(self.chunks(entry))

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """Yields an entry's content piece by piece.

        Raises:
            ArchiveRefused: The content is not what the directory claims.
        """
        size, crc = 0, 0
        for chunk in self._inflated(entry):
            size += len(chunk)
            crc = zlib.crc32(chunk, crc)
            if size > entry.size_bytes:
                self._refuse(f"{entry.name!r} has more than the {entry.size_bytes} bytes it claims")
            yield chunk
        if size != entry.size_bytes:
            self._refuse(f"{entry.name!r} has {size} bytes and claims {entry.size_bytes}")
        if crc != entry.crc:
            self._refuse(f"{entry.name!r} is damaged: its CRC-32 is {crc:08x}, not {entry.crc:08x}")

    def _inflated(self, entry: Entry) -> Iterator[bytes]:
        if entry.method == STORED:
            yield from self._packed(entry)
            return
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            for packed in self._packed(entry):
                yield inflater.decompress(packed, _CHUNK_BYTES)
                while inflater.unconsumed_tail:
                    yield inflater.decompress(inflater.unconsumed_tail, _CHUNK_BYTES)
            # At most what one last symbol stands for: the input is used up.
            yield inflater.flush()
        except zlib.error as error:
            raise ArchiveRefused(f"{entry.name!r} is damaged: {error}") from error
        if not inflater.eof:
            self._refuse(f"{entry.name!r} is damaged: its end is missing")
        if inflater.unused_data:
            self._refuse(f"{entry.name!r} has {len(inflater.unused_data)} bytes behind its end")

    def _packed(self, entry: Entry) -> Iterator[bytes]:
        self._file.seek(entry.content_offset)
        left = entry.packed_bytes
        while left:
            packed = self._file.read(min(left, _CHUNK_BYTES))
            if not packed:
                self._refuse(f"{entry.name!r} ends early")
            left -= len(packed)
            yield packed

    def _read_structure(self) -> Iterator[Entry]:
        size = os.fstat(self._file.fileno()).st_size
        if size > self._limits.package_bytes:
            self._refuse(f"has {size} bytes; the limit is {self._limits.package_bytes}")
        count, directory_offset = self._read_end(size)
        directory = self._at(directory_offset, size - END.size - directory_offset)
        place, expected, total = 0, 0, 0
        for _ in range(count):
            entry, place = self._read_central(directory, place)
            if entry.offset != expected:
                self._refuse(f"{entry.name!r} is at {entry.offset} where {expected} is expected")
            if self._at(entry.offset, len(entry.local_header())) != entry.local_header():
                self._refuse(f"{entry.name!r} has a local header that says something else")
            expected = entry.content_offset + entry.packed_bytes
            total += entry.size_bytes
            self._require_size(entry, total)
            yield entry
        if place != len(directory) or expected != directory_offset:
            self._refuse("has bytes that belong to no entry")

    def _read_end(self, size: int) -> tuple[int, int]:
        """Returns how many entries there are, and where their directory is."""
        if size < END.size:
            self._refuse("is no archive: it is too short")
        mark, disk, directory_disk, here, count, length, offset, comment = END.unpack(
            self._at(size - END.size, END.size)
        )
        if mark != END_MARK or comment:
            self._refuse("is no archive, or has a comment or other bytes behind it")
        before = self._at(max(size - END.size - ZIP64_LOCATOR_BYTES, 0), len(ZIP64_LOCATOR_MARK))
        if before == ZIP64_LOCATOR_MARK or count == _ZIP64_COUNT or _ZIP64_SIZE in {length, offset}:
            self._refuse("is a ZIP64 archive, which no package needs to be")
        if disk or directory_disk or here != count:
            self._refuse("is a part of an archive on several disks")
        if count > self._limits.entries:
            self._refuse(f"has {count} entries; the limit is {self._limits.entries}")
        if offset + length + END.size != size:
            self._refuse("has bytes before it, or between its directory and its end")
        if length > count * (CENTRAL.size + self._limits.path_bytes):
            self._refuse(f"has a directory of {length} bytes for {count} entries")
        return count, offset

    def _read_central(self, directory: bytes, place: int) -> tuple[Entry, int]:
        """Returns an entry and where the next one begins."""
        if len(directory) - place < CENTRAL.size:
            self._refuse("has a directory that ends early")
        (
            mark, made_by, _, flags, method, _, _, crc, packed_bytes, size_bytes,
            name_bytes, extra_bytes, comment_bytes, disk, _, attributes, offset,
        ) = CENTRAL.unpack_from(directory, place)  # fmt: skip
        start = place + CENTRAL.size
        if mark != CENTRAL_MARK or len(directory) - start < name_bytes:
            self._refuse("has a directory with something else in it")
        raw = directory[start : start + name_bytes]
        shown = repr(raw.decode(errors="backslashreplace")[:200])
        if flags & ENCRYPTED_FLAGS:
            self._refuse(f"{shown} is encrypted")
        if flags & DESCRIPTOR_FLAG or flags & ~UTF8_FLAG or extra_bytes or comment_bytes or disk:
            self._refuse(f"{shown} has fields that no package needs")
        if _ZIP64_SIZE in {packed_bytes, size_bytes, offset}:
            self._refuse(f"{shown} is a ZIP64 entry, which no package needs to have")
        if method not in {STORED, DEFLATED}:
            self._refuse(f"{shown} is packed with the method {method}, not 0 or 8")
        if method == STORED and packed_bytes != size_bytes:
            self._refuse(f"{shown} is stored, and claims two sizes")
        kind = KINDS.get(attributes >> 16)
        if made_by >> 8 != UNIX or kind is None:
            self._refuse(f"{shown} is no file of mode 644 or 755 and no link of mode 777")
        entry = Entry(
            name=self._decoded(raw, shown, is_utf8=bool(flags & UTF8_FLAG)),
            kind=kind,
            method=method,
            crc=crc,
            packed_bytes=packed_bytes,
            size_bytes=size_bytes,
            offset=offset,
        )
        if directory[place : start + name_bytes] != entry.central_header():
            self._refuse(f"{shown} has a time, or other fields that no package needs")
        return entry, start + name_bytes

    def _decoded(self, raw: bytes, shown: str, *, is_utf8: bool) -> str:
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            self._refuse(f"{shown} is a name that is not UTF-8")
        if is_utf8 == name.isascii():
            self._refuse(f"{shown} does not say truly how its name is encoded")
        return name

    def _require_size(self, entry: Entry, total: int) -> None:
        limits = self._limits
        if total > limits.unpacked_bytes:
            self._refuse(f"would unpack to more than {limits.unpacked_bytes} bytes")
        if (
            entry.size_bytes > limits.expansion_from_bytes
            and entry.size_bytes > entry.packed_bytes * limits.expansion
        ):
            self._refuse(
                f"{entry.name!r} would become {entry.size_bytes} bytes out of "
                f"{entry.packed_bytes}; the limit is {limits.expansion} times as many"
            )

    def _at(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)

    @staticmethod
    def _refuse(problem: str) -> NoReturn:
        raise ArchiveRefused(problem)
