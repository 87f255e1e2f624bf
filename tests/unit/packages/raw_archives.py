"""Archives made byte by byte, so that each can lie in one way and be honest in all others.

Nothing here is the product's: where both were wrong in the same way, no test would tell.
"""

import hashlib
import stat
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

MANIFEST = b"""\
apiVersion: runmesh/v1
kind: Plugin
metadata: { author: acme, name: weather, version: 1.0.0 }
run: { command: [./run] }
"""
REGULAR, PROGRAM, LINK = stat.S_IFREG | 0o644, stat.S_IFREG | 0o755, stat.S_IFLNK | 0o777


@dataclass(frozen=True)
class Raw:
    """One entry; `local` and `central` say what one of its headers says otherwise.

    Attributes:
        name: Its name, as bytes where it is no UTF-8.
        content: What it unpacks to.
        mode: Its file mode.
        deflate: Whether it is deflated.
        listed: Whether the list of contents has it.
        digest_of: What the list has the digest of instead.
        packed: The bytes in the archive instead of the right ones.
        local: Fields of its local header.
        central: Fields of its central header.
        extra: An extra field of both.
    """

    name: str | bytes
    content: bytes = b""
    mode: int = REGULAR
    deflate: bool = False
    listed: bool = True
    digest_of: bytes | None = None
    packed: bytes | None = None
    local: dict[str, Any] = field(default_factory=dict)
    central: dict[str, Any] = field(default_factory=dict)
    extra: bytes = b""

    @property
    def encoded(self) -> bytes:
        return self.name.encode() if isinstance(self.name, str) else self.name

    @property
    def packed_content(self) -> bytes:
        if self.packed is not None:
            return self.packed
        if not self.deflate:
            return self.content
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(self.content) + packer.flush()

    def header_fields(self, **changed: Any) -> dict[str, Any]:
        return {
            "version": 20,
            "flags": 0 if self.encoded.isascii() else 0x0800,
            "method": 8 if self.deflate else 0,
            "time": 0,
            "date": 33,
            "crc": zlib.crc32(self.content),
            "packed_bytes": len(self.packed_content),
            "size_bytes": len(self.content),
            "name": self.encoded,
            "extra": self.extra,
            "made_by": 3 << 8 | 20,
            "attributes": self.mode << 16,
            "comment": b"",
            "disk": 0,
            **changed,
        }


ENTRIES = (Raw("manifest.yaml", MANIFEST), Raw("run", b"#!/bin/sh\n", PROGRAM))


def contents_of(
    entries: Sequence[Raw], *, plugin: str = "acme/weather", version: str = "1.0.0"
) -> Raw:
    """The list of contents for some entries, which tells the truth but where they say otherwise."""
    kinds = {REGULAR: "file", PROGRAM: "program", LINK: "link"}
    lines = []
    for entry in sorted(entries, key=lambda each: each.encoded):
        if not entry.listed:
            continue
        content = entry.content if entry.digest_of is None else entry.digest_of
        digest = hashlib.sha256(content).hexdigest().encode()
        kind = kinds.get(entry.mode, "file").encode()
        lines.append(digest + b"  " + kind.ljust(7) + b"  " + entry.encoded + b"\n")
    head = f"runmesh package 1\nplugin {plugin}\nversion {version}\n\n".encode()
    return Raw(".package/contents", head + b"".join(lines))


def archive(entries: Sequence[Raw], **end: Any) -> bytes:
    """The bytes of an archive; `end` says what its end record says otherwise."""
    body, directory = b"", b""
    for entry in entries:
        central = entry.header_fields(**{"offset": len(body), **entry.central})
        body += _local(entry.header_fields(**entry.local)) + entry.packed_content
        directory += _central(central)
    fields = {
        "disk": 0, "directory_disk": 0, "here": len(entries), "count": len(entries),
        "length": len(directory), "offset": len(body), "comment": b"", **end,
    }  # fmt: skip
    return body + directory + _end(fields)


def package(*more: Raw, **end: Any) -> bytes:
    """The bytes of a package of acme/weather 1.0.0 with more entries in it."""
    entries = [*ENTRIES, *more]
    return archive([contents_of(entries), *entries], **end)


def changed(entry: Raw, **fields: Any) -> bytes:
    """The bytes of a package in which one entry is another."""
    entries = [replace(each, **fields) if each == entry else each for each in ENTRIES]
    return archive([contents_of(entries), *entries])


def written(folder: Path, data: bytes, name: str = "weather-1.0.0.rmpkg") -> Path:
    """The file of a package."""
    path = folder / name
    path.write_bytes(data)
    return path


def _local(f: dict[str, Any]) -> bytes:
    header: bytes = (
        struct.pack(
            "<4s5H3L2H", b"PK\x03\x04", f["version"], f["flags"], f["method"], f["time"], f["date"],
            f["crc"], f["packed_bytes"], f["size_bytes"], len(f["name"]), len(f["extra"]),
        )
        + f["name"]
        + f["extra"]
    )  # fmt: skip
    return header


def _central(f: dict[str, Any]) -> bytes:
    header: bytes = (
        struct.pack(
            "<4s6H3L5H2L", b"PK\x01\x02", f["made_by"], f["version"], f["flags"], f["method"],
            f["time"], f["date"], f["crc"], f["packed_bytes"], f["size_bytes"], len(f["name"]),
            len(f["extra"]), len(f["comment"]), f["disk"], 0, f["attributes"], f["offset"],
        )
        + f["name"]
        + f["extra"]
        + f["comment"]
    )  # fmt: skip
    return header


def _end(f: dict[str, Any]) -> bytes:
    header: bytes = (
        struct.pack(
            "<4s4H2LH", b"PK\x05\x06", f["disk"], f["directory_disk"], f["here"], f["count"],
            f["length"], f["offset"], len(f["comment"]),
        )
        + f["comment"]
    )  # fmt: skip
    return header
